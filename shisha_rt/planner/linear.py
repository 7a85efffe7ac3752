"""A small linear program, solved by the simplex method on a dense table: tens of rows, hundreds of columns.

The origin has to be feasible, so no first phase is needed. Prices are not exact: a bound by prices has to be computed
from the prices themselves.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats

_ZERO: Final = 1e-11
_STALLED: Final = 20
_PIVOTS_A_ROW: Final = 50


class Optimum(NamedTuple):
    """`at` (columns,): the x of the largest value; `prices` (rows,): gain for one more of each limit, at least 0."""

    value: float
    at: Floats
    prices: Floats


def maximize(gain: Floats, use: Floats, limit: Floats) -> Optimum:
    """Maximise gain @ x over x >= 0 with use @ x <= limit; all limits are at least 0.

    The column of the largest gain enters; after some pivots without progress the first one (Bland's rule, which ends).
    Past a limit of pivots, the answer is feasible but perhaps not the largest. Raises ValueError if it is unbounded.
    """
    rows, columns = use.shape
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns] = use
    table[:rows, columns:-1] = np.eye(rows)
    table[:rows, -1] = limit
    table[rows, :columns] = -gain
    basis = np.arange(columns, columns + rows)
    stalled = 0
    for _ in range(_PIVOTS_A_ROW * (rows + 1)):
        reduced = table[rows, :-1]
        wanted = np.flatnonzero(reduced < -_ZERO)
        if not wanted.size:
            break
        enters = int(wanted[0]) if stalled > _STALLED else int(reduced.argmin())
        column = table[:rows, enters]
        can = np.flatnonzero(column > _ZERO)
        if not can.size:
            raise ValueError(f"column {enters}: it may grow without end, expected a limit")
        ratios = table[can, -1] / column[can]
        least = ratios.min()
        tied = can[ratios <= least + _ZERO]
        leaves = int(tied[basis[tied].argmin()])
        stalled = stalled + 1 if least <= _ZERO else 0
        table[leaves] /= table[leaves, enters]
        others = table[:, enters].copy()
        others[leaves] = 0.0
        table -= np.outer(others, table[leaves])
        basis[leaves] = enters
    basic = np.zeros(columns + rows)
    basic[basis] = np.maximum(table[:rows, -1], 0.0)
    return Optimum(float(gain @ basic[:columns]), basic[:columns], np.maximum(table[rows, columns:-1], 0.0))
