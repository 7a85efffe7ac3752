"""The steps in which a chain of layers is split, their costs, and the checker of fused splits.

Data is in the host's memory or in that of a device with a memory of its own. Layers can be *fused*, with nothing moved
between them, in three cases: all are whole on one device; each device computes rows of the last layer from its own rows
of the layers before, and rows at borders are computed twice (tiles, with a halo that grows with every layer); or each
device has some filters of one layer and the same input channels of the next (a pair, whose partial sums are added
once, at the end). Shares of channels alone fuse no dense convolutions, as each filter needs all channels.

The output of a shared step ends in the host's memory. Eq. 9 has a term for each pair of CPU, GPU and FPGA, but does not
say what moves between them. Ours: if a layer's output is in one device's memory, another device with a direct link to
it pays for its share of that output. So a layer that is whole on one device may be followed by one that is whole on
another, or shared among devices linked to it; without links everything passes through the host's memory. Adding up
partial sums costs nothing, as everywhere in a `SplitProblem`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import (
    NOTHING,
    ROUNDING,
    Shares,
    SplitDevice,
    SplitLayer,
    SplitProblem,
    common_block,
    run_fault,
    runs,
)

Mode: TypeAlias = Literal["whole", "split", "pair", "tiles", "fetched"]


@dataclass(frozen=True, slots=True)
class Step:
    """Layers `first` to `last`, both inclusive. `shares` (devices,): units, by mode:

    `split`: units of the layer's own variable; `pair`: filters of the first layer, which are input channels of the
    second; `tiles`: rows of the last layer's output; `whole`: all units are on one device, where the output stays;
    `fetched`: the output of the device with a share is moved to the host, before layer `first`.
    """

    mode: Mode
    first: int
    last: int
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepCost:
    """`compute_s` (layers, devices), `in_s` and `out_s` (devices,): seconds. `value`: seconds or joules of the step.

    `at`: the device whose own memory has the input; None: the host's.
    """

    compute_s: tuple[tuple[float, ...], ...]
    in_s: tuple[float, ...]
    out_s: tuple[float, ...]
    value: float
    at: int | None = None

    @property
    def moved_s(self) -> float:
        return math.fsum((*self.in_s, *self.out_s))


def parts(problem: SplitProblem, mode: Mode, first: int, last: int) -> tuple[SplitLayer, ...]:
    """Layers of a step, each with the variable shared in the mode. A pair's blocks suit both layers, on any device."""
    layers = problem.layers[first : last + 1]
    if mode == "pair":
        block = math.lcm(layers[0].block, *(common_block(problem.devices, variable) for variable in ("N", "C")))
        return replace(layers[0], variable="N", block=block), replace(layers[1], variable="C", block=block)
    if mode == "tiles":
        return tuple(replace(layer, variable="H", block=1) for layer in layers)
    return tuple(layers)


_MOST_TILED: Final = 4
"""Most layers in one run of tiles."""


def runs_from(problem: SplitProblem, first: int) -> Iterator[tuple[Mode, int]]:
    """Yield (mode, last layer) of the shared steps from layer `first` on: the layer alone, a pair (of layers in one
    group), tiles.

    Tiles do not mix images and matrix products: rows of a product are not the rows of an image, which has columns, too.
    """
    yield "split", first
    layers = problem.layers
    end = min((start for start in problem.starts if start > first), default=len(layers))
    behind = layers[first + 1 : min(end, first + _MOST_TILED)]
    ungrouped = layers[first].groups == 1 and bool(behind) and behind[0].groups == 1
    if ungrouped and layers[first].features["N"] == behind[0].features["C"]:
        yield "pair", first + 1
    for last, layer in enumerate(behind, first + 1):
        if (layer.features["W"] > 1) != (layers[first].features["W"] > 1):
            return
        if layer.features["H"] > 1:
            yield "tiles", last


