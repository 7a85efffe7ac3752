"""How far along the network can so many places of each kind get, no stage longer than a bound?

reach(c) = max over kinds k of G_k(reach(c - e_k)), G_k(m) = max over i <= m of R_k(i), where R_k(i) is the end of the
longest stage on kind k that begins at i. What gets to a position gets to every one before it: stages may end sooner.
But a later begin may have a dearer entry or less memory to spare, so R_k is not monotone: hence the prefix maximum.

States with the same number of places in use are one array: each follows from the one before in a few array operations.
It has an axis for every kind but the last, whose number follows from the sum. Some corners of it are no states; they
hold 0, which leads to nothing. Hence positions are stored plus 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    """From n - 1 to n places in use. `low`, `shape`: which numbers of each kind but the last the array spans.

    `moves` has for each kind where its use leads to and from. `beyond`: (flat indices) the last kind used once more
    than it has places.
    """

    low: Counts
    shape: tuple[int, ...]
    moves: tuple[tuple[int, _Slices, _Slices], ...]
    beyond: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """The states of up to `most` places in use, `counts` (kinds,) there being of each kind."""

    counts: Counts
    steps: tuple[_Step, ...]


def cell_count(counts: Sequence[int], most: int) -> int:
    """Cells of all arrays of the lattice; fewest if the last kind has the most places."""
    return sum(math.prod(_span(counts, used)[1]) for used in range(most + 1))


def lattice(counts: Sequence[int], most: int) -> Lattice:
    """Up to `most` places in use, which is at most the sum of `counts`."""
    steps = [_Step(*_span(counts, 0), (), np.zeros(0, np.int64))]
    for used in range(1, most + 1):
        low, shape = _span(counts, used)
        moves = tuple((kind, *_overlap(kind, low, shape, steps[-1])) for kind in range(len(counts)))
        in_last = used - sum(np.ogrid[tuple(slice(at, at + size) for at, size in zip(low, shape, strict=True))])
        beyond = np.flatnonzero(np.broadcast_to(in_last, shape) == counts[-1] + 1)
        steps.append(_Step(low, shape, moves, beyond))
    return Lattice(tuple(counts), tuple(steps))


def _span(counts: Sequence[int], used: int) -> tuple[Counts, tuple[int, ...]]:
    """What each kind but the last can number where `used` places are in use."""
    low = tuple(max(0, used - (sum(counts) - count)) for count in counts[:-1])
    return low, tuple(min(count, used) - least + 1 for count, least in zip(counts[:-1], low, strict=True))


def _overlap(kind: int, low: Counts, shape: tuple[int, ...], before: _Step) -> tuple[_Slices, _Slices]:
    """Where one more of `kind` leads to, and where from. The ellipsis keeps an array of no axes an array."""
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
    """reach(c) for states in order of places in use, as far as it was worked out; `stages` R_k, (kinds, positions)."""

    lattice: Lattice
    stages: Ints
    arrays: tuple[Positions, ...]

    @property
    def furthest(self) -> int:
        """The furthest position that any state worked out gets to."""
        return int(self.arrays[-1].max()) - 1

    @property
    def is_whole(self) -> bool:
        """Whether that is the end of the network."""
        return bool(self.furthest == self.stages.shape[1] - 1)

    def __getitem__(self, used: Counts) -> int:
        """reach(used): a state that was worked out, no number above that of places."""
        step = sum(used)
        index = (number - least for number, least in zip(used, self.lattice.steps[step].low, strict=False))
        return int(self.arrays[step][tuple(index)]) - 1

    def furthest_states(self) -> Iterator[Counts]:
        """The states worked out last that get furthest."""
        used, last = len(self.arrays) - 1, self.arrays[-1]
        for index in np.argwhere(last == last.max()).tolist():
            numbers = [least + at for least, at in zip(self.lattice.steps[used].low, index, strict=True)]
            yield (*numbers, used - sum(numbers))

    def before(self, used: Counts) -> Iterator[tuple[int, Counts]]:
        """Yield each kind in use, and the state with one place less of the kind."""
        for kind, number in enumerate(used):
            if number:
                yield kind, (*used[:kind], number - 1, *used[kind + 1 :])

    def trace(self) -> list[KindedStage]:
        """Stages that get as far as the furthest state, in order."""
        used, end = next(self.furthest_states()), self.furthest
        kinded_stages: list[KindedStage] = []
        while end:
            used, stage = self._last_stage(used, end)
            if stage is not None:
                kinded_stages.append(stage)
                end = stage[1]
        return kinded_stages[::-1]

    def _last_stage(self, used: Counts, end: int) -> tuple[Counts, KindedStage | None]:
        """The last place of those that get to `end`; it may be one that need not be used."""
        for kind, prior in self.before(used):
            reached = self[prior]
            if reached >= end:
                return prior, None
            begins = np.flatnonzero(self.stages[kind, : reached + 1] >= end)
            if begins.size:
                return prior, (kind, int(begins[-1]), end)
        raise ValueError(f"{used} do not get to {end}")


def reach(lattice: Lattice, stages: Ints, should_stop: ShouldStop, *, to_the_end: bool = False) -> Reach | None:
    """The recursion over R_k `stages`, (kinds, positions): until a state is whole, or `to_the_end` of the lattice.

    None if `should_stop`, which is asked at each step, says so.
    """
    whole = stages.shape[1]
    # G_k, and position 0 of each row for what is no state.
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
        if not to_the_end and now.max() == whole:
            break
    return Reach(lattice, stages, tuple(arrays))
