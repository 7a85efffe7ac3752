"""All methods to split the layers of a network, by name: the exact splits, geometric programs, the rivals that the GP
paper compares with, as the paper states them, and shares in proportion to speed (ours).

The checker evaluates all of them with communication in full, whatever costs they assume.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import (
    Step,
    alone_steps,
    chain_cost,
    chain_faults,
    parts,
    resources_of,
    runs_from,
    step_cost,
)
from shisha_rt.papers.gp.fused import NetworkSplit, fused_split, split_network
from shisha_rt.papers.gp.geometric.geometric import geometric_split
from shisha_rt.papers.gp.problem import SplitDevice, SplitLayer, SplitProblem, largest_share_s, room, too_little_room
from shisha_rt.papers.gp.shared import SharedRun, shared_run, split_layer
from shisha_rt.papers.gp.shortest_path import BudgetedGraph, Stretch, least_way
from shisha_rt.planner.strategies import SplitMethod

RivalName: TypeAlias = Literal["greedy", "balanced", "proportional", "communication", "step"]


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Options of `geometric`. `k`: of Eq. 14; None: Eq. 10. `again`: condense at each solution; the paper: once."""

    k: int | None = None
    again: bool = False


def split_by(
    method: SplitMethod | RivalName, problem: SplitProblem, program: ProgramOptions = ProgramOptions()
) -> NetworkSplit:
    """Split a network by a method. `communication` and `fused` may fuse layers, but none of the problem's `starts` with
    the one before it; others split each alone. `program`: for `geometric`. Raises BadInput if a library is missing.
    """
    match method:
        case "integer":
            return split_network(problem)
        case "geometric":
            return _geometric(problem, program)
        case "fused":
            return fused_split(problem)
        case "greedy":
            return _layer_by_layer(problem, _to_the_fastest)
        case "balanced":
            return _layer_by_layer(problem, _evenly)
        case "proportional":
            return _layer_by_layer(problem, _by_speed)
        case "communication":
            return _communication(problem)
        case "step":
            return _step(problem)


def _geometric(problem: SplitProblem, program: ProgramOptions) -> NetworkSplit:
    """Split all layers by one geometric program, rounded; layers with fewer units than devices are split exactly, and
    first, so that the others share what these leave of limits for all layers.
    """
    wide = tuple(layer for layer in problem.layers if layer.units >= len(problem.devices))
    exact: list[tuple[int, ...] | None] = []
    for layer in problem.layers:
        blocks = None if layer in wide else split_layer(problem, layer)
        if layer not in wide and blocks is None:
            reason = too_little_room(problem, layer, [{}] * len(problem.devices))
            return NetworkSplit(None, Outcome.INFEASIBLE, reason=reason)
        exact.append(None if blocks is None else blocks[0])
    left = replace(problem, layers=wide, devices=_with_what_is_left(problem, exact))
    solved = geometric_split(left, program.k, again=program.again) if wide else None
    if solved is not None and (solved.rounded is None or solved.rounded.faults):
        return NetworkSplit(None, solved.outcome, reason=solved.reason)
    rounded = iter(solved.rounded.shares if solved is not None and solved.rounded is not None else ())
    shares = [next(rounded) if share is None else share for share in exact]
    return _evaluated(problem, alone_steps(shares))


def _with_what_is_left(problem: SplitProblem, shares: Sequence[tuple[int, ...] | None]) -> tuple[SplitDevice, ...]:
    """The devices, with limits for all layers less the use of the `shares` (layers,) that are known."""
    devices = list(problem.devices)
    for layer, share in zip(problem.layers, shares, strict=True):
        for d, device in enumerate(devices):
            if share is not None and device.one_for_all:
                used = resources_of(device, layer, share[d])
                devices[d] = replace(device, limits={name: device.limits[name] - used[name] for name in device.limits})
    return tuple(devices)


_Taken: TypeAlias = list[dict[str, float]]
"""(devices,): how much of each resource earlier layers use."""
_Share: TypeAlias = Callable[[SplitProblem, SplitLayer, _Taken], list[int] | None]


def _layer_by_layer(problem: SplitProblem, share: _Share) -> NetworkSplit:
    taken: _Taken = [{} for _ in problem.devices]
    steps = []
    for index, layer in enumerate(problem.layers):
        shares = share(problem, layer, taken)
        if shares is None:
            return NetworkSplit(None, Outcome.INFEASIBLE, reason=too_little_room(problem, layer, taken))
        steps.append(Step("split", index, index, tuple(shares)))
        for device, load, units in zip(problem.devices, taken, shares, strict=True):
            if device.one_for_all:
                used = resources_of(device, layer, units)
                load.update({name: load.get(name, 0.0) + amount for name, amount in used.items()})
    return _evaluated(problem, steps)


def _evaluated(problem: SplitProblem, steps: Sequence[Step]) -> NetworkSplit:
    """These steps, not proven to be the best; INFEASIBLE if they exceed a limit."""
    fault = next(iter(chain_faults(problem, steps)), None)
    if fault is not None:
        return NetworkSplit(None, Outcome.INFEASIBLE, reason=fault)
    return NetworkSplit(tuple(steps), Outcome.FEASIBLE, chain_cost(problem, steps))


def _speeds(problem: SplitProblem, layer: SplitLayer) -> list[float]:
    """(devices,): 1 / seconds for the whole layer; 0 if a device cannot run it, inf if it takes no time."""
    formulas = [largest_share_s(device, layer) for device in problem.devices]
    seconds = [math.inf if its_s is None else its_s.at(layer.share(layer.units)) for its_s in formulas]
    return [1 / device_s if device_s else math.inf for device_s in seconds]