def rows_read(layer: SplitLayer, rows: float) -> float:
    """Rows of the input map that `rows` rows in the middle of the output read, at most all."""
    extent, stride = layer.rows
    return min(layer.features["H"] * stride, (rows - 1) * stride + extent)


def rows_fed(layer: SplitLayer, rows: float) -> float:
    """Rows of the output whose own input map has as many rows as `rows` rows read with their halo."""
    return rows_read(layer, rows) / layer.rows.stride


def rows_before(before: SplitLayer, layer: SplitLayer, rows: float) -> float:
    """Rows of the previous layer's output that `rows` rows of this layer read, through the pooling between them.

    The pooling is inferred from the two sizes; its windows are assumed to be as long as its stride.
    """
    whole = before.features["H"]
    if rows >= layer.features["H"]:
        return whole
    pooled = max(1, round(whole / (layer.features["H"] * layer.rows.stride)))
    return min(whole, ((rows - 1) * layer.rows.stride + layer.rows.extent) * pooled)


def rows_of(layers: Sequence[SplitLayer], rows: float) -> tuple[float, ...]:
    """(layers,): rows of each layer's output that `rows` rows of the last layer's output need."""
    tables = [rows]
    for before, layer in zip(layers[-2::-1], layers[:0:-1], strict=True):
        tables.append(rows_before(before, layer, tables[-1]))
    return tuple(reversed(tables))


def step_cost(problem: SplitProblem, step: Step, *, at: int | None) -> StepCost:
    """Cost of one step, communication in full. `at`: the device whose memory has the input; None: the host's.

    Each device with a share must be reachable from there (`SplitProblem.entry`).
    """
    if step.mode == "fetched":
        made = problem.layers[step.first - 1]
        out_s = [
            device.legs.out_s.at(made.share(made.units)) if units and device.legs else 0.0
            for units, device in zip(step.shares, problem.devices, strict=True)
        ]
        return _priced(problem, at, (), [0.0] * len(out_s), out_s)
    costs = parts(problem, step.mode, step.first, step.last)
    compute_s: list[list[float]] = [[] for _ in costs]
    in_s, out_s = [], []
    for d, (device, units) in enumerate(zip(problem.devices, step.shares, strict=True)):
        shares = _of_each(costs, step.mode, units)
        for total, layer, share in zip(compute_s, costs, shares, strict=True):
            total.append(device.compute_s(layer.share(share)) if units else 0.0)
        entry = problem.entry(at, d)
        in_s.append(_in_s(costs[0], step.mode, entry, shares[0]) if units and entry is not None else 0.0)
        way_out = device.legs.out_s if device.legs and step.mode != "whole" else NOTHING
        out_s.append(way_out.at(costs[-1].share(shares[-1])) if units else 0.0)
    return _priced(problem, at, compute_s, in_s, out_s)


def _of_each(layers: Sequence[SplitLayer], mode: Mode, units: float) -> tuple[float, ...]:
    """(layers,): a device's share of each layer."""
    if mode == "tiles":
        return rows_of(layers, units) if units else (0.0,) * len(layers)
    return (units,) * len(layers)


def _in_s(layer: SplitLayer, mode: Mode, entry: Posynomial, share: float) -> float:
    """Seconds to move the input of a share; a tile's input includes its halo."""
    return entry.at(layer.share(rows_fed(layer, share) if mode == "tiles" else share))


def _priced(
    problem: SplitProblem,
    at: int | None,
    compute_s: Sequence[Sequence[float]],
    in_s: Sequence[float],
    out_s: Sequence[float],
) -> StepCost:
    costs = [
        problem.spent(device, math.fsum(of_part[d] for of_part in compute_s), in_s[d] + out_s[d])
        for d, device in enumerate(problem.devices)
    ]
    return StepCost(tuple(map(tuple, compute_s)), tuple(in_s), tuple(out_s), problem.together(costs), at)


