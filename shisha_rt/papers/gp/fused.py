"""The best fused split of a whole chain: which layers are whole, split, paired or tiled, and with which shares.

A point is (layers done, memory that has the data). Each step (a layer, a pair, a run of tiles up to a bound) is an edge
between two points, with the best shares by the exact integer split; the shortest path is the best plan. Limits for all
layers together are budgets of the path: then a step has an option for each combination of shares of the devices with
such limits, and the answer is proven, or comes with a bound (see `shortest_path`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import (
    MOST_TILED,
    Chain,
    Mode,
    Step,
    parts,
    resources_of,
    rows_fed,
    rows_of,
    runs_from,
    step_cost,
    unfused,
)
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import ROUNDING, SplitDevice, SplitLayer, SplitProblem, runs
from shisha_rt.papers.gp.room import too_little_room
from shisha_rt.papers.gp.shared import SharedOptions, SharedRun, network_limits, shared_options
from shisha_rt.papers.gp.shortest_path import MOST_WAYS, Stretch, cost_of, least_taken, least_way
from shisha_rt.papers.gp.single_layer import execution_of
from shisha_rt.papers.gp.tables import CostTables, along, compute_along, spent

_MODES: Final[tuple[Mode, ...]] = ("whole", "split", "pair", "tiles")


@dataclass(frozen=True, slots=True)
class NetworkSplit:
    """`steps`: from the first layer to the last; None: no split was found. `value`: seconds or joules.

    `lower_bound`: proven for all plans of the requested kinds of steps.
    """

    steps: tuple[Step, ...] | None
    outcome: Outcome
    value: float = math.inf
    lower_bound: float | None = None
    reason: str | None = None


def fused_split(
    chain: Chain,
    modes: Collection[Mode] = _MODES,
    most_tiled: int = MOST_TILED,
    most_ways: int = MOST_WAYS,
    starts: Sequence[int] = (),
) -> NetworkSplit:
    """Return the best plan with these modes, proven unless `outcome` is FEASIBLE (see `reason`).

    Before each layer of `starts` all data is in the host's memory, as the layer does not just read the one before it.
    """
    steps = _Steps(chain)
    for index in range(len(chain.problem.layers)):
        end = min((start for start in starts if start > index), default=len(chain.problem.layers))
        steps.add_from(index, end, modes, most_tiled, from_host=index in (0, *starts))
    return steps.least(most_ways)


def split_network(
    problem: SplitProblem, runs: Sequence[SharedRun] | None = None, most_ways: int = MOST_WAYS
) -> NetworkSplit:
    """The same with every layer split alone, communication in full, as in Eq. 10. `runs`: other cost tables."""
    steps = _Steps(unfused(problem))
    for index in range(len(problem.layers)):
        steps.add_shared("split", index, index, None if runs is None else runs[index])
    return steps.least(most_ways)


class _Steps:
    """All steps as edges between points (layers done, memory with the data); the host's memory comes last of each."""

    def __init__(self, chain: Chain) -> None:
        self._chain, self._limits = chain, network_limits(chain.problem)
        self._own = [d for d, legs in enumerate(chain.legs) if legs is not None]
        self._points = 1 + len(chain.problem.layers) * (len(self._own) + 1)
        self._found: list[tuple[Stretch, _MakeStep]] = []

    def least(self, most_ways: int) -> NetworkSplit:
        ordered = sorted(self._found, key=lambda found_split: found_split[0].source)
        stretches = [stretch for stretch, _ in ordered]
        limits = np.array([limit.limit for limit in self._limits])
        way = least_way(stretches, self._points, limits, most_ways)
        if way.picks is None:
            why = self._why(stretches, way.outcome)
            return NetworkSplit(None, way.outcome, lower_bound=way.lower_bound, reason=why)
        steps = tuple(ordered[stretch][1](option) for stretch, option in way.picks)
        reason = None if way.outcome is Outcome.OPTIMAL else "too many ways to keep to the limits for all layers"
        return NetworkSplit(steps, way.outcome, cost_of(stretches, way.picks), way.lower_bound, reason)

    def _why(self, stretches: Sequence[Stretch], outcome: Outcome) -> str:
        """Name the limit that cannot be kept: of a layer that fits nowhere, else of all layers together."""
        if outcome is Outcome.LIMIT:
            return "too many ways to keep to the limits for all layers, and none of those tried does"
        problem = self._chain.problem
        for index, layer in enumerate(problem.layers):
            run = shared_run(self._chain, "split", index, index)
            if shared_options(run, (), execution_of(problem)) is None:
                return too_little_room(problem, layer, [{}] * len(problem.devices))
        for b, limit in enumerate(self._limits):
            least = least_taken(stretches, self._points, b)
            if least > limit.limit:
                name = problem.devices[limit.device].name
                return f"{name}: all layers would need {least:.6g} {limit.name} at least, it has {limit.limit:.6g}"
        names = ", ".join(f"{limit.name} of {problem.devices[limit.device].name}" for limit in self._limits)
        return f"the limits of {names} for all layers cannot be kept together"

    def add_from(self, first: int, end: int, modes: Collection[Mode], most_tiled: int, *, from_host: bool) -> None:
        """Add all steps that begin with layer `first` and end before layer `end`, with fetching of whole outputs."""
        sources = [None] if from_host or "whole" not in modes else [None, *self._own]
        if "whole" in modes:
            self._add_whole(first, sources)
        for mode, last in runs_from(self._chain.problem.layers[:end], first, most_tiled):
            for at in sources if self._chain.links else [None]:
                if mode in modes:
                    self.add_shared(mode, first, last, at=at)

    def _point(self, done: int, device: int | None) -> int:
        if not done:
            return 0
        at = len(self._own) if device is None else self._own.index(device)
        return 1 + (done - 1) * (len(self._own) + 1) + at

    def _add_whole(self, index: int, sources: Sequence[int | None]) -> None:
        """Add the layer whole on each device that has room, from each memory, and the fetching of its output."""
        problem = self._chain.problem
        layer = problem.layers[index]
        for d, device in enumerate(problem.devices):
            taken = resources_of(device, layer, layer.units)
            if not runs(device, layer, layer.units) or any(
                amount > device.limits[name] * (1 + ROUNDING) for name, amount in taken.items()
            ):
                continue
            shares = tuple(layer.units if d == other else 0 for other in range(len(problem.devices)))
            used = [taken[limit.name] if limit.device == d else 0.0 for limit in self._limits]
            step, own = Step("whole", index, index, shares), d in self._own
            target = self._point(index + 1, d if own else None)
            for at in sources:
                if self._chain.entry(at, d) is not None:
                    self._add(step, self._point(index, at), target, used, at)
            if own:
                fetched = Step("fetched", index + 1, index, shares)
                self._add(fetched, target, self._point(index + 1, None), [0.0] * len(used), d)

    def _add(self, step: Step, source: int, target: int, used: Sequence[float], at: int | None) -> None:
        value = step_cost(self._chain, step, at=at).value
        stretch = Stretch(source, target, np.array([value]), np.array([used]).reshape(1, len(used)))
        self._found.append((stretch, _MakeStep(step.mode, step.first, step.last, step.shares)))

    def add_shared(
        self, mode: Mode, first: int, last: int, run: SharedRun | None = None, at: int | None = None
    ) -> None:
        share = shared_run(self._chain, mode, first, last, at) if run is None else run
        options = shared_options(share, self._limits, execution_of(self._chain.problem))
        if options is not None:
            stretch = Stretch(self._point(first, at), self._point(last + 1, None), options.costs, options.taken)
            self._found.append((stretch, _MakeStep(mode, first, last, options)))


