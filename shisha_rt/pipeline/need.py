"""How many places does it take to get so far along the network, no stage slower than a bound?

need(j, c) = min over shares s of need(first(s, j), c - s) + s_last: the places of the last kind that a chain up to
position j needs, c (kinds,) counting those of all others that it may use. What gets to a position gets to every one
before it, as stages may end sooner. So of all stages on a share the one that begins first is enough: first(s, j).

Where stages are limited, there is such a table for each number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shisha_rt.arrays import Ints
from shisha_rt.pipeline.chains import TOLERANCE, Chains, SharedStage

_NEVER: Final = 1 << 30
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """`first` (shares, positions): where the longest stage on a share begins that ends there; past the end: none.

    `tables`, for up to so many stages, or one for any number: (positions, places + 1 of each kind but the last).
    """

    chains: Chains
    first: Ints
    tables: tuple[Numbers, ...]

    @property
    def furthest(self) -> int:
        """The last position that can be got to."""
        corner: tuple[Any, ...] = (slice(None), *self.chains.counts[:-1])
        return int(np.flatnonzero(self.tables[-1][corner] <= self.chains.counts[-1])[-1])

    @property
    def is_whole(self) -> bool:
        """Whether that is the end of the network."""
        return self.furthest == self.chains.model.groups

    def trace(self) -> list[SharedStage]:
        """Stages that get to the end of the network, in order."""
        shares = self.chains.shares
        layer, end, free = len(self.tables) - 1, self.chains.model.groups, np.array(self.chains.counts[:-1], np.int64)
        found: list[SharedStage] = []
        while end:
            before = self.tables[max(0, layer - 1)]
            fitting = np.flatnonzero((self.first[:, end] < end) & (shares[:, :-1] <= free).all(axis=1))
            left = tuple((free - shares[fitting, :-1]).T)
            needed = before[(self.first[fitting, end], *left)] + shares[fitting, -1]
            share = int(fitting[needed.argmin()])
            found.append(SharedStage(share, int(self.first[share, end]), end))
            end, free, layer = found[-1].begin, free - shares[share, :-1], layer - 1
        return found[::-1]


def need_cells(chains: Chains) -> int:
    """Of all tables."""
    tables = chains.most_stages + 1 if chains.layered else 1
    return tables * (chains.model.groups + 1) * math.prod(count + 1 for count in chains.counts[:-1])


def need(chains: Chains, bound_s: float, should_stop: Callable[[], bool]) -> Need | None:
    """The recursion under a bound. None if `should_stop`, which is asked at each position, says so."""
    shares, positions = chains.shares, chains.model.groups + 1
    fits = chains.period_s <= bound_s * (1 + TOLERANCE)
    if math.isinf(bound_s):
        fits = np.isfinite(chains.period_s)
    first = np.where(fits.any(axis=2), fits.argmax(axis=2), positions)
    # A share that begins no sooner than one with a place less is of no use.
    padded = np.vstack([first, np.full(positions, positions)])
    first = np.where(first < padded[chains.before].min(axis=1), first, positions)
    heads = [tuple(share) for share in shares[:, :-1].tolist()]
    table = np.full((positions, *(count + 1 for count in chains.counts[:-1])), _NEVER, np.int32)
    table[0] = 0
    tables = [table]
    for _ in range(chains.most_stages if chains.layered else 1):
        before = tables[-1]
        now = before.copy() if chains.layered else before
        for end in range(1, positions):
            if should_stop():
                return None
            # Shares are in ascending order, so those of the same head are neighbours.
            useful = np.flatnonzero(first[:, end] < end).tolist()
            for head, its in groupby(useful, key=heads.__getitem__):
                _lower(now[end, ...], before, first[:, end], shares[:, -1], (head, list(its)))
        if chains.layered:
            tables.append(now)
    return Need(chains, first, tuple(tables))


def _lower(
    to: Numbers, before: Numbers, first: Ints, last_kind: Ints, group: tuple[tuple[int, ...], list[int]]
) -> None:
    """`to` by what it takes if the last stage has one of a group of shares that differ in the last kind alone."""
    head, its = group
    source: tuple[Any, ...] = tuple(slice(0, size - less) for size, less in zip(to.shape, head, strict=True))
    beyond: tuple[Any, ...] = (*(slice(less, None) for less in head), ...)
    target = to[beyond]
    if len(its) == 1:
        needed = before[(first[its[0]], *source)] + last_kind[its[0]]
    else:
        own = last_kind[its].reshape(-1, *(1 for _ in head))
        needed = (before[(first[its], *source)] + own).min(axis=0)
    np.minimum(target, needed, out=target, casting="unsafe")
