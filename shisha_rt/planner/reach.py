"""How far along the network can given numbers of places get, if no stage may take longer than a bound?

With c_k places of each kind k in use, reach(c) = max over k of G_k(reach(c - e_k)), G_k(m) = max over i <= m of R_k(i),
where R_k(i) is the end of the longest stage on kind k that begins at i. Places that can reach a position can reach
every earlier one, as stages may end sooner. But a stage that begins later may cost more to enter or need more memory,
so R_k is not monotone: hence the prefix maximum.

States with the same number of places in use are one array: each follows from the one before in a few array operations.
An array has an axis for every kind but the last, whose count follows from the total. Some of its cells are no states:
they hold 0, and nothing is reached from them. That is why positions are stored plus 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shisha_rt.arrays import Ints
from shisha_rt.outcome import ShouldStop
from shisha_rt.planner.kinds import KindedStage

Positions = npt.NDArray[Any]
"""Positions plus 1, in the smallest type that holds them."""
Counts = tuple[int, ...]
"""(kinds,): places in use."""
_Slices = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """From n - 1 to n places in use. `low`, `shape`: the least count, and the number of counts, of each kind but the
    last.

    `moves`: for each kind the slices that one more place of it leads to, and from. `beyond`: flat indices of cells with
    one place of the last kind too many.
    """

    low: Counts
    shape: tuple[int, ...]
    moves: tuple[tuple[int, _Slices, _Slices], ...]
    beyond: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """All states with up to len(steps) - 1 places in use."""

    steps: tuple[_Step, ...]


def cell_count(counts: Sequence[int], most: int) -> int:
    """Cells of all arrays of the lattice; fewest if the last kind has the most places."""
    return sum(math.prod(_span(counts, used)[1]) for used in range(most + 1))


def lattice(counts: Sequence[int], most: int) -> Lattice:
    """The lattice of up to `most` places in use; `most` is at most the sum of `counts`."""
    steps = [_Step(*_span(counts, 0), (), np.zeros(0, np.int64))]
    for used in range(1, most + 1):
        low, shape = _span(counts, used)
        moves = tuple((kind, *_overlap(kind, low, shape, steps[-1])) for kind in range(len(counts)))
        in_last = used - sum(np.ogrid[tuple(slice(at, at + size) for at, size in zip(low, shape, strict=True))])
        beyond = np.flatnonzero(np.broadcast_to(in_last, shape) == counts[-1] + 1)
        steps.append(_Step(low, shape, moves, beyond))
    return Lattice(tuple(steps))


def _span(counts: Sequence[int], used: int) -> tuple[Counts, tuple[int, ...]]:
    """Least count, and number of counts, of each kind but the last when `used` places are in use."""
    every = sum(counts)
    low = tuple(max(0, used - (every - count)) for count in counts[:-1])
    return low, tuple(min(count, used) - least + 1 for count, least in zip(counts[:-1], low, strict=True))


def _overlap(kind: int, low: Counts, shape: tuple[int, ...], before: _Step) -> tuple[_Slices, _Slices]:
    """The slices that one more place of `kind` leads to, and from. The ellipsis keeps a 0-d array an array."""
    to: list[Any] = []
    source: list[Any] = []
    for axis, (least, size) in enumerate(zip(low, shape, strict=True)):
        more = int(axis == kind)
        begin = max(least, before.low[axis] + more)
        end = min(least + size, before.low[axis] + before.shape[axis] + more)
        to.append(slice(begin - least, end - least))
        source.append(slice(begin - more - before.low[axis], end - more - before.low[axis]))
    return (*to, ...), (*source, ...)


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """`arrays`: reach(c) for each number of places in use, as far as computed; `stages`: R_k (kinds, positions)."""

    lattice: Lattice
    stages: Ints
    arrays: tuple[Positions, ...]

    @property
    def furthest(self) -> int:
        """The furthest position that any state worked out gets to."""
        return int(self.arrays[-1].max()) - 1

    @property
    def is_whole(self) -> bool:
        """Whether the furthest position is the end of the network."""
        return bool(self.furthest == self.stages.shape[1] - 1)

    def __getitem__(self, used: Counts) -> int:
        """reach(used), of a computed state whose counts are within the lattice's."""
        step = sum(used)
        index = (number - least for number, least in zip(used, self.lattice.steps[step].low, strict=False))
        return int(self.arrays[step][tuple(index)]) - 1

    def trace(self) -> list[KindedStage]:
        """Stages that get as far as the furthest state, in order."""
        used, end = self._furthest_state(), self.furthest
        kinded_stages: list[KindedStage] = []
        while end:
            used, stage = self._last_stage(used, end)
            if stage is not None:
                kinded_stages.append(stage)
                end = stage[1]
        return kinded_stages[::-1]

    def _furthest_state(self) -> Counts:
        """The first state of the last array that gets furthest."""
        used, last = len(self.arrays) - 1, self.arrays[-1]
        index = np.unravel_index(last.argmax(), last.shape)
        numbers = [least + int(at) for least, at in zip(self.lattice.steps[used].low, index, strict=True)]
        return (*numbers, used - sum(numbers))

    def _last_stage(self, used: Counts, end: int) -> tuple[Counts, KindedStage | None]:
        """The state without its last place, and the stage to `end` that it had; None if that place is not needed."""
        for kind, number in enumerate(used):
            if not number:
                continue
            prior = (*used[:kind], number - 1, *used[kind + 1 :])
            reached = self[prior]
            if reached >= end:
                return prior, None
            begins = np.flatnonzero(self.stages[kind, : reached + 1] >= end)
            if begins.size:
                return prior, (kind, int(begins[-1]), end)
        raise ValueError(f"{used} do not get to {end}")


def reach(lattice: Lattice, stages: Ints, should_stop: ShouldStop) -> Reach | None:
    """Compute reach from R_k, `stages` (kinds, positions), until a state covers the network; None if stopped."""
    whole = stages.shape[1]
    # G_k plus 1; the 0 in front of each row is for cells that are no states.
    longest = np.maximum.accumulate(stages, axis=1) + 1
    tables = np.pad(longest, ((0, 0), (1, 0))).astype(np.min_scalar_type(whole))
    arrays = [np.ones(lattice.steps[0].shape, tables.dtype)]
    for step in lattice.steps[1:]:
        if should_stop():
            return None
        before = arrays[-1].astype(np.intp)
        now = np.zeros(step.shape, tables.dtype)
        for kind, to, source in step.moves:
            np.maximum(now[to], tables[kind].take(before[source], mode="clip"), out=now[to])
            if kind == len(tables) - 1:
                now.reshape(-1)[step.beyond] = 0
        arrays.append(now)
        if now.max() == whole:
            break
    return Reach(lattice, stages, tuple(arrays))
