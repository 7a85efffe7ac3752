"""Text that is cut if it is too wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def clipped(text: str, style: str = "") -> Text:
    """A text that is cut at the terminal's width."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def shortened(text: str, width: int, style: str = "") -> Text:
    """A text cut to `width`, for a table: with one too wide column, it would cut all columns."""
    shown = clipped(text, style)
    shown.truncate(max(1, width), overflow="ellipsis")
    return shown
