"""Exhaustive Search (ES): every plan of up to N stages, once.

With an evaluator without noise it finds the best plan, with as many trials as there are plans. Of places of one kind
(`Space.kinds`) only the first free one is tried, as the others are equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Enumerated:
    """The last plan tried: stage s > 0 starts at group `cuts[s - 1]`, stage s is on a place of kind `kinds[s]`.

    `kinds` is (places,): first those of stages, then those of unused places, ascending.
    """

    cuts: tuple[int, ...]
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Plans of fewer stages first, then lexicographically by cuts, then by kinds."""

    space: Space

    def init(self) -> tuple[Enumerated, Proposal]:
        first = Enumerated((), tuple(sorted(self.space.kinds)))
        return first, self._proposal(first)

    def step(self, state: Enumerated, observation: Measurement) -> tuple[Enumerated, Proposal | str]:
        following = self._following(state)
        return (state, "all plans are tried") if following is None else (following, self._proposal(following))

    def _following(self, state: Enumerated) -> Enumerated | None:
        cuts, kinds = state.cuts, state.kinds
        permuted = next_permutation(kinds, len(cuts) + 1)
        if permuted is not None:
            return Enumerated(cuts, permuted)
        in_order = tuple(sorted(kinds))
        combined = next_combination(cuts, self.space.group_count)
        if combined is not None:
            return Enumerated(combined, in_order)
        if len(cuts) + 1 < self.space.stage_count:
            return Enumerated(tuple(range(1, len(cuts) + 2)), in_order)
        return None

    def _proposal(self, state: Enumerated) -> Proposal:
        kinds = self.space.kinds
        free = {kind: iter([place for place, other in enumerate(kinds) if other == kind]) for kind in kinds}
        order = tuple(next(free[kind]) for kind in state.kinds)
        return Proposal(self.space.plan(Arrangement((0, *state.cuts, self.space.group_count), order)), "the next plan")


def trial_count(space: Space) -> int:
    """How many plans Exhaustive Search tries: for n stages, the number of cuts times that of sequences of n places."""
    lined_up = _lined_up(space.kinds)
    return sum(math.comb(space.group_count - 1, n - 1) * lined_up[n] for n in range(1, space.stage_count + 1))


def _lined_up(kinds: Sequence[int]) -> list[int]:
    """(places + 1,): number of sequences of n of the places, if places of one kind are not distinguished."""
    ways = [1]
    for alike in Counter(kinds).values():
        longest = len(ways) - 1 + alike
        ways = [
            sum(math.comb(n, j) * ways[n - j] for j in range(min(alike, n) + 1) if n - j < len(ways))
            for n in range(longest + 1)
        ]
    return ways


def next_combination(chosen: Sequence[int], end: int) -> tuple[int, ...] | None:
    """The next combination of ascending numbers from 1 to `end` - 1 in lexicographic order; None after the last."""
    count = len(chosen)
    for i in reversed(range(count)):
        if chosen[i] < end - (count - i):
            return (*chosen[:i], *range(chosen[i] + 1, chosen[i] + 1 + count - i))
    return None


def next_permutation(line: Sequence[int], count: int) -> tuple[int, ...] | None:
    """The next permutation of numbers, some equal, of which only the first `count` matter; None after the last.

    The rest is ascending, before and after: reversed it is its last permutation, so the next one of the whole sequence
    (Knuth, The Art of Computer Programming 4A, 7.2.1.2, Algorithm L) changes the first `count` numbers.
    """
    order = [*line[:count], *reversed(line[count:])]
    i = next((i for i in reversed(range(len(order) - 1)) if order[i] < order[i + 1]), None)
    if i is None:
        return None
    j = next(j for j in reversed(range(len(order))) if order[j] > order[i])
    order[i], order[j] = order[j], order[i]
    return (*order[: i + 1], *reversed(order[i + 1 :]))
