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

Numbers = npt.NDArray[np.int32]
_NEVER: Final = 1 << 30
"""More than there are places; twice that is still a number."""


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
    first = fits.argmax(axis=2)
    first[~np.take_along_axis(fits, first[..., None], axis=2)[..., 0]] = positions
    # A share that begins no sooner than one with a place less is of no use.
    padded = np.vstack([first, np.full(positions, positions)])
    first = np.where(first < padded[chains.before].min(axis=1), first, positions)
    heads = [tuple(share) for share in shares[:, :-1].tolist()]
    own = shares[:, -1].astype(np.int32)
    table = np.full((positions, *(count + 1 for count in chains.counts[:-1])), _NEVER, np.int32)
    table[0] = 0
    windows = {head: _windows(head, chains.counts) for head in set(heads)}
    tables = [table]
    for _ in range(chains.most_stages if chains.layered else 1):
        before = tables[-1]
        now = before.copy() if chains.layered else before
        for end in range(1, positions):
            if should_stop():
                return None
            to, begins = now[end, ...], first[:, end]
            # Shares are in ascending order, so those of the same head are neighbours.
            for head, its in groupby(np.flatnonzero(begins < end).tolist(), key=heads.__getitem__):
                source, beyond = windows[head]
                one, *more = its
                if more:
                    alike = [one, *more]
                    needed = (before[(begins[alike], *source)] + own[alike].reshape(-1, *(1 for _ in head))).min(axis=0)
                else:
                    needed = before[(begins[one], *source)] + own[one]
                np.minimum(to[beyond], needed, out=to[beyond])
        if chains.layered:
            tables.append(now)
    return Need(chains, first, tuple(tables))


def _windows(head: tuple[int, ...], counts: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Where a share leads from, and where to: so many places more of each kind but the last."""
    source = tuple(slice(0, count + 1 - more) for count, more in zip(counts, head, strict=False))
    return source, (*(slice(more, None) for more in head), ...)
