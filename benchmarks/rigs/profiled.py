"""A model whose costs are measured before a daemon starts, as that may take longer than the wait for a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shisha_rt.machine.machine import Machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import resolve_model

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


def profiled(
    model: str, machine: Machine, strategy: str, *, dims: Mapping[str, int] = _NONE, precision: str = "exact"
) -> ModelOnMachine:
    """Prepare a network of the zoo, with all that `serve --strategy STRATEGY` would measure first."""
    guided = strategy == "guided"
    path = resolve_model(f"zoo:{model}", print)
    ready = make_ready(path, machine, sizes=[InputSizes(dims)], precision=precision, teams=guided, on_progress=print)
    if guided:
        layer_costs(ready, print)
    return ready
