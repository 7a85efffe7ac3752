"""Words and lines of text: numbers of things, and what is cut if it is too wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def counted(number: int, what: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{number} {what}{'s' * (number != 1)}"


def clipped(text: str, style: str = "") -> Text:
    """A text that is cut at the terminal's width."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def shortened(text: str, width: int, style: str = "") -> Text:
    """A text cut to `width`, for a table: with one too wide column, it would cut all columns."""
    shown = clipped(text, style)
    shown.truncate(max(1, width), overflow="ellipsis")
    return shown
