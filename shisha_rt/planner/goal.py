"""What a plan is wanted for, and how far planners may look for it: the same for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from shisha_rt.outcome import ShouldStop, never
from shisha_rt.plan.rate import Objective

DEFAULT_LATENCY_STATES: Final = 1000
PART_OF_TARGET: Final = 0.9
"""Of a daemon's target, what costs may tell of a frame by itself: what passes between stages comes on top."""
MOST_CELLS: Final = 1 << 28
"""Of one or two bytes each, mostly."""


@dataclass(frozen=True, slots=True)
class Goal:
    """With `replicate`, a stage may have several teams, and teams several places; else each has a place of its own.

    `objective` "latency": a plan of the least latency, and of those one of the smallest bottleneck; "energy": one whose
    frames take the least energy, while none by itself takes longer than `latency_s`. `most_stages` None: as many as
    there may be. `run_s`: no run of several frames takes longer. `latency_states` limits the search for low
    latency in plain chains; where more would be needed, `latency_proven` is false; 0: do without. `most_cells` limits
    the search itself, which may have no more of them by its own measure: beyond it, some of the places are used.
    `should_stop` is asked many times a second: once it says so, the answer is the best plan until then, with what is
    proven of it.

    Raises ValueError for fewer than 1 as `most_stages`.
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
