"""Lanes: the columns in which the page draws a plan's stages, and the edges between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_LANES: Final = 8
"""Graphs that need more share the last one: the page says in words what each stage comes after."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """`lanes` (stages,): the column of each. `ways`: edges, as (from stage, to later stage, column in between)."""

    lanes: tuple[int, ...]
    ways: tuple[tuple[int, int, int], ...]


def drawing(after: Sequence[Sequence[int]]) -> Drawing:
    """Draw stages, each of which comes after earlier ones, as lanes. A chain is one straight line.

    A stage continues the column of a stage it comes after, if nothing has been drawn below that; else it takes the
    first free column.
    """
    lanes: list[int] = []
    ways: list[tuple[int, int, int]] = []
    taken: list[int] = []  # by column, the last row that something is drawn in
    for index, own in enumerate(after):
        known = sorted(own)
        lane = next((lanes[stage] for stage in known if taken[lanes[stage]] <= stage), None)
        if lane is None:
            lane = _free(taken, min(known, default=-1))
        for stage in known:
            between = next((column for column in (lanes[stage], lane) if taken[column] <= stage), None)
            if between is None:
                between = _free(taken, stage)
            if index - stage > 1 or between == lane:
                taken[between] = max(taken[between], index - 1)
            ways.append((stage, index, between))
        taken[lane] = index
        lanes.append(lane)
    return Drawing(tuple(lanes), tuple(ways))


def _free(taken: list[int], since: int) -> int:
    """The first column that has nothing below the row `since`."""
    free_lane = next((lane for lane, row in enumerate(taken) if row <= since), None)
    if free_lane is None and len(taken) < MOST_LANES:
        taken.append(since)
        free_lane = len(taken) - 1
    return MOST_LANES - 1 if free_lane is None else free_lane
