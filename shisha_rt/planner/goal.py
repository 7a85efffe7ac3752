"""What a plan is for, and limits of the search for it: the same for all planners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from shisha_rt.outcome import ShouldStop, never
from shisha_rt.plan.rate import Objective

DEFAULT_LATENCY_STATES: Final = 1 << 24
"""Of eight bytes each."""
PART_OF_TARGET: Final = 0.9
"""Share of a daemon's latency target that predicted latency may take: hand-overs between stages come on top."""
MOST_CELLS: Final = 1 << 28
"""Limit of the cells of a search's tables; most cells take one or two bytes."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to plan for. `replicate`: a stage may have several teams, and teams several places; else each stage has a
    place of its own.

    `objective` "latency": a plan of the least latency, and among those one of the smallest bottleneck; "energy": the
    least energy a frame, with a latency of at most `latency_s`. `most_stages` None: no limit. `run_s`: the longest that
    a batch may take; 0: no batches. `latency_states` limits the search for the least latency among plans of the
    smallest bottleneck: if it needs more states, there is none; 0: none in any case. `most_cells` limits the cells of
    a search's tables: if all places would need more, only some are used. `should_stop` is called many times a second:
    once it is true, the answer is the best plan so far, with the bounds proven so far.

    Raises ValueError if `most_stages` is below 1.
    """

    replicate: bool = False
    objective: Objective = "throughput"
    most_stages: int | None = None
    run_s: float = math.inf
    latency_s: float = math.inf
    latency_states: int = DEFAULT_LATENCY_STATES
    most_cells: int = MOST_CELLS
    should_stop: ShouldStop = never

    def __post_init__(self) -> None:
        if self.most_stages is not None and self.most_stages < 1:
            raise ValueError(f"most_stages = {self.most_stages}, expected at least 1")
