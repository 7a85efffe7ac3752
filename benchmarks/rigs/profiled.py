"""A model whose costs are measured before a daemon starts, as that may take longer than the wait for a daemon."""

from __future__ import annotations

from shisha_rt.machine.machine import Machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.zoo import resolve_model


def profiled(model: str, machine: Machine) -> ModelOnMachine:
    """Prepare a network of the zoo, with all that `serve` would measure first for `--strategy guided`."""
    ready = make_ready(resolve_model(f"zoo:{model}", print), machine, teams=True, on_progress=print)
    layer_costs(ready, print)
    return ready
