"""The paper's networks and figures, and the model of its board: the devices of `npu-board`, and schemes on them.

Table 2 says microseconds; milliseconds are assumed. A Concat of Relus only becomes one Relu after the Concat, as by
the paper's compiler; no value changes. That it does so follows from the paper's counts: GoogLeNet has 18 Relus right
after a Conv on the NPU, SqueezeNet 8; in their files there are 52 and 24.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
from onnx import helper

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_devices
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import SchemeName

# --- the paper's figures ----------------------------------------------------------------------------------------------


SCHEMES: Final[Mapping[SchemeName, str]] = {
    "baseline": "CPU alone",
    "typeseq": "TypeSeq",
    "opseq": "OpSeq",
    "partitiontuner": "PartitionTuner",
}
"""Schemes in the order of the tables."""


@dataclass(frozen=True, slots=True)
class Published:
    """`size_mb` and `ms` (schemes,): of Table 2; other tuples, of Tables 3 and 4: (schemes except the CPU alone,)."""

    title: str
    size_mb: int
    ms: tuple[float, float, float, float]
    parallel_branches: int
    convs: int
    convs_on_npu: tuple[int, int, int]
    relus_on_npu: tuple[int, int, int]
    overlapping: int
    partitions: tuple[int, int, int]


NETWORKS: Final[Mapping[str, Published]] = {
    "zfnet512": Published(
        "ZFNet", 349, (2435.17, 1694.38, 1699.78, 1694.38), 0, 5, (4, 4, 4), (6, 0, 6), 0, (5, 10, 5)
    ),
    "alexnet": Published("AlexNet", 244, (860.10, 810.73, 810.92, 810.73), 0, 5, (1, 1, 1), (1, 0, 1), 0, (3, 3, 3)),
    "inception_v1": Published(
        "GoogLeNet", 171, (1465.80, 482.30, 507.09, 482.30), 36, 57, (52, 49, 52), (18, 0, 18), 0, (34, 69, 34)
    ),
    "resnet50": Published(
        "ResNet-50", 103, (3183.74, 636.19, 684.15, 635.04), 8, 53, (52, 52, 52), (48, 0, 32), 0, (34, 98, 34)
    ),
    "resnext50": Published(
        "ResNeXt-50", 100, (6638.85, 3959.94, 3952.10, 3928.46), 8, 53, (36, 36, 36), (16, 0, 9), 0, (65, 65, 65)
    ),
    "resnet18": Published(
        "ResNet-18", 47, (1269.18, 249.03, 262.57, 248.49), 6, 20, (19, 18, 18), (16, 0, 8), 2, (17, 33, 18)
    ),
    "squeezenet": Published(
        "SqueezeNet", 5, (298.64, 195.46, 190.83, 185.62), 16, 26, (24, 18, 18), (8, 0, 1), 8, (25, 29, 23)
    ),
}
"""Networks by their names in the zoo, in the order of the tables."""


# --- relus sunk under a Concat ----------------------------------------------------------------------------------------


def sunk_path(network: str, folder: Path) -> Path:
    """Write a network of the zoo with its Relus sunk to `folder`; return the file."""
    path = folder / f"{network}.onnx"
    onnx.save(sunk(onnx.load(zoo_path(network))), path)
    return path


def sunk(model: onnx.ModelProto) -> onnx.ModelProto:
    """A new model with the same inputs and outputs. Relus that something else reads, too, are not sunk."""
    made = {name: node for node in model.graph.node for name in node.output}
    reads = Counter(name for node in model.graph.node for name in node.input)
    reads.update(output.name for output in model.graph.output)
    gone: set[str] = set()
    nodes = []
    for node in model.graph.node:
        relus = [made.get(name) for name in node.input]
        if node.op_type == "Concat" and all(
            relu is not None and relu.op_type == "Relu" and reads[relu.output[0]] == 1 for relu in relus
        ):
            gone.update(node.input)
            joined = f"{node.output[0]}/before_relu"
            concat = onnx.NodeProto()
            concat.CopyFrom(node)
            concat.input[:] = [relu.input[0] for relu in relus if relu is not None]
            concat.output[:] = [joined]
            nodes += [concat, helper.make_node("Relu", [joined], list(node.output), f"{node.output[0]}/relu")]
        else:
            nodes.append(node)
    rebuilt = onnx.ModelProto()
    rebuilt.CopyFrom(model)
    rebuilt.graph.ClearField("node")
    rebuilt.graph.node.extend(node for node in nodes if not gone.intersection(node.output))
    stale = [value for value in rebuilt.graph.value_info if value.name in gone]
    for value in stale:
        rebuilt.graph.value_info.remove(value)
    return rebuilt


# --- the board --------------------------------------------------------------------------------------------------------


BOARD: Final = "npu-board"
MODELLED: Final = "modelled, device descriptions, without hand-overs"

_MACHINE: Final = load_machine(BOARD)


@dataclass(frozen=True, slots=True)
class Cell:
    """Predicted time of a scheme for a network, on the board alone, and numbers of its operators by place."""

    ms: float
    plan: Plan
    convs_on_npu: int
    relus_on_npu: int
    partitions: int
    overlapping: int
    parallel_branches: int


def board_devices() -> tuple[Device, Device]:
    """CPU and NPU."""
    (cpu,), (npu,) = (devices_of(_MACHINE, place) for place in _MACHINE.places)
    return cpu, npu


def board_costs(graph: Graph, devices: Sequence[Device]) -> ProcessorCosts:
    """Costs of computing and moving; hand-overs between stages cost nothing here."""
    costs = {
        place.name: described_costs(graph, [device]) for place, device in zip(_MACHINE.places, devices, strict=True)
    }
    return costs_of_devices(graph, _MACHINE, costs, handover_s=0.0)


def cell(graph: Graph, scheme: SchemeName, costs: ProcessorCosts) -> Cell:
    planned = scheme_plan(scheme, costs)
    assert planned is not None  # the CPU runs all
    return cell_of(planned, [operator.op_type for operator in graph.operators])


def cell_of(planned: SchemePlan, ops: Sequence[str]) -> Cell:
    """The cell of a plan. `ops` (operators,): types. The last place is the NPU."""
    there = [op for op, place in zip(ops, planned.assignment, strict=True) if place == len(_MACHINE.places) - 1]
    return Cell(
        ms=1e3 * (planned.foretold.latency_s - planned.foretold.handover_s),
        plan=planned.plan,
        convs_on_npu=there.count("Conv"),
        relus_on_npu=there.count("Relu"),
        partitions=len(planned.plan.stages),
        overlapping=planned.overlapping,
        parallel_branches=planned.parallel_branches,
    )
