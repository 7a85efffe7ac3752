"""Text that is cut where there is no room for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def clipped(text: str, style: str = "") -> Text:
    """One that is cut where the terminal ends."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def shortened(text: str, width: int, style: str = "") -> Text:
    """Shorten a text for a table, which would cut every column where one is too wide."""
    shown = clipped(text, style)
    shown.truncate(max(1, width), overflow="ellipsis")
    return shown
