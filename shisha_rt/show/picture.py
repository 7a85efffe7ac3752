"""Pictures of a plan in plain characters: the same in a terminal, a log and a file.

A stage is a box with the names of its places, and a bar. The slowest stage, which limits throughput, has heavy lines
and is marked as slowest. The boxes of a chain stand side by side if the width allows, else one below the other. In a
plan with branches each box has its stage's number and the numbers of the stages that it waits for; stages that may run
at the same time stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, cycle, islice, repeat
from string import ascii_lowercase
from typing import Final

from shisha_rt.model.spans import layers_in_words, runs_of
from shisha_rt.plan.engine import DEFAULT_ENGINE
from shisha_rt.plan.plan import Stage, Team, behind, team_name

_NARROWEST: Final = 26
_WIDEST: Final = 40
_ARROW: Final = " ─▶ "
_GAP: Final = "  "
_STEP: Final = "  │"
_SEE_MARKS: Final = "  ┆"  # dependencies that lines cannot show: the boxes' texts name them
_LIGHT: Final = "┌─┐│└┘"
_HEAVY: Final = "┏━┓┃┗┛"
_SLOWEST: Final = "slowest"
_MARKS: Final = "█▓▒░"


@dataclass(frozen=True, slots=True)
class Box:
    """`bar` is the share of a full bar, 0 to 1, and stands behind `label`; `notes` are lines below it.

    `after`: the boxes, by index, that a frame must pass before this one; None: the previous box, if there is one.
    """

    title: str
    text: str
    label: str
    bar: float
    is_slowest: bool = False
    notes: tuple[str, ...] = ()
    after: tuple[int, ...] | None = None


def draw(boxes: Sequence[Box], width: int) -> str:
    """The boxes in the order in which a frame passes them, in at most `width` columns if possible."""
    if not boxes:
        return ""
    after = [behind(index) if box.after is None else box.after for index, box in enumerate(boxes)]
    if any(own != behind(index) for index, own in enumerate(after)):
        return _by_depth(boxes, after, width)
    beside = (width - len(_ARROW) * (len(boxes) - 1)) // len(boxes)
    if beside >= _NARROWEST:
        return _side_by_side(boxes, min(beside, _WIDEST), _ARROW)
    below = max(_NARROWEST, min(width, _WIDEST))
    return f"\n{_STEP}\n".join(_side_by_side([box], below) for box in boxes)


# --- words ----------------------------------------------------------------------------------------------------


def milliseconds(seconds: float) -> str:
    """A time with three digits, or all digits before the decimal point."""
    return f"{seconds * 1e3:#.3g} ms" if seconds < 0.09995 else f"{seconds * 1e3:.0f} ms"


def millijoules(joules: float) -> str:
    """An energy with three digits, or all digits before the decimal point."""
    return f"{1e3 * joules:.3g} mJ" if joules < 0.9995 else f"{1e3 * joules:.0f} mJ"


def stage_in_words(stage: Stage) -> str:
    """`layers 3-5, 9`, `layer 3 (16/64 channels)`, `layers 3-9 (joins 2)`, `layers 0-25, openvino`, `layers 0-25 by 8`.

    The last is a batch of 8.
    """
    together = f" by {stage.batch}" if stage.batch > 1 else ""
    engine = f", {stage.engine}" if stage.engine != DEFAULT_ENGINE else ""
    work, split = f"{layers_in_words(stage.work)}{together}{engine}", stage.split
    if split is None:
        return work
    if split.joins:
        return f"{work} (joins {len(split.shares)})"
    return f"{work} ({split.shares[split.part]}/{sum(split.shares)} {split.axis})"


def teams_in_words(teams: Sequence[Team]) -> str:
    """`core0`, `x2: core0, core1` (copies), `2 together: core0+core1` (a team), `x2 of 2: ...` (copies that are teams).

    The numbers come first, as the names may be cut.
    """
    sizes = {len(team) for team in teams}
    names = ", ".join(map(team_name, teams))
    if len(teams) == 1:
        return names if sizes == {1} else f"{len(teams[0])} together: {names}"
    return f"x{len(teams)}: {names}" if sizes == {1} or len(sizes) > 1 else f"x{len(teams)} of {sizes.pop()}: {names}"


def after_in_words(after: Sequence[int]) -> str:
    """`after 0, 2`, `after 1-3, 5`; `input` for a stage that needs nothing else."""
    numbers = ", ".join(
        f"{first}-{last}" if last - first > 1 else ", ".join(map(str, range(first, last + 1)))
        for first, last in runs_of(sorted(after))
    )
    return f"after {numbers}" if numbers else "input"


# --- plans in a line ------------------------------------------------------------------------------------------


def marks(places: Sequence[str]) -> dict[str, str]:
    """A mark for each place, for `ribbon`; the first places get the darkest."""
    return dict(zip(places, chain(_MARKS, ascii_lowercase, repeat("?")), strict=False))


def ribbon(stretches: Sequence[tuple[str, int]], width: int = 32) -> str:
    """One line for a whole plan, in at most `width` columns: a mark for each layer, each stage's marks in turn."""
    scale = min(1.0, width / sum(layers for _, layers in stretches))
    ends = [round(scale * end) for end in accumulate(layers for _, layers in stretches)]
    starts = [0, *ends[:-1]]
    drawn = (islice(cycle(own), end - start) for (own, _), start, end in zip(stretches, starts, ends, strict=True))
    return "".join(chain.from_iterable(drawn))


