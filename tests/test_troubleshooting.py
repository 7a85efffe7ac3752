"""The page on troubleshooting is the list of the kinds of errors, and what it quotes are messages of the sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.errors import Error

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED: Final = re.findall(r"^- `(.+)`$", PAGE, re.MULTILINE)
DIFFERS: Final = "…"
LEAST_FIXED: Final = 12  # characters, without which a quotation would fit anything
CONTINUED: Final = re.compile(r'"\n +f?"')


def test_it_says_of_each_kind_what_it_means_and_its_code() -> None:
    listed = re.findall(r"^### `(\w+)`\n\n((?:.+\n)+)", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in listed) == sorted(Error)
    codes = {name: re.findall(r"\(`([A-Z_]+)`\)\n\Z", text) for name, text in listed}
    assert codes == {kind.value: [kind.code.value] for kind in Error}
    assert [name for name, text in listed if len(text.split()) < 6] == []


def test_the_names_are_those_of_the_code() -> None:
    assert [kind for kind in Error if kind.value != kind.name.lower()] == []


@cache
def lines() -> list[str]:
    """Of the sources, where a text that goes on in the next line stands in one."""
    files = [file for package in ("shisha_rt", "stages") for file in (ROOT / package).rglob("*.py")]
    return [line for file in files for line in CONTINUED.sub("", file.read_text(encoding="utf-8")).splitlines()]


def is_a_message(quoted: str) -> bool:
    """Whether its fixed parts stand in one line of the sources, in their order; a file may be named elsewhere."""
    fixed = [part.strip() for part in quoted.removeprefix(f"{DIFFERS}: ").split(DIFFERS)]
    longest, in_order = max(fixed, key=len), re.compile(".*".join(map(re.escape, fixed)))
    return sum(map(len, fixed)) >= LEAST_FIXED and any(in_order.search(line) for line in lines() if longest in line)


@pytest.mark.parametrize("quoted", QUOTED)
def test_what_is_quoted_is_a_message_of_the_sources(quoted: str) -> None:
    assert is_a_message(quoted)


def test_what_is_said_of_each_follows_it() -> None:
    bullets = re.findall(r"^- .*\n+.*", PAGE, re.MULTILINE)
    assert len(QUOTED) == len(set(QUOTED)) == len(bullets) >= 30
    assert [bullet for bullet in bullets if not re.fullmatch(r"- `.+`\n\n  [A-Z`].+", bullet)] == []


@pytest.mark.parametrize("quoted", ["no daemon at …; expected another …", "…: … expected …", "the worker … hangs: no"])
def test_what_nobody_says_is_found_out(quoted: str) -> None:
    assert not is_a_message(quoted)
