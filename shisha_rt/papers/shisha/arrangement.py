"""The plans that the rivals consider, and the moves between them.

Shisha (2022) says that SA and HC change the configuration, both cuts and places, but not by which moves. Ours are the
smallest that reach every plan: one layer crosses one boundary, or two places are exchanged. A stage without layers
keeps its position, as in Shisha's own walk, so every plan of up to N stages can be reached.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.spans import starts_of
from shisha_rt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Position p has the groups from `bounds[p]` up to, but without, `bounds[p + 1]`, on place `order[p]` (index).

    `bounds` is (positions + 1,) and never falls; `order` is (places,); places after the positions are unused.
    """

    bounds: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """All plans of 1 to `stage_count` stages; made by `space_of`.

    Group g has the layers from `starts[g]` up to, but not including, `starts[g + 1]`; no legal cut divides it. `kinds`
    (places,): equal numbers for places that are alike, which no search exchanges.
    """

    starts: tuple[int, ...]
    places: tuple[str, ...]
    kinds: tuple[int, ...]
    stage_count: int

    @property
    def layer_count(self) -> int:
        return self.starts[-1]

    @property
    def group_count(self) -> int:
        return len(self.starts) - 1

    def plan(self, at: Arrangement) -> Plan:
        return Plan.of(
            (self.starts[first], self.starts[end] - 1, self.places[place])
            for (first, end), place in zip(pairwise(at.bounds), at.order, strict=False)
            if first < end
        )

    def arrangement(self, plan: Plan) -> Arrangement:
        """Arrangement of a plan, further positions empty and last. Raises ValueError for a plan that is not plain."""
        if not plan.is_plain:
            raise ValueError(f"{plan}: expected a chain, each stage on a place of its own")
        group_at = {start: group for group, start in enumerate(self.starts)}
        ends = [group_at[stage.last + 1] for stage in plan.stages]
        empty = [self.group_count] * (self.stage_count - len(ends))
        used = [self.places.index(name) for name in plan.places]
        unused = [place for place in range(len(self.places)) if place not in used]
        return Arrangement((0, *ends, *empty), (*used, *unused))

    def drawn(self, rng: random.Random) -> Arrangement:
        """A random plan of exactly `stage_count` stages, uniformly: the paper's pipelines use every place."""
        cuts = sorted(rng.sample(range(1, self.group_count), self.stage_count - 1))
        return Arrangement((0, *cuts, self.group_count), tuple(rng.sample(range(len(self.places)), len(self.places))))

    def neighbours(self, at: Arrangement) -> list[Arrangement]:
        """Arrangements one move away, each another plan: at most 2 (N - 1) boundary moves and N (P - 1) exchanges."""
        return [*self._shifted(at), *self._exchanged(at)]

    def _shifted(self, at: Arrangement) -> Iterator[Arrangement]:
        """Yield the arrangements in which a group next to a boundary has crossed it."""
        bounds = at.bounds
        for i in range(1, self.stage_count):
            if bounds[i - 1] < bounds[i]:
                yield replace(at, bounds=(*bounds[:i], bounds[i] - 1, *bounds[i + 1 :]))
            if bounds[i] < bounds[i + 1]:
                yield replace(at, bounds=(*bounds[:i], bounds[i] + 1, *bounds[i + 1 :]))

    def _exchanged(self, at: Arrangement) -> Iterator[Arrangement]:
        """Yield the arrangements in which a stage has exchanged its place for one of another kind, used or unused."""
        serves = [first < end for first, end in pairwise(at.bounds)] + [False] * (len(at.order) - self.stage_count)
        for i in range(len(at.order)):
            for j in range(i + 1, len(at.order)):
                left, other = at.order[i], at.order[j]
                if (serves[i] or serves[j]) and self.kinds[left] != self.kinds[other]:
                    order = list(at.order)
                    order[i], order[j] = other, left
                    yield replace(at, order=tuple(order))


def space_of(
    layer_count: int,
    places: Sequence[str],
    *,
    stage_count: int,
    legal_cuts: Collection[int] | None = None,
    kinds: Sequence[Sequence[int]] | None = None,
) -> Space:
    """The space over places (names) and legal cuts; cut c is between layers c and c+1; None: every cut is legal.

    `kinds`: places (indices) that are alike, one sequence for each kind; None: no two places are alike.
    Raises BadInput for a stage count that layers, legal cuts or places do not allow.
    """
    starts = starts_of(layer_count, legal_cuts)
    cut_count = len(starts) - 2
    most = min(len(places), cut_count + 1)
    if not 1 <= stage_count <= most:
        raise BadInput(
            f"{stage_count} stages: expected 1 to {most}, for {len(places)} places and {cut_count} cuts",
            Error.SPACE_TOO_LARGE,
        )
    every = range(len(places))
    number_of = {place: number for number, kind in enumerate(kinds or zip(every)) for place in kind}
    return Space(
        starts=starts,
        places=tuple(places),
        kinds=tuple(number_of[place] for place in every),
        stage_count=stage_count,
    )
