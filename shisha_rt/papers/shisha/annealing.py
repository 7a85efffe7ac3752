"""Simulated Annealing (SA, and SA_s from Shisha's seed): worse plans are accepted, too, while the temperature is high.

It spends trials on leaving local optima, most of them at the start, when it accepts almost any move.

The cooling that Shisha (2022) prints, "0.9^-5 - 0.01", cannot be used. Ours: a move that increases the bottleneck by
the fraction d is accepted with probability exp(-d / T); T falls from 1 to 0.01, times 0.9 after every move: 44 moves.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement

HOT: Final = 1.0
COLD: Final = 0.01
COOLING: Final = 0.9


@dataclass(frozen=True, slots=True)
class Annealed:
    """`tried` is measured now, as move `moves` (0: the start) from `at`; `at_s`: bottleneck of `at`; None: unknown."""

    at: Arrangement
    at_s: float | None
    tried: Arrangement
    moves: int


@dataclass(frozen=True, slots=True)
class Annealing:
    """`start`: None for a random plan."""

    space: Space
    rng: random.Random
    start: Arrangement | None = None

    def init(self) -> tuple[Annealed, Proposal]:
        start = self.space.drawn(self.rng) if self.start is None else self.start
        return Annealed(start, None, start, moves=0), Proposal(self.space.plan(start), "where annealing starts")

    def step(self, state: Annealed, observation: Measurement) -> tuple[Annealed, Proposal | str]:
        """Accept or reject the move just measured; then draw the next one, a little colder."""
        if state.at_s is None or self._follows(state.at_s, observation.bottleneck_s, _temperature(state.moves)):
            state = replace(state, at=state.tried, at_s=observation.bottleneck_s)
        moves = state.moves + 1
        temperature = _temperature(moves)
        if temperature < COLD:
            return state, f"the temperature is down to {COLD:g}"
        neighbours = self.space.neighbours(state.at)
        if not neighbours:
            return state, "there is no other plan"
        tried = self.rng.choice(neighbours)
        return replace(state, tried=tried, moves=moves), Proposal(
            self.space.plan(tried), f"a random move at temperature {temperature:.3g}"
        )

    def _follows(self, at_s: float, tried_s: float, temperature: float) -> bool:
        """Whether to accept a move: always if it is no worse, also from a plan that cannot run; else by chance."""
        if tried_s <= at_s:
            return True
        worse_by = (tried_s - at_s) / at_s if at_s else math.inf
        return self.rng.random() < math.exp(-worse_by / temperature)


def _temperature(move: int) -> float:
    """Temperature of a move; the first is number 1."""
    return HOT * COOLING ** (move - 1)
