"""How many places a chain needs to reach each position of the network, with no stage slower than a bound.

need(j, c) = min, over stages (i, j) and shares s that keep the bound, of need(i, c - s) + s_last: the places of the
last kind that a chain up to position j needs if it may use c places of the other kinds. Of a stage's shares that keep
the bound only the minimal ones count, which do not keep it with one place less.

If a longer stage never takes less time, a chain that reaches a position also reaches every earlier one, as its stages
may end sooner. So of all stages on a share that end at a position, the one that begins first is enough. With links that
does not hold, as a later layer may have less to send back than an earlier one: then all begins count.

If the number of stages is limited, there is a table for each number of stages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shisha_rt.arrays import Bools, Ints
from shisha_rt.outcome import ShouldStop
from shisha_rt.planner.chains import TOLERANCE, Chains, SharedStage, windows

Numbers = npt.NDArray[np.int32]
_NEVER: Final = 1 << 30
"""More than there can be places; int32 still holds its sum with a number of places."""


class _Ending(NamedTuple):
    """The stages that end at one position, (stages,) each: shares, ascending, and begins."""

    shares: Ints
    begins: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """`ending` (positions,): the stages that may be used, by their ends.

    `tables`: each (positions, places + 1 of each kind but the last), by the most stages used; a single one if stages
    are not limited.
    """

    chains: Chains
    ending: list[_Ending]
    tables: tuple[Numbers, ...]

    @property
    def furthest(self) -> int:
        """The last position that a chain reaches."""
        corner: tuple[Any, ...] = (slice(None), *self.chains.counts[:-1])
        return int(np.flatnonzero(self.tables[-1][corner] <= self.chains.counts[-1])[-1])

    @property
    def is_whole(self) -> bool:
        """Whether the furthest position is the end of the network."""
        return self.furthest == self.chains.model.groups

    def trace(self) -> list[SharedStage]:
        """Stages of a chain to the end of the network, in order."""
        shares = self.chains.shares
        table, end, free = len(self.tables) - 1, self.chains.model.groups, np.array(self.chains.counts[:-1], np.int64)
        shared_stages: list[SharedStage] = []
        while end:
            before = self.tables[max(0, table - 1)]
            places, begins = self.ending[end]
            fitting = (shares[places, :-1] <= free).all(axis=1)
            places, begins = places[fitting], begins[fitting]
            left = tuple((free - shares[places, :-1]).T)
            least = int((before[(begins, *left)] + shares[places, -1]).argmin())
            share = int(places[least])
            shared_stages.append(SharedStage(share, int(begins[least]), end))
            end, free, table = shared_stages[-1].begin, free - shares[share, :-1], table - 1
        return shared_stages[::-1]


def need(chains: Chains, bound_s: float, should_stop: ShouldStop) -> Need | None:
    """Compute the recursion for a bound. None: stopped by `should_stop`, which is called at each position."""
    shares, positions = chains.shares, chains.model.groups + 1
    fits = np.isfinite(chains.period_s) if math.isinf(bound_s) else chains.period_s <= bound_s * (1 + TOLERANCE)
    ending = _by_end(_firsts(chains, fits) if chains.grows else _leasts(chains, fits))
    heads = shares[:, :-1]
    own = shares[:, -1].astype(np.int32)
    table = np.full((positions, *(count + 1 for count in chains.counts[:-1])), _NEVER, np.int32)
    table[0] = 0
    slices = [windows(head, chains.counts[:-1]) for head in heads.tolist()]
    tables = [table]
    for _ in range(chains.most_stages if chains.layered else 1):
        before = tables[-1]
        now = before.copy() if chains.layered else before
        for end in range(1, positions):
            if should_stop():
                return None
            to, (rows, begins) = now[end, ...], ending[end]
            # Shares are in ascending order, so those with the same head (all kinds but the last) are neighbours.
            parts = np.flatnonzero((heads[rows[1:]] != heads[rows[:-1]]).any(axis=1)) + 1
            for begun, past in pairwise([0, *parts.tolist(), len(rows)]) if rows.size else ():
                source, beyond = slices[rows[begun]]
                if past > begun + 1:
                    places = own[rows[begun:past]].reshape(-1, *(1 for _ in source))
                    needed = (before[(begins[begun:past], *source)] + places).min(axis=0)
                else:
                    needed = before[(begins[begun], *source)] + own[rows[begun]]
                np.minimum(to[beyond], needed, out=to[beyond])
        if chains.layered:
            tables.append(now)
    return Need(chains, ending, tuple(tables))


def _firsts(chains: Chains, fits: Bools) -> Bools:
    """(shares, ends, begins): of the stages that keep the bound, the one that begins first, for each share and end.

    Shares are left out on which that stage begins no sooner than it could with one place less.
    """
    positions = fits.shape[1]
    first = np.where(fits.any(axis=2), fits.argmax(axis=2), positions)
    padded = np.vstack([first, np.full(positions, positions)])
    first = np.where(first < padded[chains.before].min(axis=1), first, positions)
    return np.asarray(np.arange(positions) == first[..., None])


def _leasts(chains: Chains, fits: Bools) -> Bools:
    """(shares, ends, begins): stages that keep the bound, and do not keep it with one place less."""
    padded = np.concatenate([fits, np.zeros_like(fits[:1])])
    return np.asarray(fits & ~padded[chains.before].any(axis=1))


def _by_end(stages: Bools) -> list[_Ending]:
    """(positions,): the stages of (shares, ends, begins), by their ends."""
    ends, shares, begins = np.nonzero(stages.transpose(1, 0, 2))
    bounds = np.searchsorted(ends, np.arange(stages.shape[1] + 1)).tolist()
    return [_Ending(shares[first:past], begins[first:past]) for first, past in pairwise(bounds)]
