"""The moving pictures of docs/how-it-works.md: as the command writes them, and fit for an `<img>`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

import pytest

from benchmarks.pictures.draw import PICTURES, path_of
from benchmarks.report.facts import ROOT

SVG: Final = "{http://www.w3.org/2000/svg}"
DRAWN: Final = {"svg", "title", "desc", "style", "g", "rect", "circle", "path", "text"}
MOST_BYTES: Final = 60_000


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "how_devices" else ()) for name in PICTURES]
)
def test_a_picture_is_what_the_command_writes(name: str) -> None:
    """That of devices has a transformer read, which takes seconds."""
    assert path_of(name).read_text(encoding="utf-8") == str(PICTURES[name]()), "else: python -m benchmarks pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_runs_and_fetches_nothing(name: str) -> None:
    kept = path_of(name).read_text(encoding="utf-8")
    assert len(kept.encode()) < MOST_BYTES
    picture = ElementTree.fromstring(kept)
    assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= DRAWN
    attributes = {attribute for element in picture.iter() for attribute in element.keys()}  # noqa: SIM118
    assert not {attribute for attribute in attributes if "href" in attribute or attribute.startswith("on")}
    assert not re.search(r"url\(|@import|<!", kept)
    assert picture.get("role") == "img"
    assert all(picture.findtext(SVG + tag) for tag in ("title", "desc"))
    assert "prefers-reduced-motion" in kept
    assert "prefers-color-scheme" in kept


def test_the_page_shows_every_picture() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    assert re.findall(r"\(pictures/(\w+)\.svg\)", page) == list(PICTURES)
