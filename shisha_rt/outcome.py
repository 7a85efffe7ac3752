"""What solvers return, whatever they solve, and how they are told to stop. They raise for bad input only. Pure."""

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
    """`answer` is None if there is none or none was found, and `reason` says why, or why it is not proven the best.

    `lower_bound_s` is proven: no answer takes fewer seconds; None where nothing is. A solver never states what its
    answer takes: that is worked out again from it. `statistics`: what the method has to tell of itself.
    """

    answer: AnswerT | None
    outcome: Outcome
    lower_bound_s: float | None = None
    reason: str | None = None
    statistics: Mapping[str, float] = field(default_factory=dict)


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
