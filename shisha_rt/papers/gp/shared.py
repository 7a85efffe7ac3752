"""One step that is shared among devices, and the options for its shares that can be part of a best plan.

There is an option for each combination of shares of the devices with budgets, completed by the best shares of the
others; dominated options are left out. Without budgets one is left: the best integer split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Bools, Floats, Ints
from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.chain import Mode, parts, rows_fed, rows_of
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import NOTHING, ROUNDING, SplitLayer, SplitProblem
from shisha_rt.papers.gp.shortest_path import undominated
from shisha_rt.planner.shards.integer import BlockShares, best_blocks, least_by_blocks, together_of

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


Lanes: TypeAlias = tuple[Floats, ...]
"""Tables by numbers of whole blocks; the second lane, if there is one, has the incomplete last block besides."""


@dataclass(frozen=True, slots=True)
class SharedRun:
    """`units` in blocks of `block`. `values`, each (devices, blocks + 1): costs, inf if a device cannot run the share,
    get its input or has no room; no units cost 0. `taken`, each (network limits, blocks + 1): use.
    """

    problem: SplitProblem
    units: int
    block: int
    values: Lanes
    taken: Lanes

    def best(self) -> BlockShares | None:
        """The best shares, whatever they take of limits for all layers; None: no shares fit."""
        return best_blocks(self.values[0], self.problem.adding, *self.values[1:])

    def options(self) -> SharedOptions | None:
        """Options of the shares; None: none fit. Raises BadInput for too many combinations of shares."""
        partly = _of_the_limited(self)
        lanes = np.stack(least_by_blocks([lane[self.free] for lane in self.values], self.problem.adding))
        costs = together_of(self.problem.adding)(partly.costs, lanes[partly.odd_left.astype(int), partly.left])
        possible = np.flatnonzero(costs < np.inf)
        if not len(possible):
            return None
        kept = possible[undominated(costs[possible], partly.taken[possible])]
        return SharedOptions(self, costs[kept], partly.only(kept))

    @property
    def limited(self) -> list[int]:
        return sorted({budget.device for budget in network_limits(self.problem)})

    @property
    def free(self) -> list[int]:
        return [d for d in range(len(self.problem.devices)) if d not in self.limited]


@dataclass(frozen=True, slots=True)
class _Partly:
    """Partial options: shares of some of the devices that have budgets. `left`, `odd_left` (ways,): whole blocks left
    to share, and whether the incomplete one is; `blocks`, `odd` (ways, devices so far): their shares.
    """

    costs: Floats
    taken: Floats
    left: Ints
    odd_left: Bools
    blocks: Ints
    odd: Bools

    def only(self, ways: Ints) -> _Partly:
        return _Partly(*(getattr(self, name)[ways] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """`costs` (options,). Shares are computed on demand."""

    run: SharedRun
    costs: Floats
    _partly: _Partly

    @property
    def taken(self) -> Floats:
        """(options, budgets)."""
        return self._partly.taken

    def shares(self, option: int) -> tuple[int, ...]:
        """(devices,): units."""
        run, partly = self.run, self._partly
        left_over = run.units % run.block
        shares = [0] * len(run.problem.devices)
        for d, blocks, odd in zip(run.limited, partly.blocks[option], partly.odd[option], strict=True):
            shares[d] = run.block * int(blocks) + left_over * bool(odd)
        if run.free:
            size = int(partly.left[option]) + 1
            whole, *odd_lane = (lane[run.free, :size] for lane in run.values)
            rest = best_blocks(whole, run.problem.adding, *(odd_lane if partly.odd_left[option] else ()))
            assert rest is not None, "what an option is made of fits"
            for d, units in zip(run.free, rest.units(run.block, left_over), strict=True):
                shares[d] = units
        return tuple(shares)


def _of_the_limited(run: SharedRun) -> _Partly:
    """All combinations of shares of the devices that have budgets."""
    budgets, lanes, size = network_limits(run.problem), len(run.values), run.values[0].shape[1]
    partly = _Partly(
        np.zeros(1),
        np.zeros((1, len(budgets))),
        np.full(1, size - 1),
        np.full(1, lanes > 1),
        np.zeros((1, 0), dtype=np.int64),
        np.zeros((1, 0), dtype=bool),
    )
    for d in run.limited:
        if len(partly.costs) * size * lanes > _MOST_OPTIONS:
            many = f"{len(run.limited)} devices with limits for all layers and a layer of {size - 1} blocks"
            raise BadInput(f"--one-for-all: {many}: too many combinations; expected fewer", Error.SPACE_TOO_LARGE)
        extended = [_with_one_more(run, partly, d, lane) for lane in range(lanes)]
        partly = _Partly(*(np.concatenate([getattr(part, name) for part in extended]) for name in partly.__slots__))
    return partly


def _with_one_more(run: SharedRun, before: _Partly, device: int, lane: int) -> _Partly:
    """Extend each partial option by each share of one more device, in a lane."""
    values, odd = run.values[lane][device], lane > 0
    of_device = np.array([budget.device == device for budget in network_limits(run.problem)])
    taken = np.where(of_device, run.taken[lane].T, 0.0)
    left = before.left[:, None] - np.arange(len(values))
    way, blocks = np.nonzero((left >= 0) & (values < np.inf) & (before.odd_left[:, None] >= odd))
    return _Partly(
        together_of(run.problem.adding)(before.costs[way], values[blocks]),
        before.taken[way] + taken[blocks],
        left[way, blocks],
        before.odd_left[way] & (not odd),
        np.column_stack((before.blocks[way], blocks)),
        np.column_stack((before.odd[way], np.full(len(way), odd))),
    )


def shared_run(problem: SplitProblem, mode: Mode, first: int, last: int, at: int | None = None) -> SharedRun:
    """The cost tables of a shared step, from the memory of device `at` (None: the host's) to the host's memory."""
    layers = parts(problem, mode, first, last)
    shared = layers[-1] if mode == "tiles" else layers[0]
    blocks, left_over = divmod(shared.units, shared.block)
    values: list[Floats] = []
    taken: list[Floats] = []
    for extra in (0, left_over)[: 1 + bool(left_over)]:
        units = shared.block * np.arange(blocks + 1, dtype=float) + extra
        shares = list(zip(layers, _shares_of_each(layers, mode, units), strict=True))
        values.append(np.array([_values(problem, mode, shares, d, at) for d in range(len(problem.devices))]))
        uses = [
            sum(_each(problem.devices[limit.device].resources[limit.name], shares), np.zeros(len(units)))
            for limit in network_limits(problem)
        ]
        taken.append(np.array(uses).reshape(len(uses), len(units)))
    return SharedRun(problem, shared.units, shared.block, tuple(values), tuple(taken))


_Shares: TypeAlias = Sequence[tuple[SplitLayer, Floats]]
"""Each layer of a step with its shares (units,), one for each number of shared units."""


def _shares_of_each(layers: Sequence[SplitLayer], mode: Mode, units: Floats) -> Floats:
    """(layers, units)."""
    if mode != "tiles":
        return np.broadcast_to(units, (len(layers), len(units)))
    return np.array([rows_of(layers, rows) if rows else (0.0,) * len(layers) for rows in units.tolist()]).T


def _values(problem: SplitProblem, mode: Mode, shares: _Shares, d: int, at: int | None) -> Floats:
    """(units,): cost of each share on a device."""
    device, entry = problem.devices[d], problem.entry(at, d)
    (first, sent), (last, made) = shares[0], shares[-1]
    if entry is None:
        return np.where(made > 0, np.inf, 0.0)
    compute_s = sum((device.compute_along(layer, share) for layer, share in shares), np.zeros(len(made)))
    if mode == "tiles":  # the input includes the halo
        sent = np.array([rows_fed(first, rows) if rows else 0.0 for rows in sent.tolist()])
    moved_s = first.along(entry, sent) + last.along(device.legs.out_s if device.legs else NOTHING, made)
    values = problem.spent(device, compute_s, moved_s)
    for name, limit in device.limits.items():
        used = np.array(list(_each(device.resources[name], shares)))
        most = used.sum(axis=0) if device.one_for_all else used.max(axis=0)
        values[most > limit * (1 + ROUNDING)] = np.inf
    return values


def _each(posynomial: Posynomial, shares: _Shares) -> Iterator[Floats]:
    return (layer.along(posynomial, share) for layer, share in shares)


def split_layer(problem: SplitProblem, layer: SplitLayer) -> tuple[tuple[int, ...], BlockShares] | None:
    """The best shares of one layer (devices,), in units, and the same in blocks, communication in full; a limit for all
    layers together is applied to this layer alone. None: no shares fit.
    """
    blocks = shared_run(replace(problem, layers=(layer,)), "split", 0, 0).best()
    return None if blocks is None else (blocks.units(layer.block, layer.units), blocks)
