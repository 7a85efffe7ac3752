"""Costs of a model on the places of a machine, each taken as one processor: the input of schemes. Shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.measure.compile import Tell, proto_of, silent
from shisha_rt.measure.costs_of_model import layer_costs, told_costs
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.papers.partitiontuner.partition_ids import operator_ids, partition_id
from shisha_rt.papers.partitiontuner.partition_profile import profile_partitions
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_devices, costs_of_layers
from shisha_rt.placement.operator_groups import parse_patterns


@dataclass(frozen=True, slots=True)
class ProfiledProcessors:
    """Costs for schemes. `partitions`: operators and groups considered; `distinct`: how many different ids they have.

    `measured`: partitions that were not known and had to be measured, which took `seconds`. Described devices have
    formulas instead.
    """

    costs: ProcessorCosts
    partitions: int
    distinct: int
    measured: int = 0
    seconds: float = 0.0


def processor_costs(
    ready: ModelOnMachine, on_progress: Tell = silent, groups: Sequence[str] = ()
) -> ProfiledProcessors:
    """Costs of layers or, on a machine with devices, of partitions; measured if they are not known.

    `groups`: patterns as in `--group`; by default the paper's. Raises BadInput for a place with several devices, for
    groups if nothing is measured, and as measuring does.
    """
    compiled, machine, patterns = ready.compiled, ready.machine, parse_patterns(groups)
    if groups and all(operator_cost.devices[0].described for operator_cost in ready.operator_costs.values()):
        raise BadInput(
            f"group {groups[0]}: {machine.source} has no measured devices, expected no groups to measure",
            Error.DEVICE_UNFIT,
        )
    handover_s = HANDOVER_S / machine.time_scale
    if not ready.operator_costs:
        predicted = told_costs(layer_costs(ready, on_progress), machine.time_scale)
        processors = costs_of_layers(predicted, compiled.needs, handover_s)
        return ProfiledProcessors(processors, len(processors.spans), len(processors.spans))
    graph = compiled.model.graph
    checked = costs_of_devices(graph, machine, ready.operator_costs, handover_s)
    alone: dict[str, OperatorCosts] = {}
    measured, seconds = 0, 0.0
    together = {group.operators for group in checked.groups}
    for name, operator_cost in ready.operator_costs.items():
        if not operator_cost.devices[0].described:
            profile = profile_partitions(
                compiled, machine, machine.place(name), operator_cost.devices, patterns, on_progress
            )
            alone[name] = profile.costs
            together.update(group.operators for group in profile.costs.groups)
            measured, seconds = measured + profile.measured, seconds + profile.seconds
    costs = costs_of_devices(graph, machine, ready.operator_costs, handover_s, alone)
    partitions = [*((node,) for node in range(len(graph.operators))), *together]
    ids = operator_ids(graph, proto_of(compiled))
    return ProfiledProcessors(
        costs, len(partitions), len({partition_id(ids, partition) for partition in partitions}), measured, seconds
    )
