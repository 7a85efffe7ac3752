"""`shisha-rt place split`: heavy layers split over described devices; the object of `--json`, and a table. Shell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from time import perf_counter
from typing import Final

from shisha_rt.cli.options import parse_sizes, place_named
from shisha_rt.cli.place_split import SplitOptions
from shisha_rt.cli.progress import progress
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import Layer, group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.spans import layers_in_words, runs_of
from shisha_rt.model.zoo import resolve_model
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import Step, StepCost, alone_steps, chain_faults, parts, step_costs
from shisha_rt.papers.gp.fused import NetworkSplit
from shisha_rt.papers.gp.methods import ProgramOptions, split_by
from shisha_rt.papers.gp.of_device import device_links, split_device
from shisha_rt.papers.gp.of_graph import feeds_only, split_layer_of
from shisha_rt.papers.gp.problem import SharedFeature, SplitLayer, SplitProblem
from shisha_rt.planner.strategies import SplitMethod
from shisha_rt.show.lines import plain_console, plain_table, shortened
from shisha_rt.show.picture import millijoules, milliseconds

_NARROWEST_NAME: Final = 5


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


def layer_shares(problem: SplitProblem, steps: Sequence[Step]) -> list[LayerShare]:
    """(layers,): costs of each layer; fetching an output counts with the layer that computed it."""
    layers_kept: list[LayerShare] = []
    costs = step_costs(problem, steps)
    begins = [step.first for step, cost in zip(steps, costs, strict=True) if cost.at is None and step.mode != "fetched"]
    spans = {begin: end - 1 for begin, end in pairwise([*begins, len(problem.layers)])}
    for step, cost in zip(steps, costs, strict=True):
        if step.mode == "fetched":
            layers_kept[-1] = _fetched(problem, layers_kept[-1], cost)
            continue
        begin = max(first for first in begins if first <= step.first)
        last = step.last - step.first
        moved = [
            tuple(into * (not index) + back * (index == last) for into, back in zip(cost.in_s, cost.out_s, strict=True))
            for index in range(last + 1)
        ]
        slowest = _slowest(cost)
        for index, layer in enumerate(parts(problem, step.mode, step.first, step.last)):
            ends_s = [a + b for a, b in zip(cost.compute_s[index], moved[index], strict=True)]
            layers_kept.append(
                LayerShare(
                    layer.variable,
                    step.shares,
                    (begin, spans[begin]) if spans[begin] > begin else None,
                    cost.compute_s[index],
                    moved[index],
                    ends_s[slowest] if problem.execution == "parallel" else math.fsum(ends_s),
                    _joules(problem, cost.compute_s[index], moved[index]),
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
    devices = range(len(problem.devices))
    for d, device in enumerate(problem.devices):
        steps = alone_steps([[layer.units * (d == other) for other in devices] for layer in problem.layers])
        rows = layer_shares(problem, steps)
        totals = math.fsum(row.cost_s for row in rows), math.fsum(row.energy_j for row in rows)
        alone[device.name] = None if chain_faults(problem, steps) else totals
    return alone


def _slowest(cost: StepCost) -> int:
    devices = range(len(cost.in_s))
    return max(devices, key=lambda d: cost.in_s[d] + cost.out_s[d] + math.fsum(part_s[d] for part_s in cost.compute_s))


def _joules(problem: SplitProblem, compute_s: Sequence[float], transfer_s: Sequence[float]) -> float:
    devices_costs = zip(problem.devices, compute_s, transfer_s, strict=True)
    return math.fsum(device.joules(busy, moved) for device, busy, moved in devices_costs)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A layer of the model: its units and its share, or the `reason` why it cannot be split."""

    index: int
    name: str
    units: int | None = None
    share: LayerShare | None = None
    reason: str | None = None


