"""Random Walk (RW): go on to any neighbour, whatever it brought; only a limit ends it.

Nearly: trials of plans that cannot run take no time, so no limit of time is reached by them; it gives up after
`MOST_TIMELESS` such trials on end.

It learns nothing, so it is what the others must beat. Shisha (2022) lets it run longer than them. Ours: it starts from
a random plan, all neighbours are as likely, and a plan that it comes back to is measured again.
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
    """`at` is being measured; `timeless`: the trials on end before it that took no time."""

    at: Arrangement
    timeless: int = 0


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """Starts anywhere, and goes anywhere."""

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
