"""One step that is shared among devices, and the options for its shares that can be part of a best plan.

Without budgets there is one option: the best integer split. With budgets there is one for each combination of shares of
the devices with budgets, completed by the best shares of the others; dominated options are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from shisha_rt.arrays import Bools, Floats, Ints
from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.problem import SplitProblem
from shisha_rt.papers.gp.shortest_path import undominated
from shisha_rt.papers.gp.tables import CostTables
from shisha_rt.planner.shards.integer import best_blocks, least_by_blocks, together_of
from shisha_rt.planner.strategies import Execution

_MOST_OPTIONS: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class NetworkLimit:
    """A limit of one device for all layers together."""

    device: int
    name: str
    limit: float


def network_limits(problem: SplitProblem) -> tuple[NetworkLimit, ...]:
    return tuple(
        NetworkLimit(d, name, limit)
        for d, device in enumerate(problem.devices)
        if device.one_for_all
        for name, limit in device.limits.items()
    )


@dataclass(frozen=True, slots=True)
class SharedRun:
    """`units` in blocks of `block`. `values` (devices, blocks + 1): costs; `taken` (budgets, blocks + 1): use."""

    units: int
    block: int
    values: CostTables
    taken: CostTables


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """`costs` (options,) and `taken` (options, budgets). `shares(option)` (devices,): units, computed on demand."""

    costs: Floats
    taken: Floats
    _shares: partial[tuple[int, ...]]

    def shares(self, option: int) -> tuple[int, ...]:
        return self._shares(option)


def shared_options(run: SharedRun, budgets: Sequence[NetworkLimit], execution: Execution) -> SharedOptions | None:
    """Options of a run of shared layers; None: no shares fit.

    Raises ValueError if the devices with budgets have too many combinations of shares.
    """
    if not budgets:
        blocks = best_blocks(run.values.whole, execution, run.values.odd)
        if blocks is None:
            return None
        units = blocks.units(run.block, run.units)
        return SharedOptions(np.array([blocks.value]), np.zeros((1, 0)), partial(_only, units))
    partly = _of_the_limited(run, budgets, execution)
    free = [d for d in range(len(run.values.whole)) if d not in {budget.device for budget in budgets}]
    rest = least_by_blocks([lane[free] for lane in _lanes(run.values)], execution)
    lanes = np.stack(rest) if len(rest) > 1 else np.stack((rest[0], rest[0]))
    costs = together_of(execution)(partly.costs, lanes[partly.odd_left.astype(int), partly.left])
    possible = np.flatnonzero(costs < np.inf)
    if not len(possible):
        return None
    kept = possible[undominated(costs[possible], partly.taken[possible])]
    return SharedOptions(costs[kept], partly.taken[kept], partial(_completed, run, partly, free, execution, kept))


@dataclass(frozen=True, slots=True)
class _Partly:
    """Partial options: shares of the `limited` devices, which have budgets. `left`, `odd_left` (ways,): whole blocks
    left to share, and whether the incomplete one is; `blocks`, `odd` (ways, limited): shares of the limited devices.
    """

    limited: tuple[int, ...]
    costs: Floats
    taken: Floats
    left: Ints
    odd_left: Bools
    blocks: Ints
    odd: Bools


def _of_the_limited(run: SharedRun, budgets: Sequence[NetworkLimit], execution: Execution) -> _Partly:
    """All combinations of shares of the devices that have budgets."""
    values, taken = _lanes(run.values), _lanes(run.taken)
    size = values[0].shape[1]
    limited = tuple(sorted({budget.device for budget in budgets}))
    shared_partly = _Partly(
        limited,
        np.zeros(1),
        np.zeros((1, len(budgets))),
        np.full(1, size - 1),
        np.full(1, len(values) > 1),
        np.zeros((1, 0), dtype=np.int64),
        np.zeros((1, 0), dtype=bool),
    )
    for d in limited:
        if len(shared_partly.costs) * size * len(values) > _MOST_OPTIONS:
            many = f"{len(limited)} devices with limits for all layers and a layer of {size - 1} blocks"
            raise BadInput(f"--one-for-all: {many}: too many combinations; expected fewer", Error.SPACE_TOO_LARGE)
        of_device = np.array([budget.device == d for budget in budgets])
        lanes = [
            _with_one_more(
                shared_partly, values[lane][d], np.where(of_device, taken[lane].T, 0.0), bool(lane), execution
            )
            for lane in range(len(values))
        ]
        shared_partly = _Partly(
            limited,
            *(
                np.concatenate([getattr(lane, name) for lane in lanes])
                for name in ("costs", "taken", "left", "odd_left", "blocks", "odd")
            ),
        )
    return shared_partly


def _with_one_more(before: _Partly, values: Floats, taken: Floats, odd: bool, execution: Execution) -> _Partly:
    """Extend each partial option by each share of one more device; `values` (blocks + 1,), `taken` (blocks + 1,
    budgets).
    """
    left = before.left[:, None] - np.arange(len(values))
    way, blocks = np.nonzero((left >= 0) & (values < np.inf) & (before.odd_left[:, None] >= odd))
    return _Partly(
        before.limited,
        together_of(execution)(before.costs[way], values[blocks]),
        before.taken[way] + taken[blocks],
        left[way, blocks],
        before.odd_left[way] & (not odd),
        np.column_stack((before.blocks[way], blocks)),
        np.column_stack((before.odd[way], np.full(len(way), odd))),
    )


def _completed(
    run: SharedRun, partly: _Partly, free: Sequence[int], execution: Execution, kept: Ints, option: int
) -> tuple[int, ...]:
    """(devices,): the units of an option."""
    way = int(kept[option])
    left_over = run.units % run.block
    shares = [0] * len(run.values.whole)
    for at, d in enumerate(partly.limited):
        shares[d] = run.block * int(partly.blocks[way, at]) + left_over * bool(partly.odd[way, at])
    if free:
        size = int(partly.left[way]) + 1
        odd = run.values.odd if partly.odd_left[way] else None
        rest = best_blocks(run.values.whole[free, :size], execution, None if odd is None else odd[free, :size])
        assert rest is not None, "what an option is made of fits"
        for d, units in zip(free, rest.units(run.block, left_over), strict=True):
            shares[d] = units
    return tuple(shares)


def _only(units: tuple[int, ...], _option: int) -> tuple[int, ...]:
    return units


def _lanes(tables: CostTables) -> tuple[Floats, ...]:
    return (tables.whole,) if tables.odd is None else (tables.whole, tables.odd)