def chain_cost(problem: SplitProblem, steps: Sequence[Step]) -> float:
    """Seconds or joules of all steps, from the host's memory back to it. Raises ValueError for faulty steps."""
    costed_steps = step_costs(problem, steps)
    fault = next(iter(chain_faults(problem, steps)), None)
    if fault is not None:
        raise ValueError(fault)
    return math.fsum(cost.value for cost in costed_steps)


def step_costs(problem: SplitProblem, steps: Sequence[Step]) -> tuple[StepCost, ...]:
    """(steps,): costs, following where the data is. Raises ValueError if a step cannot reach its input there."""
    at: int | None = None  # the device whose own memory has the data
    due, stretches = 0, []
    for step in steps:
        users = [d for d, units in enumerate(step.shares) if units]
        if step.first != due or (step.mode in ("whole", "fetched") and len(users) != 1):
            raise ValueError(f"step {step}: expected one that begins with layer {due}, whole ones on one device")
        reached = users == [at] if step.mode == "fetched" else all(problem.entry(at, d) is not None for d in users)
        if at is not None and not reached:
            raise ValueError(f"step {step}: its input lies on device {at}, expected it there, linked to it or fetched")
        stretches.append(step_cost(problem, step, at=at))
        if step.mode == "fetched":
            at = None
        else:
            at = users[0] if step.mode == "whole" and problem.devices[users[0]].legs else None
            due = step.last + 1
    if due != len(problem.layers) or at is not None:
        raise ValueError(f"{len(steps)} steps: expected them to end behind the last layer, in the host's memory")
    return tuple(stretches)


def chain_faults(problem: SplitProblem, steps: Sequence[Step]) -> list[str]:
    """Messages on shares that do not add up or cannot run, and on limits that are exceeded."""
    costed: list[str] = []
    used: dict[tuple[int, str], float] = {}
    for step in steps:
        if step.mode == "fetched":
            continue
        costs = parts(problem, step.mode, step.first, step.last)
        whole = costs[-1].units if step.mode == "tiles" else costs[0].units
        if min(step.shares) < 0 or sum(step.shares) != whole:
            costed.append(f"{costs[0].name}: shares {list(step.shares)}, expected {whole} together")
        if step.mode == "pair" and costs[1].units != whole:
            costed.append(f"{costs[1].name}: {costs[1].units} input channels, expected the {whole} filters before it")
        for d, (device, units) in enumerate(zip(problem.devices, step.shares, strict=True)):
            for layer, share in zip(costs, _of_each(costs, step.mode, units), strict=True):
                if not runs(device, layer, share):
                    costed.append(run_fault(device, layer, share))
                for name, amount in resources_of(device, layer, share).items():
                    if device.one_for_all:
                        used[d, name] = used.get((d, name), 0.0) + amount
                    elif amount > device.limits[name] * (1 + ROUNDING):
                        limit = device.limits[name]
                        costed.append(
                            f"{device.name}: layer {layer.name} would need {amount:.6g} {name}, it has {limit:.6g}"
                        )
    for (d, name), amount in used.items():
        device = problem.devices[d]
        if amount > device.limits[name] * (1 + ROUNDING):
            costed.append(f"{device.name}: all layers would need {amount:.6g} {name}, it has {device.limits[name]:.6g}")
    return costed


def alone_steps(shares: Shares) -> tuple[Step, ...]:
    """Each layer split by itself."""
    return tuple(Step("split", index, index, tuple(share)) for index, share in enumerate(shares))


def faults(problem: SplitProblem, shares: Shares) -> list[str]:
    """As `chain_faults`, for layers that are split one by one."""
    return chain_faults(problem, alone_steps(shares))


def resources_of(device: SplitDevice, layer: SplitLayer, share: float) -> dict[str, float]:
    """Use of each limited resource by a share; 0 for no share."""
    return {name: device.resources[name].at(layer.share(share)) if share else 0.0 for name in device.limits}
