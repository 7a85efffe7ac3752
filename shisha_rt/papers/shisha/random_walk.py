"""Random Walk (RW): go on to a random neighbour, whatever was measured, until a limit is reached.

Trials of plans that cannot run take no time and so never reach a limit of time; the walk also ends after
`MOST_TIMELESS` such trials in a row.

It learns nothing, so the other searches must be better. Shisha (2022) lets it run longer than them. Ours: it starts
from a random plan, all neighbours are equally likely, and a plan is measured again when the walk returns to it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement

MOST_TIMELESS: Final = 5000


@dataclass(frozen=True, slots=True)
class Walked:
    """`at` is being measured; `timeless`: number of trials in a row just before it that took no time."""

    at: Arrangement
    timeless: int = 0


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """Starts from a random plan."""

    space: Space
    rng: random.Random

    def init(self) -> tuple[Walked, Proposal]:
        start = self.space.drawn(self.rng)
        return Walked(start), Proposal(self.space.plan(start), "where the random walk starts")

    def step(self, walk: Walked, observation: Measurement) -> tuple[Walked, Proposal | str]:
        timeless = 0 if observation.took_s else walk.timeless + 1
        if timeless >= MOST_TIMELESS:
            return walk, f"the last {timeless} trials took no time, as those of plans that cannot run do"
        neighbours = self.space.neighbours(walk.at)
        if not neighbours:
            return walk, "there is no other plan"
        to = self.rng.choice(neighbours)
        return Walked(to, timeless), Proposal(self.space.plan(to), "a random neighbour of the last plan")
