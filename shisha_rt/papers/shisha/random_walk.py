"""Random Walk (RW): go on to any neighbour, whatever it brought; only a limit ends it.

It learns nothing, so it is what the others must beat. Shisha (2022) lets it run longer than them. Ours: it starts from
a random plan, all neighbours are as likely, and a plan that it comes back to is measured again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """Random walk whose state is its present position."""

    space: Space
    rng: random.Random

    def init(self) -> tuple[Arrangement, Proposal]:
        start = self.space.drawn(self.rng)
        return start, Proposal(self.space.plan(start), "where the random walk starts")

    def step(self, at: Arrangement, observation: Measurement) -> tuple[Arrangement, Proposal | str]:
        neighbours = self.space.neighbours(at)
        if not neighbours:
            return at, "there is no other plan"
        to = self.rng.choice(neighbours)
        return to, Proposal(self.space.plan(to), "a random neighbour of the last plan")
