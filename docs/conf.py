"""What `make docs` makes a site with, of the same pages that a code host shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

VERSION = Path(__file__).parent.parent / "shisha_rt" / "__init__.py"

project = "shisha-rt"
release = re.findall(r'^__version__ = "(.+)"', VERSION.read_text(encoding="utf-8"), re.MULTILINE)[0]
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4  # a heading's anchor is what a code host makes of it
highlight_language = "text"
html_theme = "furo"
html_title = f"{project} {release}"
html_show_copyright = False


def as_site(_: Sphinx, page: str, source: list[str]) -> None:
    """What a code host does by itself: pages beyond docs/ can be had, and index.md has all pages under its headings."""
    source[0] = re.sub(r"\[([^\]]+)\]\((\.\./[^)#\s]+\.md)(?:#[^)\s]*)?\)", r"{download}`\1 <\2>`", source[0])
    if page != "index":
        return
    for heading, text in re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", source[0], re.MULTILINE | re.DOTALL):
        pages = "\n".join(re.findall(r"^- \[.+?\]\((\w[\w-]*)\.md\)", text, re.MULTILINE))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", as_site)
