"""Pictures of a pipeline in plain characters: the same in a terminal, a log and a file.

A stage is a box with the name of its place, and a bar. The slowest stage, on which everything waits, has heavy lines
and says so. Boxes stand side by side where there is room, else one below the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from string import ascii_lowercase
from typing import Final

_NARROWEST: Final = 26
_WIDEST: Final = 40
_ARROW: Final = " ─▶ "
_LIGHT: Final = "┌─┐│└┘"
_HEAVY: Final = "┏━┓┃┗┛"
_SLOWEST: Final = "slowest"
_MARKS: Final = "█▓▒░"


@dataclass(frozen=True, slots=True)
class Box:
    """`bar` is the part of a full bar, 0 to 1, and stands behind `label`."""

    title: str
    text: str
    label: str
    bar: float
    is_slowest: bool = False


def draw(boxes: Sequence[Box], width: int) -> str:
    """The boxes in the order in which a frame passes them, in at most `width` columns (if that can be done)."""
    if not boxes:
        return ""
    beside = (width - len(_ARROW) * (len(boxes) - 1)) // len(boxes)
    if beside >= _NARROWEST:
        return _side_by_side(boxes, min(beside, _WIDEST))
    below = max(_NARROWEST, min(width, _WIDEST))
    return "\n  │\n".join("\n".join(_lines(box, below)) for box in boxes)


def span(first: int, last: int) -> str:
    """`layers 3-5`; `last` is inclusive."""
    return f"layers {first}-{last}" if last > first else f"layer {first}"


def marks(places: Sequence[str]) -> dict[str, str]:
    """A mark for each place, for `ribbon`; the first places get the darkest."""
    return dict(zip(places, chain(_MARKS, ascii_lowercase, repeat("?")), strict=False))


def ribbon(stretches: Sequence[tuple[str, int]], width: int = 32) -> str:
    """One line for a whole plan, in at most `width` columns: for each stage, its mark as often as it has layers."""
    scale = min(1.0, width / sum(layers for _, layers in stretches))
    ends = [round(scale * end) for end in accumulate(layers for _, layers in stretches)]
    starts = [0, *ends[:-1]]
    return "".join(mark * (end - start) for (mark, _), start, end in zip(stretches, starts, ends, strict=True))


def _side_by_side(boxes: Sequence[Box], width: int) -> str:
    columns = [_lines(box, width) for box in boxes]
    rows = zip(*columns, strict=True)
    return "\n".join((_ARROW if i == 1 else " " * len(_ARROW)).join(row) for i, row in enumerate(rows))


def _lines(box: Box, width: int) -> list[str]:
    top_left, line, top_right, side, bottom_left, bottom_right = _HEAVY if box.is_slowest else _LIGHT
    inner = width - 4
    mark = f" {_SLOWEST} " if box.is_slowest else ""
    title = _cut(box.title, inner - len(mark) - 1)
    bar = "█" * round(min(1.0, box.bar) * (inner - len(box.label) - 1))
    return [
        f"{top_left} {title} {line * (width - 4 - len(title) - len(mark))}{mark}{top_right}",
        f"{side} {_cut(box.text, inner):<{inner}} {side}",
        f"{side} {_cut(f'{box.label} {bar}', inner):<{inner}} {side}",
        f"{bottom_left}{line * (width - 2)}{bottom_right}",
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
