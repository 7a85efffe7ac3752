"""What all solvers return, and how they are told to stop. They raise for bad input only. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

AnswerT = TypeVar("AnswerT")


class Outcome(StrEnum):
    """`LIMIT`: stopped by a limit without a solution. `FEASIBLE`: a solution, not shown to be the best."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Solution(Generic[AnswerT]):
    """`answer` is None if no solution exists or none was found. `reason`: why there is none, or no proof of optimality.

    `lower_bound_s` is proven: no answer takes fewer seconds; None if nothing is proven. A solver never states the cost
    of its answer: that is computed from the answer. `statistics`: figures about the method's work.
    """

    answer: AnswerT | None
    outcome: Outcome
    lower_bound_s: float | None = None
    reason: str | None = None
    statistics: Mapping[str, float] = field(default_factory=dict)


HEURISTIC: Final = "a heuristic, which proves nothing"
STOPPED: Final = "stopped by the time limit"

ShouldStop = Callable[[], bool]
"""Called many times a second; once it returns True, a solver ends with what it has."""

LeftSeconds = Callable[[], float]
"""Seconds until the time limit; inf without one."""


def never() -> bool:
    """A `ShouldStop` without a time limit."""
    return False


def forever() -> float:
    """`LeftSeconds` without a time limit."""
    return math.inf


def within(left_s: LeftSeconds, share: float = 1.0) -> ShouldStop:
    """A `ShouldStop` that is True once `share` of the seconds that are left now are over."""
    now_s = left_s()
    end_s = (1 - share) * now_s if now_s < math.inf else 0.0
    return lambda: left_s() <= end_s