def _to_the_fastest(problem: SplitProblem, layer: SplitLayer, taken: _Taken) -> list[int] | None:
    """The largest possible share to the fastest device, the rest to the next fastest, and so on."""
    speeds = _speeds(problem, layer)
    shares, left = [0] * len(speeds), layer.units
    for d in sorted(range(len(speeds)), key=lambda d: -speeds[d]):
        shares[d] = room(problem.devices[d], layer, taken[d], left)
        left -= shares[d]
    return None if left else shares


def _evenly(problem: SplitProblem, layer: SplitLayer, taken: _Taken) -> list[int] | None:
    """Equal shares, as far as there is room."""
    return _by_weight(problem, layer, taken, [1.0] * len(taken))


def _by_speed(problem: SplitProblem, layer: SplitLayer, taken: _Taken) -> list[int] | None:
    """Shares in proportion to each device's speed with the whole layer, as far as there is room."""
    return _by_weight(problem, layer, taken, _speeds(problem, layer))


def _by_weight(problem: SplitProblem, layer: SplitLayer, taken: _Taken, weights: Sequence[float]) -> list[int] | None:
    """Whole blocks by `weights`, largest remainder first; what does not fit goes to other devices in the same way.

    An incomplete last block goes to the device with the most units among those that have room for it.
    """
    blocks, left_over = divmod(layer.units, layer.block)
    rooms = [
        room(device, layer, load, blocks * layer.block) // layer.block
        for device, load in zip(problem.devices, taken, strict=True)
    ]
    shares, open_ = [0] * len(rooms), [d for d, most in enumerate(rooms) if most and weights[d]]
    left = blocks
    while left and open_:
        wanted = _apportioned(left, [weights[d] for d in open_])
        full = [d for d, more in zip(open_, wanted, strict=True) if more >= rooms[d]]
        for d, more in zip(open_, wanted, strict=True):
            if not full or d in full:
                shares[d] = min(more, rooms[d])
                left -= shares[d]
        open_ = [d for d in open_ if d not in full] if full else []
    if left:
        return None
    units = [layer.block * n for n in shares]
    if left_over:
        for d in sorted(range(len(units)), key=lambda d: (-units[d], -weights[d])):
            if room(problem.devices[d], layer, taken[d], units[d] + left_over) == units[d] + left_over:
                units[d] += left_over
                return units
        return None
    return units


def _apportioned(total: int, weights: Sequence[float]) -> list[int]:
    """`total` in whole numbers in proportion to `weights`, by largest remainder; ties go to the larger weight.

    If some weights are infinite these share all.
    """
    if math.inf in weights:
        weights = [float(weight == math.inf) for weight in weights]
    exact = np.array(weights) * total / sum(weights)
    whole = np.floor(exact).astype(int)
    for d in np.lexsort((-np.array(weights), whole - exact))[: total - int(whole.sum())]:
        whole[d] += 1
    return [int(n) for n in whole]


def _step(problem: SplitProblem) -> NetworkSplit:
    """Eq. 11 with the exact step function (12): communication counts only if one device has a whole layer."""
    runs = [_by_step(problem, index) for index in range(len(problem.layers))]
    network_split = split_network(problem, runs)
    if network_split.steps is None:
        return network_split
    return _evaluated(problem, network_split.steps)


def _by_step(problem: SplitProblem, index: int) -> SharedRun:
    layer = problem.layers[index]
    run = shared_run(problem, "split", index, index)
    values = []
    for lane, extra in zip(run.values, (0, layer.units % layer.block), strict=False):
        units = layer.block * np.arange(lane.shape[1], dtype=float) + extra
        copied = lane.copy()
        for d, device in enumerate(problem.devices):
            free = (units < layer.units) & (copied[d] < np.inf)
            compute_s = device.compute_along(layer, units)
            copied[d, free] = problem.spent(device, compute_s, np.zeros(len(units)))[free]
        values.append(copied)
    return replace(run, values=tuple(values))


def _communication(problem: SplitProblem) -> NetworkSplit:
    """The ILP of [6, 8]: shares are equal, and layers are fused (tiles, pairs) so that the least data is moved.

    For a chain of layers it is a shortest path, which needs no solver. Compute time is ignored, also of halos that are
    computed twice.
    """
    nothing: _Taken = [{} for _ in problem.devices]
    stretches, steps = [], []
    for first, (mode, last) in [(at, run) for at in range(len(problem.layers)) for run in runs_from(problem, at)]:
        layers = parts(problem, mode, first, last)
        shares = _evenly(problem, layers[-1] if mode == "tiles" else layers[0], nothing)
        step = None if shares is None else Step(mode, first, last, tuple(shares))
        if step is not None and (mode == "split" or not chain_faults(problem, [step])):
            moved_s = step_cost(problem, step, at=None).moved_s
            stretches.append(Stretch(first, last + 1, np.array([moved_s]), np.zeros((1, 0))))
            steps.append(step)
    way = least_way(BudgetedGraph(stretches, len(problem.layers) + 1, np.zeros(0)))
    if way.picks is None:
        layer = next(layer for layer in problem.layers if _evenly(problem, layer, nothing) is None)
        return NetworkSplit(None, Outcome.INFEASIBLE, reason=too_little_room(problem, layer, nothing))
    return _evaluated(problem, [steps[stretch] for stretch, _ in way.picks])
