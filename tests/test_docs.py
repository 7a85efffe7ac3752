"""What the pages for strangers name is there: files, folders and the targets of links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = (ROOT / "shisha_rt", ROOT / "stages")
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

EXAMPLE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r"`([^`\n]+)`")
NAME: Final = r"\w[\w.*-]+"  # one letter is a quantity, as in a quotient
PATH: Final = re.compile(rf"(?:{NAME}/)+(?:{NAME})?|{NAME}\.py")
LINK: Final = re.compile(r"\]\(([^)#\s]+)")


def paths(page: str) -> list[str]:
    """What stands in backticks and looks like a path of the project, outside of examples."""
    return [quoted for quoted in QUOTED.findall(EXAMPLE.sub("", page)) if PATH.fullmatch(quoted)]


def exists(path: str) -> bool:
    """From the root or a package; a single name anywhere in the packages. `*` as a shell has it."""
    wanted = path.rstrip("/")
    if any(next(base.glob(wanted), None) for base in (ROOT, *PACKAGES)):
        return True
    return "/" not in wanted and any(next(base.rglob(wanted), None) for base in PACKAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [path for path in paths(text) if not exists(path)] == []
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_counts_as_a_path() -> None:
    page = (
        "`a1/`, `plan/verify.py`, `verify.py`, `ab*.py`; `1/t`, `--json`, `tcp://a/b`, `~/x`\n```\n`no/such.py`\n```\n"
    )
    assert paths(page) == ["a1/", "plan/verify.py", "verify.py", "ab*.py"]


@pytest.mark.parametrize("path", ["tests/", "plan/verify.py", "verify.py", "search/", "configs/machines/c*.toml"])
def test_what_is_there_is_found(path: str) -> None:
    assert exists(path)


@pytest.mark.parametrize("path", ["no_such/", "plan/no_such.py", "no_such.py", "no_such*.py"])
def test_what_is_not_there_is_missed(path: str) -> None:
    assert not exists(path)
