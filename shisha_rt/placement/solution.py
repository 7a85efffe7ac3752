"""What a placement solver returns (R7), whatever its method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shisha_rt.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Solution:
    """`assignment` is (nodes,) devices, None without one. `lower_bound_s` is proven, None where nothing is.

    A solver never states a cost: `check.cost` recomputes it from the assignment. `statistics` holds what a method
    has to tell of itself, such as table sizes.
    """

    assignment: tuple[int, ...] | None
    outcome: Outcome
    lower_bound_s: float | None = None
    statistics: Mapping[str, float] = field(default_factory=dict)
