"""What `--shape` says, once and again."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from shisha_rt.cli import progress as told
from shisha_rt.cli.options import parse_dims, parse_shapes, parse_sizes
from shisha_rt.cli.progress import end_progress, progress
from shisha_rt.errors import BadInput, Error
from tests.cli.conftest import Run
from tests.waiting import until
from tests.wording import raised


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (None, [{}]),
        (["x=1x3"], [{"x": (1, 3)}]),
        (["a=b=2", "y=4x5"], [{"a=b": (2,), "y": (4, 5)}]),
        (["x=1", "x=2", "x=3"], [{"x": (1,)}, {"x": (2,)}, {"x": (3,)}]),
        (["x=1", "y=7", "x=2"], [{"x": (1,), "y": (7,)}, {"x": (2,), "y": (7,)}]),
        (["x=1", "x=1", "y=7", "y=8"], [{"x": (1,), "y": (7,)}, {"x": (1,), "y": (8,)}]),
    ],
)
def test_the_kth_shape_of_one_input_goes_with_the_kth_of_the_others(
    texts: list[str] | None, expected: list[dict[str, tuple[int, ...]]]
) -> None:
    assert parse_shapes(texts) == expected


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["x"], "expected INPUT=SIZE"),
        (["x=1x0"], "sizes of 1 to 2147483647"),
        (["x=1x2147483648"], "sizes of 1 to 2147483647"),
        ([f"x={'9' * 5000}"], "sizes of 1 to 2147483647"),
        (["x=1", "x=1"], "--shape x=1: is set twice"),
        (["x=1", "y=2x2", "x=1"], "--shape x=1 y=2x2: is set twice"),
        (["x=1", "x=2", "x=3", "y=1", "y=2"], "3 shapes of x and 2 of y"),
    ],
)
def test_bad_input(texts: list[str], complaint: str) -> None:
    with raised(BadInput, Error.WRONG_SIZES) as caught:
        parse_shapes(texts)
    assert complaint in str(caught.value)


def test_a_dimension_whose_name_has_an_equals_sign() -> None:
    assert parse_dims(["a=b=2", "N=1"]) == {"a=b": 2, "N": 1}


def test_a_step_that_lasts_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(told, "_AGAIN_S", 0.01)

    def lines() -> list[str]:
        return terminal.getvalue().splitlines()

    progress("measuring")
    until(lambda: lines()[:3] == ["measuring", "still measuring", "still measuring"])
    progress("planning")
    until(lambda: lines()[-1] == "still planning")
    said = lines()
    assert "still measuring" not in said[said.index("still planning") :]
    end_progress()


def test_what_is_no_terminal_hears_of_a_step_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` said nothing for a minute on a busy host, and looked as if it hung."""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(told, "_AGAIN_S", 0.01)
    progress("measuring")
    until(lambda: file.getvalue().count("s: measuring\n") > 1)
    progress("planning")
    until(lambda: file.getvalue().endswith("s: planning\n"))
    end_progress()
    assert all(re.fullmatch(r"for \d+ s: (measuring|planning)", line) for line in file.getvalue().splitlines())


def test_most_commands_take_one_shape() -> None:
    with raised(BadInput, Error.WRONG_SIZES, match="--shape: 2 shapes,"):
        parse_sizes(None, ["x=1", "x=2"])


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("keys", "new", "a", "--folder="), "--folder"),
        (("service", "zoo:squeezenet", "--leases", ""), "--leases"),
        (("plan", "zoo:squeezenet", "--machine", ""), "--machine"),
        (("check", ""), "argument"),
        (("serve", "--fresh", ""), "argument"),
        (("plan", "set", "--json", ""), "argument"),
    ],
)
def test_an_empty_value_is_no_path_of_this_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in run(*argv).complaint_of(Error.WRONG_OPTION)
    assert not [*tmp_path.iterdir()]
