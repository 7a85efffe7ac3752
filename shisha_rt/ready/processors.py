"""What a model costs on the places of a machine, each taken for one processor: what schemes schedule partitions by."""

from __future__ import annotations

from typing import Final

from shisha_rt.placement.processors import ProcessorCosts, costs_of_devices, costs_of_layers
from shisha_rt.ready.model_on_machine import ModelOnMachine, Tell
from shisha_rt.ready.told_costs import told_costs

HANDOVER_S: Final = 100e-6
"""From a stage's end, by way of the daemon, to the start of the next, as far as no frame has told."""


def processor_costs(ready: ModelOnMachine, on_progress: Tell | None = None) -> ProcessorCosts:
    """Layers are measured first if need be. Raises BadInput for a place of several devices, and as measuring does."""
    compiled, machine = ready.compiled, ready.machine
    handover_s = HANDOVER_S / machine.time_scale
    if ready.operator_costs:
        return costs_of_devices(compiled.model.graph, machine, ready.operator_costs, handover_s)
    costs = told_costs(ready.layer_costs(on_progress), machine.time_scale)
    return costs_of_layers(costs, compiled.needs, handover_s)
