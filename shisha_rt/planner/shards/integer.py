"""The exact best split of one layer in whole blocks, over any number of devices: one after the other, or side by side.

Dynamic programming over devices: the least cost of n blocks on the first d devices is the minimum over j of the least
cost of n - j blocks on the first d - 1 devices together with j blocks on the d-th: their sum, or the larger of both
side by side. The work is devices times blocks squared. Costs may be any: they need not grow with a share, let alone be
posynomials. If a layer is no multiple of its block, one device gets the remainder beside its blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.model.split import Splittable
from shisha_rt.planner.strategies import Execution

_SAME: Final = 1 + 1e-9
"""Costs whose ratio is smaller count as equal: the same terms, added up in another order."""


@dataclass(frozen=True, slots=True)
class BlockShares:
    """`blocks` (devices,): each device's share. `odd`: the device that has the remainder, too; None if there is none.

    `value`: the cost of these shares. `alone`: the device that is best for the whole layer, None if none has the
    memory; `alone_value`: its cost there, else inf. If no split is better, the whole layer is on that device.
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
        """(devices,): units of each device, of a layer with so many `units`."""
        return tuple(block * n + (units % block if d == self.odd else 0) for d, n in enumerate(self.blocks))


def best_blocks(
    tables: Sequence[Sequence[float]] | Floats,
    execution: Execution,
    odd: Sequence[Sequence[float]] | Floats | None = None,
) -> BlockShares | None:
    """Find the best shares; None: no shares fit.

    `tables` (devices, blocks + 1): cost of so many blocks on each device, inf without the memory for them. `odd`: the
    same with the remainder beside them. Side by side, the least total is chosen among splits that end as early.
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


def best_shares(
    way: Splittable, most_blocks: int, seconds: Callable[[Sequence[int]], Sequence[Sequence[float]]]
) -> tuple[float, tuple[int, ...]] | None:
    """The least time of shards side by side, and the units (places,) of each; None: no shares fit.

    `seconds(units)` (places, units): of so many units on each place. If the way has more than `most_blocks` blocks,
    several are dealt as one.
    """
    block = way.block * max(1, -(-way.units // (way.block * most_blocks)))
    odd = way.units % block
    lanes = [seconds(range(more, way.units + 1, block)) for more in ((0, odd) if odd else (0,))]
    blocks = best_blocks(lanes[0], "parallel", lanes[1] if odd else None)
    return None if blocks is None else (blocks.value, blocks.units(block, way.units))


def _most(lanes: Sequence[Floats]) -> float:
    """An upper bound of the best split side by side: as if each device had the remainder, and costs grew with shares.

    It is the least if costs do grow with a share, and there is no remainder.
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
    """The tables with inf for shares that cost more than `most`."""
    return tuple(np.where(table <= most * _SAME, table, np.inf) for table in lanes)


def least_by_blocks(lanes: Sequence[Floats], execution: Execution) -> list[Floats]:
    """(lanes,) of (blocks + 1,): the least cost of each number of blocks on devices with these tables (devices, blocks
    + 1). The second lane, if there is one, includes the remainder.
    """
    return _least(lanes, together_of(execution))[-1]


Together = Callable[[Floats, Floats], Floats]


def together_of(execution: Execution) -> Together:
    """How the costs of devices are combined."""
    return np.maximum if execution == "parallel" else np.add


def _least(lanes: Sequence[Floats], together: Together) -> list[list[Floats]]:
    """(devices + 1,): entry d is `least_by_blocks` of the first d devices; 0 devices can have no blocks."""
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
    """The blocks of each device with the least sum, and the device with the remainder; None if nothing fits."""
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