@dataclass(frozen=True)
class SplitAnswer:
    """`where`: name of where the devices are; `powered`: all of them state their power, so that energy is known."""

    model: str
    where: str
    method: SplitMethod
    problem: SplitProblem
    rows: tuple[SplitRow, ...]
    split: NetworkSplit
    solve_time_s: float
    powered: bool

    @property
    def cost_s(self) -> float | None:
        """Cost of all layers that are split; None without an answer."""
        costs = [row.share.cost_s for row in self.rows if row.share is not None]
        return math.fsum(costs) if self.split.steps is not None else None

    @property
    def energy_j(self) -> float | None:
        energies = [row.share.energy_j for row in self.rows if row.share is not None]
        return math.fsum(energies) if self.split.steps is not None and self.powered else None

    @cached_property
    def alone(self) -> dict[str, tuple[float, float] | None]:
        return alone_on_each(self.problem)

    def as_object(self) -> dict[str, object]:
        """The object of `--json`: always all keys; unknown values are null."""
        return {
            "model": self.model,
            "split": self.method,
            "objective": self.problem.objective,
            "execution": self.problem.execution,
            "layers": [self._layer_object(row) for row in self.rows],
            "cost_s": self.cost_s,
            "energy_j": self.energy_j,
            "alone": {name: alone and alone[0] for name, alone in self.alone.items()},
            "outcome": self.split.outcome,
            "reason": self.split.reason,
            "solve_time_s": self.solve_time_s,
        }

    def _layer_object(self, row: SplitRow) -> dict[str, object]:
        share, names = row.share, [device.name for device in self.problem.devices]
        able = [other.index for other in self.rows if other.reason is None]  # of the layers that can be split
        return {
            "index": row.index,
            "name": row.name,
            "units": row.units if share is None else sum(share.shares),
            "variable": share and share.variable,
            "fused": share and share.fused and [able[layer] for layer in share.fused],
            "shares": share and dict(zip(names, share.shares, strict=True)),
            "cost_s": share and share.cost_s,
            "compute_s": share and dict(zip(names, share.compute_s, strict=True)),
            "transfer_s": share and dict(zip(names, share.transfer_s, strict=True)),
            "energy_j": share.energy_j if share is not None and self.powered else None,
            "reason": row.reason,
        }

    def show(self) -> None:
        """Print the answer for people to standard output."""
        console = plain_console()
        console.print(
            f"{self.model} on {self.where}, modelled: times are those of device descriptions\n", soft_wrap=True
        )
        heads = ["#", "name", "of", *(device.name for device in self.problem.devices), "time"]
        rows = [self._cells(row, row.share) for row in self.rows if row.share is not None]
        widths = [max(map(len, column)) for column in zip(heads + ["energy"] * self.powered, *rows, strict=True)]
        room = console.width - sum(widths) + widths[1] - 2 * len(widths)
        widths[1] = max(_NARROWEST_NAME, min(widths[1], room))
        table = plain_table()
        for at, (head, width) in enumerate(zip(heads + ["energy"] * self.powered, widths, strict=True)):
            table.add_column(head, justify="left" if at == 1 else "right", no_wrap=True, min_width=width)
        for row in rows:
            table.add_row(row[0], shortened(row[1], widths[1]), *row[2:])
        console.print(table)
        console.print("\n".join(self._lines()), soft_wrap=True)

    def _cells(self, row: SplitRow, share: LayerShare) -> list[str]:
        return [
            str(row.index),
            row.name,
            f"{sum(share.shares)} {share.variable}{'*' if share.fused else ''}",
            *(str(units) if units else "-" for units in share.shares),
            milliseconds(share.cost_s),
            *([millijoules(share.energy_j)] if self.powered else []),
        ]

    def _lines(self) -> Iterator[str]:
        cost_s, energy_j = self.cost_s, self.energy_j
        assert cost_s is not None, "shown with an answer only"
        how = "side by side" if self.problem.execution == "parallel" else "one device after the other"
        energy = "" if energy_j is None else f", {millijoules(energy_j)}"
        yield (
            f"{milliseconds(cost_s)}{energy} of {how} ({self.method}, {self.split.outcome}, for least "
            f"{self.problem.objective}, solved in {milliseconds(self.solve_time_s)})"
        )
        for name, alone in self.alone.items():
            if alone is None:
                yield f"all on {name}: it has no room for every layer, or cannot run one"
            else:
                mine, other = (energy_j, alone[1]) if self.problem.objective == "energy" else (cost_s, alone[0])
                joules = f", {millijoules(alone[1])}" if self.powered else ""
                times = f", {other / mine:.3g} times" if mine else ""
                yield f"all on {name}: {milliseconds(alone[0])}{joules}{times}"
        if any(row.share and row.share.fused for row in self.rows):
            yield "* fused with its neighbours: rows (H) in tiles, filters (N) and then their channels (C), or whole"
        for reason in dict.fromkeys(row.reason for row in self.rows if row.reason is not None):
            indices = [row.index for row in self.rows if row.reason == reason]
            yield f"not split, nor counted: {layers_in_words(runs_of(indices))}: {reason}"


