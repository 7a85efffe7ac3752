"""The model of the paper's board: the devices of `npu-board`, and results of schemes for a network on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_devices
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import SchemeName

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
    found = scheme_plan(scheme, costs)
    assert found is not None  # the CPU runs all
    return cell_of(found, [operator.op_type for operator in graph.operators])


def cell_of(found: SchemePlan, ops: Sequence[str]) -> Cell:
    """The cell of a plan. `ops` (operators,): types. The last place is the NPU."""
    there = [op for op, place in zip(ops, found.assignment, strict=True) if place == len(_MACHINE.places) - 1]
    return Cell(
        ms=1e3 * (found.foretold.latency_s - found.foretold.handover_s),
        plan=found.plan,
        convs_on_npu=there.count("Conv"),
        relus_on_npu=there.count("Relu"),
        partitions=len(found.plan.stages),
        overlapping=found.overlapping,
        parallel_branches=found.parallel_branches,
    )
