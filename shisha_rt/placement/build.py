"""Builds a placement problem from a graph and the costs of its operators on devices.

Nodes are the graph's operators in its order; tensors are those that an operator makes and another reads. Weights and
the graph's inputs are in every memory from the start, as the papers' start node costs nothing, and the graph's outputs
cost nothing to hand out. For a stage of a pipeline `stage_problem` adds the costs of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.costs.device_costs import transfer_cost_s
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.placement.dcg import TensorKind
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor, TransferCounting


def build_problem(graph: Graph, costs: OperatorCosts, transfer_counting: TransferCounting = "once") -> Problem:
    """The problem of running a graph on the devices of `costs`: at least one, with distinct names.

    Each operator must be able to run on some device by itself, as solvers expect.
    Raises BadInput for an operator that no device can run, and for devices of one memory that state different costs of
    moving into it; ValueError if a cost is unknown (nan).
    """
    _check_known(costs)
    check_capable(graph, costs, alone=True)
    return unchecked_problem(graph, costs, transfer_counting)


def unchecked_problem(graph: Graph, costs: OperatorCosts, transfer_counting: TransferCounting = "once") -> Problem:
    """As `build_problem`, but without a check that some device can run each operator."""
    _check_known(costs)
    devices = costs.devices
    memories = tuple(dict.fromkeys(device.memory for device in devices))
    doors = _doors(devices)
    return Problem(
        devices=tuple(device.name for device in devices),
        memories=memories,
        memory_of=tuple(memories.index(device.memory) for device in devices),
        nodes=tuple(
            Node(operator.name, operator.op_type, tuple(cost_s))
            for operator, cost_s in zip(graph.operators, costs.time_s.tolist(), strict=True)
        ),
        tensors=tuple(
            ProblemTensor(
                name,
                producer,
                graph.consumers[name],
                tuple(
                    tuple(transfer_cost_s(graph.tensors[name], source, doors[memory]) for memory in memories)
                    for source in devices
                ),
            )
            for name, producer in graph.producer.items()
            if name in graph.consumers
        ),
        groups=tuple(Group(group.operators, group.device, group.time_s) for group in costs.groups),
        transfer_counting=transfer_counting,
        processors=_processors(devices),
    )


def _check_known(costs: OperatorCosts) -> None:
    if np.isnan(costs.time_s).any():
        raise ValueError("an operator's cost is nan, expected seconds, or inf where a device cannot run it")


def check_capable(graph: Graph, costs: OperatorCosts, *, alone: bool = False) -> None:
    """Raise BadInput for an operator of the graph that no device can run. `alone`: in a group does not count."""
    how = " by itself" if alone and costs.groups else ""
    for operator, can in zip(graph.operators, costs.capable_alone if alone else costs.capable, strict=True):
        if not can:
            names = ", ".join(dict.fromkeys(device.name for device in costs.devices))
            raise BadInput(
                f"{graph.name}: operator {operator.op_type} ({operator.name!r}): no device can run it{how} of {names}, "
                "expected at least one that can",
                Error.DEVICE_UNFIT,
            )


def tensor_kinds(graph: Graph, problem: Problem) -> tuple[TensorKind, ...]:
    """(tensors,): what the transfer costs of each tensor of a graph's problem depend on besides the devices."""
    tensors = [graph.tensors[tensor.name] for tensor in problem.tensors]
    return tuple(TensorKind(tensor.datatype, tensor.size_bytes) for tensor in tensors)


def _processors(devices: Sequence[Device]) -> tuple[int, ...]:
    """(devices,) processors: described devices with `transfer_in` have one each, all others share the place's cores."""
    names = [device.name if device.described and device.transfer_in is not None else "" for device in devices]
    return tuple(list(dict.fromkeys(names)).index(name) for name in names)


def _doors(devices: Sequence[Device]) -> Mapping[str, Device]:
    """Map each memory to a device that states the cost of moving into it."""
    doors: dict[str, Device] = {}
    for device in devices:
        other = doors.setdefault(device.memory, device)
        if _way_in(device) != _way_in(other):
            raise BadInput(
                f"{device.source}: shares memory {device.memory} with {other.name}, "
                "expected the same links, transfer_in and precision",
                Error.DEVICE_UNFIT,
            )
    return doors


def _way_in(device: Device) -> tuple[object, ...]:
    """All that the cost of moving into a device's memory depends on."""
    return device.transfer_in, device.precision, device.links
