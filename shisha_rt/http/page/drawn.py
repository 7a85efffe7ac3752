"""What the page draws of a status beyond its raw values: derived values, worded as in `top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shisha_rt.plan.form import plan_of
from shisha_rt.show.event_words import in_words
from shisha_rt.show.picture import after_in_words, stage_in_words
from shisha_rt.show.stages import pool_lines, stage_boxes, unused_places
from shisha_rt.show.why import why_lines

MOST_LANES: Final = 8
"""Graphs that need more share the last one: the page says in words what each stage comes after."""
_LEFT_OUT: Final = ("stages",)


def drawn(status: Mapping[str, Any]) -> dict[str, Any]:
    """`stages`: for each a description, `bar` (its share, 0 to 1, of the slowest pool's time for a frame) and `teams`.
    `shared`: a line for each pool of several stages. `lanes`: the columns of the input, of each stage and of the
    output; `ways`: edges between these, as (from, to, column). `why`: what a slow frame waited for.
    """
    stages = status["plan"]["stages"]
    plan = plan_of(stages)
    boxes = stage_boxes(stages, status["bottleneck_stage"])
    passed = {previous for stage in plan.stages for previous in stage.after}
    ends = [index + 1 for index in range(len(plan.stages)) if index not in passed]
    after = [(), *([previous + 1 for previous in stage.after] or [0] for stage in plan.stages), ends or [0]]
    lanes, ways = lanes_and_ways(after)
    return {
        "chain": plan.is_chain,
        "stages": [
            {
                "work": stage_in_words(stage),
                "after": "" if plan.is_chain else after_in_words(stage.after),
                "time": box.label,
                "bar": round(min(1.0, box.bar), 4),
                "slowest": box.is_slowest,
                "notes": box.notes,
                "teams": stage.teams,
            }
            for stage, box in zip(plan.stages, boxes, strict=True)
        ],
        "lanes": lanes,
        "ways": ways,
        "shared": pool_lines(stages),
        "why": why_lines(status),
        "unused": unused_places(plan, (place["name"] for place in status["places"])),
    }


def event_line(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event and its line of text, without fields that are too long for the feed."""
    return {key: value for key, value in event.items() if key not in _LEFT_OUT} | {"words": in_words(event)}


def lanes_and_ways(after: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The column of each stage, each of which comes after earlier ones; and the edges: from, to, column in between.

    A chain is one straight line.
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
    return lanes, ways


def _free(taken: list[int], since: int) -> int:
    """The first column that has nothing below the row `since`."""
    free_lane = next((lane for lane, row in enumerate(taken) if row <= since), None)
    if free_lane is None and len(taken) < MOST_LANES:
        taken.append(since)
        free_lane = len(taken) - 1
    return MOST_LANES - 1 if free_lane is None else free_lane
