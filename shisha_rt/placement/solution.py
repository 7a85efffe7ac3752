"""What a placement solver returns: an assignment, and for some schemes its schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from shisha_rt.outcome import Solution
from shisha_rt.placement.schedule import Schedule

ANY_ORDER_BOUND: Final = "any_order_bound_s"
"""Key in `statistics`: a lower bound of the makespan of any schedule, of any form and assignment."""


@dataclass(frozen=True, slots=True)
class PlacementSolution(Solution[tuple[int, ...]]):
    """The answer is the (nodes,) `assignment` to devices; `check.cost` says what it costs.

    `schedule` is set if the solver lets branches overlap. Outcome and bound refer to what `bounds` names.
    """

    schedule: Schedule | None = None
    bounds: Literal["cost", "makespan"] = "cost"

    @property
    def assignment(self) -> tuple[int, ...] | None:
        return self.answer
