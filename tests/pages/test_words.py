"""Words that the glossary has retired are on no page, and in nothing that a command or the live page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.pages.shown import PAGES, ROOT

GLOSSARY: Final = ROOT / "docs" / "glossary.md"
SAYS: Final = ("cli", "show", "http")
"""Packages that write for people."""
RETIRED: Final = re.findall(
    r"^\| (.+?) \|", GLOSSARY.read_text(encoding="utf-8").partition("| instead of |")[2], re.MULTILINE
)
TEXTS: Final = [
    *(page for page in PAGES if page != GLOSSARY),
    *(
        path
        for name in SAYS
        for path in sorted((ROOT / "shisha_rt" / name).rglob("*"))
        if path.suffix in (".py", ".js", ".html")
    ),
]


def retired_in(text: str, word: str) -> Iterator[str]:
    """Whole words, however lines are broken."""
    pattern = r"\s+".join(map(re.escape, word.split()))
    return (match.group() for match in re.finditer(rf"(?<![\w.-]){pattern}(?![\w-])", text, re.IGNORECASE))


@pytest.mark.parametrize("word", [word for word in RETIRED if not set(word) <= set("-")])
def test_nobody_says_it_any_more(word: str) -> None:
    paths = [path for path in TEXTS if any(retired_in(path.read_text(encoding="utf-8"), word))]
    assert [str(path.relative_to(ROOT)) for path in paths] == []


def test_whole_words_are_found() -> None:
    assert list(retired_in("But\n  for the house.py, houses, a house-boat", "but for")) == ["But\n  for"]
    assert list(retired_in("The house.py, houses, a house-boat: a House.", "house")) == ["house", "House"]


def test_the_glossary_has_retired_some() -> None:
    assert {"desk", "but for"} <= set(RETIRED)
