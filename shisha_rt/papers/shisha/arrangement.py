"""The plans that the rivals look at, and the moves that lead from one to the next.

Shisha (2022) says that SA and HC change the configuration, cuts and places both, but not by which moves. Ours are the
smallest that reach every plan: one layer crosses one boundary, or two places change roles. A stage that has lost all
its layers keeps its position, as in Shisha's own walk, so every plan of up to N stages lies within reach.
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
    """Position p holds the groups from `bounds[p]` up to and without `bounds[p + 1]`, on place `order[p]` (an index).

    `bounds` is (positions + 1,) and never falls; `order` is (places,), and its entries past the positions are unused.
    """

    bounds: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """All plans of 1 to `stage_count` stages; made by `space_of`.

    Group g holds the layers from `starts[g]` up to `starts[g + 1]`, which no legal cut parts. `kinds` says which
    places are alike (equal numbers, counted from 0): no search tries one in place of the other.
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
        """Arrangement of a plan of at most `stage_count` stages: positions left over come last and are empty.

        Raises ValueError for a plan that is not plain.
        """
        if not plan.is_plain:
            raise ValueError(f"{plan}: expected a chain, each stage on a place of its own")
        group_at = {start: group for group, start in enumerate(self.starts)}
        ends = [group_at[stage.last + 1] for stage in plan.stages]
        empty = [self.group_count] * (self.stage_count - len(ends))
        used = [self.places.index(name) for name in plan.places]
        unused = [place for place in range(len(self.places)) if place not in used]
        return Arrangement((0, *ends, *empty), (*used, *unused))

    def drawn(self, rng: random.Random) -> Arrangement:
        """Any plan of exactly `stage_count` stages, all as likely: the paper's pipelines use every place."""
        cuts = sorted(rng.sample(range(1, self.group_count), self.stage_count - 1))
        return Arrangement((0, *cuts, self.group_count), tuple(rng.sample(range(len(self.places)), len(self.places))))

    def neighbours(self, at: Arrangement) -> list[Arrangement]:
        """One move away; each is another plan. At most 2 (N - 1) boundary moves and N (P - 1) exchanges of places."""
        return [*self._shifted(at), *self._exchanged(at)]

    def _shifted(self, at: Arrangement) -> Iterator[Arrangement]:
        """The group beside a boundary crosses it."""
        bounds = at.bounds
        for i in range(1, self.stage_count):
            if bounds[i - 1] < bounds[i]:
                yield replace(at, bounds=(*bounds[:i], bounds[i] - 1, *bounds[i + 1 :]))
            if bounds[i] < bounds[i + 1]:
                yield replace(at, bounds=(*bounds[:i], bounds[i] + 1, *bounds[i + 1 :]))

    def _exchanged(self, at: Arrangement) -> Iterator[Arrangement]:
        """A stage and another, or a stage and nobody, change places of unlike kinds."""
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
    """The space over places (names) and legal cuts; cut c lies between layers c and c+1, None: every cut is legal.

    `kinds` has the places (indices) that are taken for the same together; None: no two are.
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