def answer_split(options: SplitOptions) -> None:
    """Print the split that the options ask for. Raises Failure if there is none, after the JSON object, if any."""
    answer = _split_model(options)
    if options.as_json:
        print(json.dumps(answer.as_object()))
    elif answer.split.steps is not None:
        answer.show()
    if answer.split.steps is None:
        raise Failure(
            f"{answer.split.outcome}: {options.method} has found no split: {answer.split.reason}",
            Error.NO_PLAN,
            printed=True,
        )


def _split_model(options: SplitOptions) -> SplitAnswer:
    """Split the model. Raises BadInput if a device is not described, or states no power for `energy`."""
    devices, where = _devices(options.machine, options.place_)
    split_devices = tuple(split_device(device, options.objective, options.one_for_all) for device in devices)
    read = read_model(resolve_model(options.model, progress), parse_sizes(options.dim, options.shape))
    layers = [
        (layer, split_layer_of(read.graph, layer, options.variable, split_devices))
        for layer in group_layers(read.graph)
    ]
    able = [(layer, split_layer) for layer, split_layer in layers if isinstance(split_layer, SplitLayer)]
    split_layers = tuple(split_layer for _, split_layer in able)
    starts = _starts(read.graph, [layer for layer, _ in able])
    links = device_links(devices)
    problem = SplitProblem(split_layers, split_devices, options.objective, options.execution, links, starts)
    started = perf_counter()
    split = split_by(options.method, problem, ProgramOptions(options.k, options.again))
    solve_time_s = perf_counter() - started
    shares = iter([None] * len(able) if split.steps is None else layer_shares(problem, split.steps))
    rows = [
        SplitRow(layer.index, layer.name, reason=split_layer)
        if isinstance(split_layer, str)
        else SplitRow(layer.index, layer.name, split_layer.units, next(shares))
        for layer, split_layer in layers
    ]
    if not able:
        split = NetworkSplit(None, Outcome.INFEASIBLE, reason="it has no layer that can be split")
    powered = all(device.power is not None for device in devices)
    return SplitAnswer(read.name, where, options.method, problem, tuple(rows), split, solve_time_s, powered)


def _starts(graph: Graph, able: Sequence[Layer]) -> tuple[int, ...]:
    """Indices in `able` of layers that cannot be fused with the one before, as they are not its only reader."""
    pairs = enumerate(pairwise(able), 1)
    return tuple(at for at, (before, layer) in pairs if not feeds_only(graph, before, layer))


def _devices(machine_name: str, place_name: str | None) -> tuple[list[Device], str]:
    """The devices of a place, or of all places with one device each, and where they are, in words.

    Devices of the same name get the names of their places. Raises BadInput for several places with several devices.
    """
    machine = load_machine(machine_name)
    chosen = place_named(machine, place_name)
    if chosen is not None:
        return list(devices_of(machine, chosen)), f"{chosen.name} of {machine.name}"
    by_place = [(place, devices_of(machine, place)) for place in machine.places]
    several = next((place for place, place_devices in by_place if len(place_devices) > 1), None)
    if several is not None:
        raise BadInput(
            f"{machine.source}: place {several.name} has several devices, expected --place with one of "
            f"{', '.join(place.name for place in machine.places)}, or one device at each place",
            Error.OPTIONS_CLASH,
        )
    devices = [place_devices[0] for _, place_devices in by_place]
    names = [device.name for device in devices]
    named = [
        replace(device, name=place.name) if names.count(device.name) > 1 else device
        for device, (place, _) in zip(devices, by_place, strict=True)
    ]
    return named, f"all places of {machine.name}"
