"""The best chain whose cuts are among given downsets: the smallest bottleneck, each stage on a place of its own.

least(c, J), the smallest bottleneck of a chain that computes J, = min over kinds k and downsets I within J of
max(least(c - e_k, I), time of J without I on k), where c counts the places of each kind that may be used, and c - e_k
has one place of kind k less. Exact for these downsets, up to rounding; if all downsets are given, no chain over any
order of the layers is better. Sharing of links among places is ignored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.outcome import ShouldStop
from shisha_rt.papers.order.downsets import Downset
from shisha_rt.papers.order.group_costs import Downsets, GroupCosts
from shisha_rt.planner.goal import Goal

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
    """The kinds of which places may be used."""
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
