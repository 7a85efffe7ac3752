"""The exact best split of one layer in whole blocks, over any number of devices, in sequence or in parallel.

Dynamic programming over devices: the least cost of n blocks on the first d devices is the least, over j, of that of
n - j blocks on the first d - 1 devices combined with that of j blocks on the d-th: their sum in sequence, their maximum
in parallel. The work is devices times blocks squared. Costs may be any: they need not grow with a share, let alone be
posynomials.

If a layer is no multiple of its block, one device gets the remainder beside its blocks. Costs then come as two tables
(devices, blocks + 1): of whole blocks, and of whole blocks with the remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.model.split import Splittable
from shisha_rt.planner.strategies import Execution

_SAME: Final = 1 + 1e-9
"""Costs whose ratio is smaller count as equal: the same terms, added up in another order."""

Combine: TypeAlias = Callable[[Floats, Floats], Floats]
"""The cost of two sets of devices from the cost of each."""


@dataclass(frozen=True, slots=True)
class BlockShares:
    """`blocks` (devices,): each device's share. `odd`: the device that also has the remainder; None if there is none.

    `value`: the cost of these shares. If no split is better, the whole layer is on the device that is best for it.
    """

    blocks: tuple[int, ...]
    odd: int | None
    value: float

    @property
    def is_split(self) -> bool:
        return sum(n > 0 or d == self.odd for d, n in enumerate(self.blocks)) > 1

    def units(self, block: int, units: int) -> tuple[int, ...]:
        """(devices,): units of each device, for a layer of `units` in blocks of `block`."""
        return tuple(block * n + (units % block if d == self.odd else 0) for d, n in enumerate(self.blocks))


def best_blocks(
    table: Sequence[Sequence[float]] | Floats,
    execution: Execution,
    with_remainder: Sequence[Sequence[float]] | Floats | None = None,
) -> BlockShares | None:
    """Find the best shares; None: no shares fit.

    `table` (devices, blocks + 1): cost of so many blocks on each device, inf without the memory for them.
    `with_remainder`: the same if the device also has the remainder; None if there is no remainder. In parallel, the
    least total is chosen among the splits of least maximum.
    """
    tables: tuple[Floats, ...] = (np.asarray(table, dtype=float),)
    if with_remainder is not None:
        tables += (np.asarray(with_remainder, dtype=float),)
    devices, most_blocks = len(tables[0]), tables[0].shape[1] - 1
    alone_values = tables[-1][:, -1]
    alone = int(np.argmin(alone_values))
    alone_value = float(alone_values[alone])
    if execution == "parallel":
        tables = _within(tables, min(alone_value, _parallel_bound(tables)))
        tables = _within(tables, float(least_by_blocks(tables, execution)[-1][-1]))
    else:
        tables = _within(tables, alone_value)
    shares = _of_least_sum(tables)
    if shares is not None:
        blocks, odd = shares
        costs = [float(tables[d == odd][d, n]) for d, n in enumerate(blocks)]
        value = max(costs) if execution == "parallel" else math.fsum(costs)
        if value * _SAME < alone_value:
            return BlockShares(blocks, odd, value)
    if not math.isfinite(alone_value):
        return None
    blocks = tuple(most_blocks if d == alone else 0 for d in range(devices))
    return BlockShares(blocks, None if with_remainder is None else alone, alone_value)


def best_shares(
    splittable: Splittable, most_blocks: int, seconds: Callable[[Sequence[int]], Sequence[Sequence[float]]]
) -> tuple[float, tuple[int, ...]] | None:
    """The least time of shards in parallel, and the units (places,) of each; None: no shares fit.

    `seconds(units)`: (places, len(units)) seconds of each number of units on each place. A layer of more than
    `most_blocks` blocks is split in multiples of several blocks.
    """
    block = splittable.block * max(1, -(-splittable.units // (splittable.block * most_blocks)))
    remainder = splittable.units % block
    table = seconds(range(0, splittable.units + 1, block))
    with_remainder = seconds(range(remainder, splittable.units + 1, block)) if remainder else None
    shares = best_blocks(table, "parallel", with_remainder)
    return None if shares is None else (shares.value, shares.units(block, splittable.units))


def _parallel_bound(tables: Sequence[Floats]) -> float:
    """An upper bound of the least maximum: as if each device had the remainder, and no smaller share cost more.

    It is the least maximum if costs grow with a share, and there is no remainder.
    """
    blocks = tables[0].shape[1] - 1
    rising = np.maximum.accumulate(np.maximum.reduce(tables), axis=1)
    times = np.unique(rising)
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        room = sum(max(0, int(np.searchsorted(row, times[middle], side="right")) - 1) for row in rising)
        low, high = (low, middle) if room >= blocks else (middle + 1, high)
    return float(times[low])


def _within(tables: Sequence[Floats], most: float) -> tuple[Floats, ...]:
    return tuple(np.where(table <= most * _SAME, table, np.inf) for table in tables)


def least_by_blocks(tables: Sequence[Floats], execution: Execution) -> list[Floats]:
    """For each table (devices, blocks + 1) the least cost (blocks + 1,) of each number of blocks on its devices."""
    return _least(tables, together_of(execution))[-1]


def together_of(execution: Execution) -> Combine:
    """How the costs of devices are combined."""
    return np.maximum if execution == "parallel" else np.add


def _least(tables: Sequence[Floats], combine: Combine) -> list[list[Floats]]:
    """(devices + 1,): entry d is `least_by_blocks` of the first d devices; 0 devices can have no blocks."""
    impossible = np.full(tables[0].shape[1], np.inf)
    no_blocks = impossible.copy()
    no_blocks[0] = 0.0
    least = [[no_blocks, impossible][: len(tables)]]
    for d in range(len(tables[0])):
        before = least[-1]
        row = [_convolved(before[0], tables[0][d], combine)]
        if len(tables) > 1:
            remainder_before = _convolved(before[1], tables[0][d], combine)
            row.append(np.minimum(remainder_before, _convolved(before[0], tables[1][d], combine)))
        least.append(row)
    return least


def _convolved(before: Floats, costs: Floats, combine: Combine) -> Floats:
    """(blocks + 1,): for each n the least over j of `before[n - j]` combined with `costs[j]`."""
    possible = np.flatnonzero(costs < np.inf)
    if not len(possible):
        return np.full(len(before), np.inf)
    size = int(possible[-1]) + 1
    padded = np.concatenate((np.full(size - 1, np.inf), before))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    least: Floats = combine(windows, costs[size - 1 :: -1]).min(axis=1)
    return least


def _of_least_sum(tables: Sequence[Floats]) -> tuple[tuple[int, ...], int | None] | None:
    """The blocks of each device with the least sum, and the device with the remainder; None if nothing fits.

    Follows the dynamic program back from the last device.
    """
    least = _least(tables, np.add)
    to_place, left = len(tables) - 1, tables[0].shape[1] - 1  # remainders (0 or 1) and blocks of the first d devices
    if not math.isfinite(least[-1][to_place][left]):
        return None
    blocks, odd = [0] * len(tables[0]), None
    for d in reversed(range(len(tables[0]))):
        costs = [  # without the remainder, and with it if it is still to be placed
            least[d][to_place - taken][left::-1] + tables[taken][d][: left + 1] for taken in range(to_place + 1)
        ]
        taken = min(range(len(costs)), key=lambda option: float(costs[option].min()))
        blocks[d] = int(np.argmin(costs[taken]))
        left -= blocks[d]
        if taken:
            to_place, odd = 0, d
    return tuple(blocks), odd
