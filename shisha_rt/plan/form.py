"""How a plan is written down: for strangers in JSON, and in brief for the messages between our own processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from shisha_rt.plan.plan import Plan

Brief: TypeAlias = tuple[tuple[int, int, str], ...]
"""(first layer, last layer, place) of each stage."""


def brief(plan: Plan) -> Brief:
    """What `Plan.of` reads; placements are left out."""
    return tuple((stage.first, stage.last, stage.place) for stage in plan.stages)


def written(plan: Plan, **columns: Iterable[object]) -> list[dict[str, Any]]:
    """`stages` as `plan --json` prints them and `plan_set` takes them.

    `columns`: further keys, each with a value for every stage, such as `service_s`.
    """
    rows: Sequence[Sequence[object]] = list(zip(*columns.values(), strict=True)) if columns else [()] * len(plan.stages)
    return [
        {"first": stage.first, "last": stage.last, "places": stage.places, **dict(zip(columns, row, strict=True))}
        for stage, row in zip(plan.stages, rows, strict=True)
    ]
