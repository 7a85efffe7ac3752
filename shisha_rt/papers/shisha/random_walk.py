"""Random Walk (RW): go on to a random neighbour, whatever was measured, until a limit is reached.

It learns nothing, so the other searches must be better. Shisha (2022) lets it run longer than them. Ours: it starts
from a random plan, all neighbours are equally likely, and a plan is measured again when the walk returns to it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """Starts from a random plan."""

    space: Space
    rng: random.Random

    def init(self) -> tuple[Arrangement, Proposal]:
        start = self.space.drawn(self.rng)
        return start, Proposal(self.space.plan(start), "where the random walk starts")

    def step(self, at: Arrangement, _: Measurement) -> tuple[Arrangement, Proposal | str]:
        neighbours = self.space.neighbours(at)
        if not neighbours:
            return at, "there is no other plan"
        to = self.rng.choice(neighbours)
        return to, Proposal(self.space.plan(to), "a random neighbour of the last plan")
