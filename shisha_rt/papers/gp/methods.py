"""All methods to split the layers of a network, by name, and the costs of each layer of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import (
    Chain,
    Step,
    StepCost,
    alone_steps,
    chain_faults,
    parts,
    resources_of,
    step_costs,
    unfused,
)
from shisha_rt.papers.gp.fused import NetworkSplit, fused_split, split_network
from shisha_rt.papers.gp.geometric.geometric import geometric_split
from shisha_rt.papers.gp.problem import SharedFeature, SplitDevice, SplitProblem
from shisha_rt.papers.gp.rivals import evaluated, rival_split
from shisha_rt.papers.gp.room import too_little_room
from shisha_rt.papers.gp.single_layer import split_layer
from shisha_rt.planner.strategies import SplitMethod


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Options of `geometric`. `k`: of Eq. 14; None: Eq. 10. `again`: condense again at each solution; else once, as in
    the paper.
    """

    k: int | None = None
    again: bool = False


def split_by(method: SplitMethod, chain: Chain, program: ProgramOptions = ProgramOptions()) -> NetworkSplit:
    """Split a network by a method. `communication` and `fused` may fuse layers, but none of `chain.starts` with the one
    before it; others split each alone. `program`: for `geometric`. Raises BadInput if a library is missing.
    """
    if method == "integer":
        return split_network(chain.problem)
    if method == "geometric":
        return _geometric(chain.problem, program)
    if method == "fused":
        return fused_split(chain)
    return rival_split(method, chain)


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
    return evaluated(unfused(problem), alone_steps(shares))


def _with_what_is_left(problem: SplitProblem, shares: Sequence[tuple[int, ...] | None]) -> tuple[SplitDevice, ...]:
    """The devices, with limits for all layers less the use of the `shares` (layers,) that are known."""
    devices = list(problem.devices)
    for layer, share in zip(problem.layers, shares, strict=True):
        for d, device in enumerate(devices):
            if share is not None and device.one_for_all:
                used = resources_of(device, layer, share[d])
                devices[d] = replace(device, limits={name: device.limits[name] - used[name] for name in device.limits})
    return tuple(devices)


@dataclass(frozen=True, slots=True)
class LayerShare:
    """Costs of a layer within a step. `shares`, `compute_s` and `transfer_s` (devices,). The sum of `cost_s` over all
    layers is the cost of the network.

    Of fused layers, the first has the transfers of inputs and the last those of outputs; in parallel, `cost_s` is that
    of the device that takes the longest for the whole step. `fused`: (first, last) layer between two times at which the
    data is in the host's memory; None for one layer.
    """

    variable: SharedFeature
    shares: tuple[int, ...]
    fused: tuple[int, int] | None
    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    cost_s: float
    energy_j: float


def layer_shares(chain: Chain, steps: Sequence[Step]) -> list[LayerShare]:
    """(layers,): costs of each layer; fetching an output counts with the layer that computed it."""
    layers_kept: list[LayerShare] = []
    costs = step_costs(chain, steps)
    begins = [step.first for step, cost in zip(steps, costs, strict=True) if cost.at is None and step.mode != "fetched"]
    spans = {begin: end - 1 for begin, end in pairwise([*begins, len(chain.problem.layers)])}
    for step, cost in zip(steps, costs, strict=True):
        if step.mode == "fetched":
            layers_kept[-1] = _fetched(chain.problem, layers_kept[-1], cost)
            continue
        begin = max(first for first in begins if first <= step.first)
        last = step.last - step.first
        moved = [
            tuple(into * (not index) + back * (index == last) for into, back in zip(cost.in_s, cost.out_s, strict=True))
            for index in range(last + 1)
        ]
        slowest = _slowest(cost)
        for index, layer in enumerate(parts(chain.problem, step.mode, step.first, step.last)):
            ends_s = [a + b for a, b in zip(cost.compute_s[index], moved[index], strict=True)]
            layers_kept.append(
                LayerShare(
                    layer.variable,
                    step.shares,
                    (begin, spans[begin]) if spans[begin] > begin else None,
                    cost.compute_s[index],
                    moved[index],
                    ends_s[slowest] if chain.problem.execution == "parallel" else math.fsum(ends_s),
                    _joules(chain.problem, cost.compute_s[index], moved[index]),
                )
            )
    return layers_kept


def _fetched(problem: SplitProblem, share: LayerShare, cost: StepCost) -> LayerShare:
    """Add the fetching of its output to a whole layer."""
    transfer_s = tuple(moved + out for moved, out in zip(share.transfer_s, cost.out_s, strict=True))
    return replace(
        share,
        transfer_s=transfer_s,
        cost_s=share.cost_s + cost.moved_s,
        energy_j=_joules(problem, share.compute_s, transfer_s),
    )


def alone_on_each(problem: SplitProblem) -> dict[str, tuple[float, float] | None]:
    """By device, seconds and joules if it computes every layer alone, each moved there and back; None: it cannot."""
    alone: dict[str, tuple[float, float] | None] = {}
    whole, devices = unfused(problem), range(len(problem.devices))
    for d, device in enumerate(problem.devices):
        steps = alone_steps([[layer.units * (d == other) for other in devices] for layer in problem.layers])
        rows = layer_shares(whole, steps)
        totals = math.fsum(row.cost_s for row in rows), math.fsum(row.energy_j for row in rows)
        alone[device.name] = None if chain_faults(whole, steps) else totals
    return alone


def _slowest(cost: StepCost) -> int:
    devices = range(len(cost.in_s))
    return max(devices, key=lambda d: cost.in_s[d] + cost.out_s[d] + math.fsum(part_s[d] for part_s in cost.compute_s))


def _joules(problem: SplitProblem, compute_s: Sequence[float], transfer_s: Sequence[float]) -> float:
    devices_costs = zip(problem.devices, compute_s, transfer_s, strict=True)
    return math.fsum(device.joules(busy, moved) for device, busy, moved in devices_costs)
