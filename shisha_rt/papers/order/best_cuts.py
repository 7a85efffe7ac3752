"""The best chain whose cuts are among given downsets: the smallest bottleneck, each stage on a place of its own.

least(c, J), the smallest bottleneck of a chain that computes J, = min over kinds k and downsets I within J of
max(least(c - e_k, I), time of J without I on k), where c counts the places of each kind that may be used, and c - e_k
has one place of kind k less. Exact for these downsets, up to rounding; if all downsets are given, no chain over any
order of the layers is better. Sharing of links among places is ignored.

The time of a stage from one downset to a larger one is a difference of sums; its traffic to another host and back
follows from the tensors that are computed and read within it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.costs.room import held_within
from shisha_rt.outcome import ShouldStop
from shisha_rt.papers.order.downsets import Downset
from shisha_rt.planner.chains import place_seconds, way_s
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, stage_costs

Counts = tuple[int, ...]
"""(kinds,): number of places that may be used."""

_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class BestCuts:
    """`cuts`: the downset computed after each stage, the whole network last; `kinds`: of each stage's place.

    Both are empty if no chain is below the required bottleneck.
    """

    cuts: tuple[Downset, ...]
    kinds: tuple[int, ...]
    bottleneck_s: float


def best_cuts(
    costs: GroupCosts, downsets: Sequence[Downset], below_s: float, goal: Goal, most_work: float
) -> BestCuts | None:
    """Find the best chain with a bottleneck below `below_s`, of at most the goal's number of stages. `downsets`: empty
    one to whole, the smaller first.

    None: stopped, or more than `most_work` pairs of a stage and counts of places to consider.
    """
    most_stages = goal.most_stages or len(downsets)
    counts = tuple(min(count, most_stages) for count in costs.counts)
    if math.prod(count + 1 for count in counts) > most_work:
        return None
    cells = [cell for cell in itertools.product(*(range(count + 1) for count in counts)) if sum(cell) <= most_stages]
    stages = _stages(costs, downsets, below_s, most_work / len(cells), goal.should_stop)
    if stages is None:
        return None
    # Each cell is computed from the cells with one place less, which come before it.
    least = {cells[0]: np.full(len(downsets), np.inf)}
    least[cells[0]][0] = 0.0
    for cell in cells[1:]:
        if goal.should_stop():
            return None
        now = np.full(len(downsets), np.inf)
        for kind in _used(cell):
            before, stage = least[_with_less(cell, kind)], stages[kind]
            np.minimum(now, before, out=now)
            if stage.ends.size:
                through_s = np.maximum(before[stage.begin], stage.time_s)
                now[stage.ends] = np.minimum(now[stage.ends], np.minimum.reduceat(through_s, stage.starts))
        least[cell] = now
    best = min(cells, key=lambda cell: float(least[cell][-1]))
    bottleneck_s = float(least[best][-1])
    if not bottleneck_s < below_s:
        return BestCuts((), (), math.inf)
    ends, kinds = _traced(stages, least, best, len(downsets) - 1)
    return BestCuts(tuple(downsets[end] for end in ends), tuple(kinds), bottleneck_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Stages:
    """Stages on one kind of place that are fast enough, sorted by their ends. `begin`, `time_s` (stages,): positions of
    the downsets where they begin, and seconds. `ends`: positions at which some stage ends, ascending; `starts`: index
    of the first stage that ends at each.
    """

    begin: Ints
    time_s: Floats
    ends: Ints
    starts: Ints

    def until(self, end: int) -> slice:
        """The stages that end at a position."""
        first, past = np.searchsorted(self.ends, [end, end + 1]).tolist()
        starts = [*self.starts.tolist(), self.begin.size]
        return slice(starts[first], starts[past])


def _stages(
    costs: GroupCosts, downsets: Sequence[Downset], below_s: float, most: float, should_stop: ShouldStop
) -> list[_Stages] | None:
    """(kinds,): stages that take less than `below_s`. None: stopped by `should_stop`, or more than `most` stages."""
    known = Downsets(costs, downsets)
    quick_s = below_s - _ROUNDING * known.largest_s
    by_kind: list[list[tuple[Ints, Ints, Floats]]] = [[] for _ in costs.counts]
    count = 0
    for begin in range(len(downsets) - 1):
        if should_stop():
            return None
        behind = known.behind(begin)
        taken_s = known.seconds(begin, behind)
        for kind, options in enumerate(by_kind):
            quick = np.flatnonzero(taken_s[:, kind] < quick_s)
            options.append((np.full(quick.size, begin), behind[quick], taken_s[quick, kind]))
            count += quick.size
        if count > most:
            return None
    return [_by_end(options) for options in by_kind]


def _by_end(stages: Sequence[tuple[Ints, Ints, Floats]]) -> _Stages:
    begins, ends, time_s = (np.concatenate(column) for column in zip(*stages, strict=True))
    by_end = np.argsort(ends, kind="stable")
    at, starts = np.unique(ends[by_end], return_index=True)
    return _Stages(begins[by_end], time_s[by_end], at, starts)


def _used(cell: Counts) -> list[int]:
    return [kind for kind, count in enumerate(cell) if count]


def _with_less(cell: Counts, kind: int) -> Counts:
    return (*cell[:kind], cell[kind] - 1, *cell[kind + 1 :])


def _traced(
    stages: Sequence[_Stages], least: dict[Counts, Floats], cell: Counts, end: int
) -> tuple[list[int], list[int]]:
    """The best chain to `end`: its stages' ends and kinds. Values are recomputed in the same way, so they are equal."""
    ends: list[int] = []
    kinds: list[int] = []
    while end:
        least_s = least[cell][end]
        unused = next((kind for kind in _used(cell) if least[_with_less(cell, kind)][end] == least_s), None)
        if unused is not None:
            cell = _with_less(cell, unused)
            continue
        for kind in _used(cell):
            before, stage = least[_with_less(cell, kind)], stages[kind]
            run = stage.until(end)
            through_s = np.maximum(before[stage.begin[run]], stage.time_s[run])
            if through_s.size and through_s.min() == least_s:
                ends.append(end)
                kinds.append(kind)
                end, cell = int(stage.begin[run][through_s.argmin()]), _with_less(cell, kind)
                break
    return ends[::-1], kinds[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class GroupTraffic:
    """Tensors that groups pass on; empty if no place is on another host. `size_bytes` (tensors,).

    `made` and `read` (groups, tensors): 1 if the group computes or reads the tensor, else 0; `is_input` and `is_output`
    (tensors,): 1 for inputs and outputs of the network, else 0.
    """

    size_bytes: Floats
    made: Floats
    read: Floats
    is_input: Floats
    is_output: Floats


@dataclass(frozen=True, slots=True, eq=False)
class GroupCosts:
    """`time_s` (groups, kinds): seconds, inf if places of a kind cannot run the group.

    `weight_bytes`, `live_bytes` (groups,). `links` (kinds,): None for this host.
    """

    model: StageCosts
    time_s: Floats
    weight_bytes: Floats
    live_bytes: Floats
    links: tuple[HostLink | None, ...]
    traffic: GroupTraffic

    @property
    def places(self) -> list[list[str]]:
        """(kinds,): names, as listed."""
        return [[self.model.costs.places[at].name for at in kind.places] for kind in self.model.kinds]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(len(kind.places) for kind in self.model.kinds)

    @property
    def room_bytes(self) -> Floats:
        """(kinds,): inf without a limit."""
        return np.array([self.model.costs.places[kind.places[0]].room_bytes for kind in self.model.kinds])

    @property
    def shares_links(self) -> bool:
        """Whether several places are on one link."""
        hosts = [link.host for link in self.model.costs.link_of.values()]
        return len(set(hosts)) < len(hosts)


def group_costs(costs: Costs) -> GroupCosts:
    """Costs of runs of layers that no cut divides, from the costs of their layers."""
    model = stage_costs(costs)
    starts = model.starts[:-1]
    links = tuple(costs.link_of.get(kind.name) for kind in model.kinds)
    return GroupCosts(
        model,
        place_seconds(model, Goal(run_s=0)),
        np.add.reduceat([float(layer.weight_bytes) for layer in costs.layers], starts),
        np.maximum.reduceat([float(layer.live_bytes) for layer in costs.layers], starts),
        links,
        _traffic(costs.tensors if any(links) else (), model),
    )


def _traffic(tensors: Sequence[CostTensor], model: StageCosts) -> GroupTraffic:
    group_of = np.repeat(np.arange(model.groups), np.diff(model.starts)).tolist()
    made, read = np.zeros((model.groups, len(tensors))), np.zeros((model.groups, len(tensors)))
    for at, tensor in enumerate(tensors):
        by = AS_INPUT if tensor.made == AS_INPUT else group_of[tensor.made]
        if by != AS_INPUT:
            made[by, at] = 1
        for reader in tensor.readers:
            if reader < len(group_of) and group_of[reader] != by:
                read[group_of[reader], at] = 1
    return GroupTraffic(
        np.array([float(tensor.size_bytes) for tensor in tensors]),
        made,
        read,
        np.array([float(tensor.made == AS_INPUT) for tensor in tensors]),
        np.array([float(len(group_of) in tensor.readers) for tensor in tensors]),
    )


class Downsets:
    """Times of stages between any two of the downsets, of which smaller ones come first and the whole last."""

    def __init__(self, costs: GroupCosts, downsets: Sequence[Downset]) -> None:
        groups = len(costs.time_s)
        member = np.array([[downset >> group & 1 for group in range(groups)] for downset in downsets], np.float64)
        able = np.isfinite(costs.time_s)
        self._costs = costs
        self._member = member
        self._done_s = member @ np.where(able, costs.time_s, 0.0)
        self._unable = member @ (~able).astype(np.float64)
        self._room_bytes = costs.room_bytes
        self._linked = any(costs.links)
        traffic = costs.traffic
        self._made = member @ traffic.made
        self._read = member @ traffic.read
        self._has_readers_left = self._read < traffic.read.sum(axis=0) + traffic.is_output

    @property
    def largest_s(self) -> float:
        """The largest sum of times."""
        return float(self._done_s.max(initial=0.0))

    def behind(self, begin: int) -> Ints:
        """Positions of the downsets that properly contain this one."""
        rest = self._member[begin + 1 :]
        return np.asarray(begin + 1 + np.flatnonzero((rest >= self._member[begin]).all(axis=1)))

    def seconds(self, begin: int, ends: Ints) -> Floats:
        """(ends, kinds): seconds of a stage from `begin` to each end on places of each kind; inf if it cannot run."""
        costs, traffic = self._costs, self._costs.traffic
        time_s = self._done_s[ends] - self._done_s[begin]
        able = self._unable[ends] == self._unable[begin]
        if np.isfinite(self._room_bytes).any():
            inside = self._member[ends] - self._member[begin]
            able &= held_within(inside, costs.weight_bytes, costs.live_bytes)[:, None] <= self._room_bytes
        if self._linked:
            reads = (self._read[ends] > self._read[begin]) * np.minimum(1, self._made[begin] + traffic.is_input)
            there_bytes = reads @ traffic.size_bytes
            makes = (self._made[ends] - self._made[begin]) * self._has_readers_left[ends]
            back_bytes = makes @ traffic.size_bytes
            for kind, link in enumerate(costs.links):
                if link is not None:
                    np.maximum(time_s[:, kind], way_s(link.there, there_bytes), out=time_s[:, kind])
                    np.maximum(time_s[:, kind], way_s(link.back, back_bytes), out=time_s[:, kind])
        return np.where(able, time_s, np.inf)
