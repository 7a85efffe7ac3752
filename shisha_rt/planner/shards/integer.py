"""The exact best split of one layer in whole blocks, over any number of devices: one after the other, or side by side.

Dynamic programming over devices: the least for the first d of them with n blocks is the least over j of that for the
first d - 1 with n - j and the d-th with j, the two added or the larger taken. Devices times blocks squared, and nothing
is asked of the costs: they need not grow with a share, let alone be posynomials. What is left over of a layer that is
no multiple of its block goes to any one device, beside its blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.planner.strategies import Execution

_SAME: Final = 1 + 1e-9
"""Costs that differ by less are the same, added up in another order."""


@dataclass(frozen=True, slots=True)
class BlockShares:
    """`blocks`: (devices,), 0 is no part in it; `odd`: who has what is left over, too, None if nothing is.

    `value`: what that costs. `alone`: the device that is best for the whole layer by itself, None if none has room,
    and `alone_value` what it costs there, inf if none. A split that is no better than that is refused: it is then
    all on that device.
    """

    blocks: tuple[int, ...]
    odd: int | None
    value: float
    alone: int | None
    alone_value: float

    @property
    def is_split(self) -> bool:
        return sum(n > 0 or d == self.odd for d, n in enumerate(self.blocks)) > 1

    def units(self, block: int, units: int) -> tuple[int, ...]:
        """(devices,): of a layer with so many."""
        return tuple(block * n + (units % block if d == self.odd else 0) for d, n in enumerate(self.blocks))


def best_blocks(
    tables: Sequence[Sequence[float]] | Floats,
    execution: Execution,
    odd: Sequence[Sequence[float]] | Floats | None = None,
) -> BlockShares | None:
    """`tables`: (devices, blocks + 1), what so many blocks cost on each device, inf where it has no room for them.

    `odd`: the same with what is left over beside them. Side by side, the least total is chosen among splits that end as
    early. None: no shares fit.
    """
    whole = np.asarray(tables, dtype=float)
    lanes: tuple[Floats, ...] = (whole,) if odd is None else (whole, np.asarray(odd, dtype=float))
    alone_values = lanes[-1][:, -1]
    alone = int(np.argmin(alone_values))
    alone_value = float(alone_values[alone])
    if execution == "parallel":
        lanes = _within(lanes, min(alone_value, _most(lanes)))
        lanes = _within(lanes, float(least_by_blocks(lanes, execution)[-1][-1]))
    units = _chosen(_within(lanes, math.inf if execution == "parallel" else alone_value))
    if units is not None:
        blocks, odd_at = units
        taken = [float(lanes[d == odd_at][d, n]) for d, n in enumerate(blocks)]
        value = max(taken) if execution == "parallel" else math.fsum(taken)
        if value * _SAME < alone_value:
            return BlockShares(blocks, odd_at, value, alone if math.isfinite(alone_value) else None, alone_value)
    if not math.isfinite(alone_value):
        return None
    blocks = tuple(whole.shape[1] - 1 if d == alone else 0 for d in range(len(whole)))
    return BlockShares(blocks, None if odd is None else alone, alone_value, alone, alone_value)


def _most(lanes: Sequence[Floats]) -> float:
    """Side by side, some split takes no longer: what is left over given to anyone, and no gaps in a device's shares.

    It is the least where costs grow with a share and nothing is left over.
    """
    blocks = lanes[0].shape[1] - 1
    rising = np.maximum.accumulate(np.maximum.reduce(lanes), axis=1)
    times = np.unique(rising)
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        room = sum(max(0, int(np.searchsorted(row, times[middle], side="right")) - 1) for row in rising)
        low, high = (low, middle) if room >= blocks else (middle + 1, high)
    return float(times[low])


def _within(lanes: Sequence[Floats], most: float) -> tuple[Floats, ...]:
    """Without shares that cost more."""
    return tuple(np.where(table <= most * _SAME, table, np.inf) for table in lanes)


def least_by_blocks(lanes: Sequence[Floats], execution: Execution) -> list[Floats]:
    """(blocks + 1,): what each number of blocks costs at least on devices with these tables (devices, blocks + 1).

    In the second lane with what is left over, where the tables have one; no devices can have no more than nothing.
    """
    return _least(lanes, together_of(execution))[-1]


Together = Callable[[Floats, Floats], Floats]


def together_of(execution: Execution) -> Together:
    """What devices take in all."""
    return np.maximum if execution == "parallel" else np.add


def _least(lanes: Sequence[Floats], together: Together) -> list[list[Floats]]:
    """Of the first d devices, d = 0 on: what n blocks cost at least; in the second lane with what is left over."""
    none = np.full(lanes[0].shape[1], np.inf)
    nothing = none.copy()
    nothing[0] = 0.0
    tables = [[nothing, none][: len(lanes)]]
    for d in range(len(lanes[0])):
        before = tables[-1]
        row = [_convolved(before[0], lanes[0][d], together)]
        if len(lanes) > 1:
            by_others = _convolved(before[1], lanes[0][d], together)
            row.append(np.minimum(by_others, _convolved(before[0], lanes[1][d], together)))
        tables.append(row)
    return tables


def _convolved(before: Floats, table: Floats, together: Together) -> Floats:
    """(blocks + 1,): for each n the least over j of `before[n - j]` together with `table[j]`."""
    possible = np.flatnonzero(table < np.inf)
    if not len(possible):
        return np.full(len(before), np.inf)
    size = int(possible[-1]) + 1
    padded = np.concatenate((np.full(size - 1, np.inf), before))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    least: Floats = together(windows, table[size - 1 :: -1]).min(axis=1)
    return least


def _chosen(lanes: Sequence[Floats]) -> tuple[tuple[int, ...], int | None] | None:
    """The blocks of each device with the least sum, and who has what is left over; None if nothing fits."""
    least = _least(lanes, np.add)
    lane, left = len(lanes) - 1, lanes[0].shape[1] - 1
    if not math.isfinite(least[-1][lane][left]):
        return None
    blocks, odd_at = [0] * len(lanes[0]), None
    for d in reversed(range(len(lanes[0]))):
        ways = [(lane, lanes[0][d])] + ([(0, lanes[1][d])] if lane else [])
        costs = [least[d][units][left::-1] + table[: left + 1] for units, table in ways]
        way = min(range(len(ways)), key=lambda i: float(costs[i].min()))
        blocks[d] = int(np.argmin(costs[way]))
        left -= blocks[d]
        if ways[way][0] != lane:
            lane, odd_at = 0, d
    return tuple(blocks), odd_at
