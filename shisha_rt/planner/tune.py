"""Shisha (2022), Algorithm 2: walk from the seed by moving one layer at a time off the slowest stage.

It trades reach for speed of convergence. Stages keep the places that the seed gave them, and only the slowest stage
gives layers away, so a few dozen of thousands of plans are tried; plans that need other places are out of reach. The
walk never steps back: it goes on from a worse plan, for alpha moves without gain, and remembers the best plan apart.

The next move depends only on the plan and its measurement. So a walk that meets a plan again repeats itself from there
on, each move counting as one without gain (gamma), until alpha is reached. Here the walk ends at once instead: the same
trials in the same order, for any alpha.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.spans import layers_in_words, starts_of
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.seed import Assign, Ranked
from shisha_rt.planner.strategies import DEFAULT_ALPHA, Balance


class Heuristic(NamedTuple):
    """How the seed gives places to stages, and how the walk chooses who takes a layer."""

    assign: Assign
    balance: Balance


HEURISTICS: Final[Mapping[str, Heuristic]] = MappingProxyType(
    {
        "H1": Heuristic("layers", "nlfep"),
        "H2": Heuristic("layers", "nfep"),
        "H3": Heuristic("weight", "nlfep"),
        "H4": Heuristic("weight", "nfep"),
        "H5": Heuristic("random", "nlfep"),
        "H6": Heuristic("random", "nfep"),
    }
)
"""Table 1."""
DEFAULT_HEURISTIC: Final = HEURISTICS["H3"]
"""Section 6.4."""

Bounds = tuple[int, ...]
"""(positions + 1,): position p has the groups from `bounds[p]` up to and without `bounds[p + 1]`."""


@dataclass(frozen=True, slots=True)
class Walk:
    """State of the walk. `at` is being measured; `best_measured`: the measurement of `best`, None before the first.

    `gamma` counts moves since the last gain. `seen`: all plans proposed, `at` included.
    """

    at: Bounds
    gamma: int
    seen: frozenset[Bounds]
    best: Bounds
    best_measured: Measurement | None


@dataclass(frozen=True, slots=True)
class ShishaTuner:
    """Algorithm 2 as a `Tuner`; made by `of`.

    A plan lists no empty stages, but a stage that the walk has emptied keeps its position, takes no time, and may be
    given layers again. So the walk counts positions, each with a fixed place (`order`). It moves groups of layers that
    no legal cut parts, instead of layers (ours), so every move is legal: group g starts at layer `starts[g]`, and
    `starts` ends with the number of layers.
    """

    order: tuple[str, ...]
    fast: frozenset[int]
    starts: tuple[int, ...]
    first: Bounds
    alpha: int
    balance: Balance

    @classmethod
    def of(
        cls,
        start: Plan,
        places: Sequence[Ranked],
        *,
        alpha: int = DEFAULT_ALPHA,
        balance: Balance = DEFAULT_HEURISTIC.balance,
        legal_cuts: Collection[int] | None = None,
        order: Sequence[str] | None = None,
    ) -> Self:
        """Make the walk of Algorithm 2 from `start`, a plan that passes `verify.py`: the seed or the live plan.

        `places` are the machine's, with their ranks. Cut c lies between layers c and c+1; None: every cut is legal.
        `order`: the place of each position, for a walk that has emptied some; by default the places of `start`.

        Raises BadInput for an alpha below 1, and ValueError for a plan that is not plain, as moves only move layers.
        """
        if not start.is_plain:
            raise ValueError(f"{start}: expected a chain, each stage on a place of its own")
        if alpha < 1:
            raise BadInput(f"alpha = {alpha}: expected at least 1", Error.WRONG_OPTION)
        starts = starts_of(start.stages[-1].last + 1, legal_cuts)
        order = tuple(start.places if order is None else order)
        fastest = min(place.rank for place in places)
        fep = {place.name for place in places if place.rank == fastest}
        return cls(
            order=order,
            fast=frozenset(position for position, name in enumerate(order) if name in fep),
            starts=starts,
            first=_bounds(start, order, starts),
            alpha=alpha,
            balance=balance,
        )

    def init(self) -> tuple[Walk, Proposal]:
        """Lines 1-3."""
        walk = Walk(at=self.first, gamma=0, seen=frozenset({self.first}), best=self.first, best_measured=None)
        return walk, Proposal(self._plan(self.first), "where the walk starts")

    def step(self, walk: Walk, observation: Measurement) -> tuple[Walk, Proposal]:
        """Lines 8-14 for the plan just measured, then lines 4-7 for the next one."""
        walk = _judged(walk, observation)
        if (why := self.why_over(walk, observation)) is not None:
            return walk, self._final(walk, why)
        times_s = self._times_s(walk.at, observation)
        source = list(self._occupied(walk.at))[observation.slowest_stage]
        target = self.target(source, times_s)
        if target is None:
            return walk, self._final(walk, "there is no other stage to move a layer to")
        to = _moved(walk.at, source, target)
        if to in walk.seen:
            return walk, self._final(walk, "the walk is back at a plan that it has measured")
        reason = self._reason(walk.at, source, target)
        return replace(walk, at=to, seen=walk.seen | {to}), Proposal(self._plan(to), reason)

    def why_over(self, walk: Walk, observation: Measurement) -> str | None:
        """Line 4: why the walk ends with the plan just measured, and judged; None: it goes on."""
        return f"no gain in {walk.gamma} moves" if walk.gamma >= self.alpha else None

    def target(self, source: int, times_s: Sequence[float]) -> int | None:
        """Line 6: the position that takes the layer: one on the fastest class (FEP); if there is none, any (ours)."""
        others = [position for position in range(len(self.order)) if position != source]
        candidates = [position for position in others if position in self.fast] or others

        def nearest_lightest(position: int) -> tuple[float, ...]:
            distance, time_s = abs(position - source), times_s[position]
            return (time_s, distance, position) if self.balance == "nlfep" else (distance, time_s, position)

        return min(candidates, key=nearest_lightest, default=None)

    def _occupied(self, bounds: Bounds) -> Iterator[int]:
        """The positions with layers, in order: those that a plan lists."""
        return (position for position in range(len(self.order)) if bounds[position] < bounds[position + 1])

    def _times_s(self, bounds: Bounds, observation: Measurement) -> list[float]:
        times_s = [0.0] * len(self.order)
        for position, service_s in zip(self._occupied(bounds), observation.service_s, strict=True):
            times_s[position] = service_s
        return times_s

    def _plan(self, bounds: Bounds) -> Plan:
        return Plan.of(
            (self.starts[bounds[position]], self.starts[bounds[position + 1]] - 1, self.order[position])
            for position in self._occupied(bounds)
        )

    def _final(self, walk: Walk, why: str) -> Proposal:
        return Proposal(self._plan(walk.best), f"best of {len(walk.seen)} plans; {why}", final=True)

    def _reason(self, bounds: Bounds, source: int, target: int) -> str:
        """Say which layers move where. If stages are in between, each of them passes a group on."""
        group = bounds[source] if target < source else bounds[source + 1] - 1
        layers = layers_in_words([(self.starts[group], self.starts[group + 1] - 1)])
        to = "to" if abs(target - source) == 1 else "towards"
        return f"{layers} from stage {source} ({self.order[source]}) {to} stage {target} ({self.order[target]})"


shisha: Final = ShishaTuner.of


def _bounds(plan: Plan, order: Sequence[str], starts: Sequence[int]) -> Bounds:
    """Bounds of a plan. An empty position lies where the stage before it ends."""
    group_at = {layer: group for group, layer in enumerate(starts)}
    end_of = {stage.place: group_at[stage.last + 1] for stage in plan.stages}
    bounds = [0]
    for name in order:
        bounds.append(end_of.get(name, bounds[-1]))
    return tuple(bounds)


def _judged(walk: Walk, observation: Measurement) -> Walk:
    """Lines 9-14. The seed's own measurement (line 2) is no move, so it does not count in gamma."""
    if walk.best_measured is None:
        return replace(walk, best_measured=observation)
    if observation.is_better_than(walk.best_measured):
        return replace(walk, gamma=0, best=walk.at, best_measured=observation)
    return replace(walk, gamma=walk.gamma + 1)


def _moved(bounds: Bounds, source: int, target: int) -> Bounds:
    """Line 7: one group leaves by the end that faces the target; the boundaries in between shift by one (ours)."""
    shifted, by = (range(target + 1, source + 1), 1) if target < source else (range(source + 1, target + 1), -1)
    return tuple(bound + by if i in shifted else bound for i, bound in enumerate(bounds))