@dataclass(frozen=True, slots=True)
class _MakeStep:
    """Makes the step of an option."""

    mode: Mode
    first: int
    last: int
    shares: tuple[int, ...] | SharedOptions

    def __call__(self, option: int) -> Step:
        shares = self.shares.shares(option) if isinstance(self.shares, SharedOptions) else self.shares
        return Step(self.mode, self.first, self.last, shares)


def shared_run(chain: Chain, mode: Mode, first: int, last: int, at: int | None = None) -> SharedRun:
    """The cost tables of a shared step, from the memory of device `at` (None: the host's) to the host's memory."""
    costs = parts(chain.problem, mode, first, last)
    shared = costs[-1] if mode == "tiles" else costs[0]
    blocks, left_over = divmod(shared.units, shared.block)
    lanes = []
    for extra in (0, left_over)[: 1 + bool(left_over)]:
        units = shared.block * np.arange(blocks + 1, dtype=float) + extra
        shares = _shares_of_each(costs, mode, units)
        values = [_values(chain, mode, costs, shares, d, at) for d in range(len(chain.legs))]
        taken = [_taken(chain.problem.devices[b.device], b.name, costs, shares) for b in network_limits(chain.problem)]
        lanes.append((np.array(values), np.array(taken).reshape(len(taken), len(units))))
    whole, odd = lanes[0], lanes[1] if left_over else (None, None)
    return SharedRun(shared.units, shared.block, CostTables(whole[0], odd[0]), CostTables(whole[1], odd[1]))


def _shares_of_each(layers: Sequence[SplitLayer], mode: Mode, units: Floats) -> Floats:
    """(layers, units): each layer's share, for each number of shared units."""
    if mode != "tiles":
        return np.broadcast_to(units, (len(layers), len(units)))
    return np.array([rows_of(layers, rows) if rows else (0.0,) * len(layers) for rows in units.tolist()]).T


def _values(chain: Chain, mode: Mode, layers: Sequence[SplitLayer], shares: Floats, d: int, at: int | None) -> Floats:
    """(units,): cost of each share on a device; inf if it cannot run, cannot get its input or exceeds a limit."""
    device, legs, entry = chain.problem.devices[d], chain.legs[d], chain.entry(at, d)
    if entry is None:
        return np.where(shares[-1] > 0, np.inf, 0.0)
    pairs = zip(layers, shares, strict=True)
    compute_s = sum((compute_along(device, layer, share) for layer, share in pairs), np.zeros(shares.shape[1]))
    first, sent = layers[0], shares[0]
    if mode == "tiles":  # the input includes the halo
        sent = np.array([rows_fed(first, rows) if rows else 0.0 for rows in sent.tolist()])
    moved_s = along(entry, first, sent) + along(None if legs is None else legs.out_s, layers[-1], shares[-1])
    values = spent(chain.problem, device, compute_s, moved_s)
    for name, limit in device.limits.items():
        used = np.array(list(_each(device.resources[name], layers, shares)))
        most = used.sum(axis=0) if device.one_for_all else used.max(axis=0)
        values[most > limit * (1 + ROUNDING)] = np.inf
    return values


def _taken(device: SplitDevice, name: str, layers: Sequence[SplitLayer], shares: Floats) -> Floats:
    return sum(_each(device.resources[name], layers, shares), np.zeros(shares.shape[1]))


def _each(posynomial: Posynomial, layers: Sequence[SplitLayer], shares: Floats) -> Iterator[Floats]:
    return (along(posynomial, layer, share) for layer, share in zip(layers, shares, strict=True))
