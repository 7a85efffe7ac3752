"""The board and the networks of the GP paper, as split problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.heavy import operand_shapes
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.gp.of_device import split_device
from shisha_rt.papers.gp.problem import FEATURES, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.planner.strategies import Execution, SplitObjective

BOARD: Final = "tx2-cyclone"
NETWORKS: Final[Mapping[str, str]] = {"AlexNet": "alexnet", "VGG-16": "vgg16", "ResNet-18": "resnet18"}
"""Names of the networks in the zoo, by title."""

CASES: Final[Mapping[str, tuple[SplitObjective, Execution]]] = {
    "latency, in sequence": ("latency", "sequence"),
    "latency, side by side": ("latency", "parallel"),
    "energy": ("energy", "sequence"),
}


@cache
def board_devices(one_for_all: bool = False) -> Mapping[str, SplitDevice]:
    """The board's devices: cpu, gpu, fpga.

    `one_for_all`: limits are for all layers together, as in Eqs. 10 and 14; else each layer has its own FPGA, as in
    Setup 2.
    """
    machine = load_machine(BOARD)
    return {
        place.name: replace(split_device(device, "energy", one_for_all), name=place.name)
        for place in machine.places
        for device in devices_of(machine, place)
    }


@cache
def convolutions_of(network: str) -> tuple[SplitLayer, ...]:
    """The convolutions of a network of the zoo, with shares of single channels, as in the paper."""
    graph = read_model(resolve_model(f"zoo:{network}", print)).graph
    operators = [
        operator
        for layer in group_layers(graph)
        for operator in graph.operators[layer.first_operator : layer.last_operator + 1]
        if operator.op_type == "Conv"
    ]
    return tuple(
        SplitLayer(f"conv{number}", _features(graph, operator), "N") for number, operator in enumerate(operators, 1)
    )


def _features(graph: Graph, operator: Operator) -> Mapping[str, float]:
    """Features of a convolution. C is the channels of one group: half of them in three layers of AlexNet."""
    _, kernel, made = operand_shapes(graph, operator)
    strides = operator.attributes.get("strides", (1,))
    assert isinstance(strides, tuple), "ONNX defines `strides` as integers"
    filters, channels, side, _ = kernel
    values = (made[2], made[3], channels, side, filters, strides[0])
    return dict(zip(FEATURES, map(float, values), strict=True))


def board_problem(
    network: str, objective: SplitObjective, execution: Execution, *, one_for_all: bool = False
) -> SplitProblem:
    """The split problem of a network. Filters are shared, as they must be in Figure 9 (61 of 64, with 3 channels)."""
    return SplitProblem(
        convolutions_of(NETWORKS[network]), tuple(board_devices(one_for_all).values()), objective, execution
    )


def totals(problem: SplitProblem, shares: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Seconds and joules of all layers, communication in full."""
    seconds, joules = (
        sum(
            layer_cost(replace(problem, objective=objective), layer, layer_shares)
            for layer, layer_shares in zip(problem.layers, shares, strict=True)
        )
        for objective in ("latency", "energy")
    )
    return seconds, joules


def alone(problem: SplitProblem, name: str) -> list[list[int]]:
    """(layers, devices): shares with everything on one device."""
    return [[layer.units if device.name == name else 0 for device in problem.devices] for layer in problem.layers]
