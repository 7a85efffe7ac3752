"""What a placement solver returns (R7), whatever its method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from shisha_rt.outcome import Outcome
from shisha_rt.placement.schedule import Schedule

HEURISTIC: Final = "a heuristic, which proves nothing"
STOPPED: Final = "stopped by the time limit"

ShouldStop = Callable[[], bool]
"""Asked many times a second; once it says so, a solver ends with what it has."""


LeftSeconds = Callable[[], float]
"""Until the time limit; inf without one."""


def never() -> bool:
    """A `ShouldStop` without a time limit."""
    return False


def forever() -> float:
    """`LeftSeconds` without a time limit."""
    return math.inf


def within(left_s: LeftSeconds, share: float = 1.0) -> ShouldStop:
    """Once so large a share of what is left now is over."""
    now_s = left_s()
    end_s = (1 - share) * now_s if now_s < math.inf else 0.0
    return lambda: left_s() <= end_s


@dataclass(frozen=True, slots=True)
class Solution:
    """`assignment` is (nodes,) devices, None without one. `lower_bound_s` is proven, None where nothing is.

    A solver never states a cost: `check.cost` recomputes it from the assignment. `statistics` holds what a method
    has to tell of itself, such as table sizes. `reason` says why the assignment is not proven to be the best.
    `schedule` is there where a solver lets branches overlap. Outcome and bound are of what `bounds` names.
    """

    assignment: tuple[int, ...] | None
    outcome: Outcome
    lower_bound_s: float | None = None
    statistics: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    schedule: Schedule | None = None
    bounds: Literal["cost", "makespan"] = "cost"
