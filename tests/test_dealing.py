"""How tests are told apart, and in which order processes take their files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.dealing import kept, longest_first, part_of
from tests.kinds import NEEDS, ROOT, UNIT, imports_of


class Named(NamedTuple):
    nodeid: str
    keywords: frozenset[str] = frozenset()


def test_files_stay_together_the_longest_first_and_those_nobody_has_timed_before_all() -> None:
    long = frozenset({"long"})
    items = [Named(name) for name in ("a::1", "b::1", "new::1", "b::2", "a::2")] + [Named("a::3", long)]
    in_order = [item.nodeid for item in longest_first(items, {"a": 1.0, "a (long)": 8.0, "b": 5.0})]
    assert in_order == ["new::1", "a::1", "a::2", "a::3", "b::1", "b::2"]
    assert [item.nodeid for item in longest_first(items[:2], {"a": 1.0, "a (long)": 8.0, "b": 5.0})] == ["b::1", "a::1"]


def test_what_is_kept_is_of_files_that_are_there() -> None:
    assert [part for part in kept() if not (ROOT / part.removesuffix(" (long)")).exists()] == []
    assert part_of("tests/a.py::B::c[d::e]", {"long"}) == "tests/a.py (long)"


def test_a_test_has_one_kind_and_one_of_this_process_starts_no_other(request: pytest.FixtureRequest) -> None:
    assert [kind for kind in NEEDS if request.node.get_closest_marker(kind)] == ["process"], "it imports subprocess"
    assert UNIT in NEEDS
    subprocess.run(["true"], check=True)


def test_what_a_file_imports_is_seen_in_each_way_to_write_it(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(
        "import a.b as c, d\n"
        "from e import (\n    f as g,  # it is needed\n    h,\n)\n"
        "def later():\n    from i.j import k, l\n"
        "PROGRAM = '''\nimport m\n'''\n"
    )
    assert imports_of(file) == {"a.b", "d", "e", "e.f", "e.h", "i.j", "i.j.k", "i.j.l", "m"}
