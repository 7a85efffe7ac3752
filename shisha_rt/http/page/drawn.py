"""What the page draws of a status beyond its raw values: derived values, worded as in `top`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shisha_rt.http.page.lanes import drawing
from shisha_rt.plan.form import plan_of
from shisha_rt.show.event_words import in_words
from shisha_rt.show.picture import after_in_words, stage_in_words
from shisha_rt.show.stages import pool_lines, stage_boxes
from shisha_rt.show.why import why_lines

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
    ways = drawing([(), *([previous + 1 for previous in stage.after] or [0] for stage in plan.stages), ends or [0]])
    used = set(plan.places)
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
        "lanes": ways.lanes,
        "ways": ways.ways,
        "shared": pool_lines(stages),
        "why": why_lines(status),
        "unused": [place["name"] for place in status["places"] if place["name"] not in used],
    }


def event_line(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event and its line of text, without fields that are too long for the feed."""
    return {key: value for key, value in event.items() if key not in _LEFT_OUT} | {"words": in_words(event)}