# --- boxes ----------------------------------------------------------------------------------------------------


def _by_depth(boxes: Sequence[Box], after: Sequence[tuple[int, ...]], width: int) -> str:
    """Draw each box below all boxes that it waits for, boxes of one depth side by side, in several rows if many."""
    depths: list[int] = []
    for own in after:
        depths.append(1 + max((depths[previous] for previous in own), default=-1))
    levels = [[index for index, depth in enumerate(depths) if depth == level] for level in range(max(depths) + 1)]
    most = max(1, (width + len(_GAP)) // (_NARROWEST + len(_GAP)))
    columns = min(most, max(map(len, levels)))
    each = max(_NARROWEST, min(_WIDEST, (width - len(_GAP) * (columns - 1)) // columns))
    parts: list[str] = []
    for number, level in enumerate(levels):
        if number:
            above = levels[number - 1]
            meets_all = all(set(after[index]) == set(above) for index in level)
            is_one_row = max(len(above), len(level)) <= columns
            parts.append(_joint(len(above), len(level), each) if meets_all and is_one_row else _SEE_MARKS)
        rows = (level[start : start + columns] for start in range(0, len(level), columns))
        parts += (_side_by_side([_marked(i, boxes[i], after[i]) for i in row], each) for row in rows)
    return "\n".join(parts)


def _marked(index: int, box: Box, after: tuple[int, ...]) -> Box:
    return replace(box, title=f"{index} · {box.title}", text=f"{after_in_words(after)} · {box.text}")


def _joint(above: int, below: int, each: int) -> str:
    """The line between two rows of boxes if each box below waits for every box above."""
    last = max(above, below) - 1
    if not last:
        return _STEP
    knots = []
    for column in range(last + 1):
        from_above, to_below = column < above, column < below
        both, upper, lower = "├  " if not column else "┤┘┐" if column == last else "┼┴┬"
        knots.append(both if from_above and to_below else upper if from_above else lower)
    return "  " + ("─" * (each + len(_GAP) - 1)).join(knots)


def _side_by_side(boxes: Sequence[Box], width: int, arrow: str = _GAP) -> str:
    notes = max(len(box.notes) for box in boxes)
    rows = zip(*(_lines(box, width, notes) for box in boxes), strict=True)
    return "\n".join((arrow if i == 1 else " " * len(arrow)).join(row) for i, row in enumerate(rows))


def _lines(box: Box, width: int, notes: int) -> list[str]:
    """The lines of a box, padded to `notes` lines of notes."""
    top_left, line, top_right, side, bottom_left, bottom_right = _HEAVY if box.is_slowest else _LIGHT
    inner = width - 4
    mark = f" {_SLOWEST} " if box.is_slowest else ""
    title = cut(box.title, inner - len(mark) - 1)
    bar = "█" * round(min(1.0, box.bar) * (inner - len(box.label) - 1))
    texts = [box.text, f"{box.label} {bar}", *box.notes, *[""] * (notes - len(box.notes))]
    return [
        f"{top_left} {title} {line * (width - 4 - len(title) - len(mark))}{mark}{top_right}",
        *(f"{side} {cut(text, inner):<{inner}} {side}" for text in texts),
        f"{bottom_left}{line * (width - 2)}{bottom_right}",
    ]


def cut(text: str, width: int) -> str:
    """`text`, with an ellipsis at its end if it is wider."""
    return text if len(text) <= width else text[: width - 1] + "…"
