"""Hill Climbing (HC, and HC_s from Shisha's seed): go to the first neighbour that is better, until none is.

It always ends, but at a local optimum: also on a plateau, at a plan all of whose neighbours have the same bottleneck.

Shisha (2022) gives HC a "proximity equal to the number of layers in the network". Ours: in each step up to so many
neighbours are tried, drawn at random and each at most once; if none of them is better, the climb ends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Climb:
    """`tried` is measured now: a neighbour of the plan measured as `at` (None: the start). `untried`: the next ones."""

    at: Measurement | None
    tried: Arrangement
    untried: tuple[Arrangement, ...]


@dataclass(frozen=True, slots=True)
class HillClimbing:
    """`start`: None for a random plan."""

    space: Space
    rng: random.Random
    start: Arrangement | None = None

    def init(self) -> tuple[Climb, Proposal]:
        start = self.space.drawn(self.rng) if self.start is None else self.start
        return Climb(None, start, ()), Proposal(self.space.plan(start), "where the climb starts")

    def step(self, climb: Climb, observation: Measurement) -> tuple[Climb, Proposal | str]:
        """Climb if the neighbour just measured is better; try another one."""
        at, untried = climb.at, climb.untried
        if at is None or observation.is_better_than(at):
            at, untried = observation, self._neighbours(climb.tried)
        if not untried:
            return climb, "no neighbour tried is better"
        tried, *rest = untried
        return Climb(at, tried, tuple(rest)), Proposal(self.space.plan(tried), "a neighbour of the best plan")

    def _neighbours(self, at: Arrangement) -> tuple[Arrangement, ...]:
        neighbours = self.space.neighbours(at)
        return tuple(self.rng.sample(neighbours, min(self.space.layer_count, len(neighbours))))
