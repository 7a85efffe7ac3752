"""The answer of `shisha-rt place split`: each heavy layer split over described devices, by their formulas. Shell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from shisha_rt.cli.options import parse_sizes, place_named, progress
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.outcome import Outcome

if TYPE_CHECKING:
    from shisha_rt.cli.place_split import SplitOptions
    from shisha_rt.machine.device import Device
    from shisha_rt.model.graph import Graph
    from shisha_rt.model.layers import Layer
    from shisha_rt.papers.gp.split_answer import SplitAnswer


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
    from shisha_rt.model.layers import group_layers
    from shisha_rt.model.reader.onnx_reader import read_model
    from shisha_rt.model.zoo import resolve_model
    from shisha_rt.papers.gp.fused import NetworkSplit
    from shisha_rt.papers.gp.methods import ProgramOptions, split_by
    from shisha_rt.papers.gp.of_device import device_links, split_device
    from shisha_rt.papers.gp.of_graph import split_layer_of
    from shisha_rt.papers.gp.problem import SplitLayer, SplitProblem
    from shisha_rt.papers.gp.split_answer import SplitAnswer, SplitRow, layer_shares

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
    from shisha_rt.papers.gp.of_graph import feeds_only

    pairs = enumerate(pairwise(able), 1)
    return tuple(at for at, (before, layer) in pairs if not feeds_only(graph, before, layer))


def _devices(machine_name: str, place_name: str | None) -> tuple[list[Device], str]:
    """The devices of a place, or of all places with one device each, and where they are, in words.

    Devices of the same name get the names of their places. Raises BadInput for several places with several devices.
    """
    from shisha_rt.machine.config.device_files import devices_of
    from shisha_rt.machine.config.machine_file import load_machine

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
