"""Costs of layers on a machine whose places have devices, by the best placement of their operators.

A stage's time is the predicted time of its placement, slowed as its place is: the same target as for measured layers
(`costs.layer_costs`), with the prediction instead of the CPU time. The predictions of single layers do not add up to
it, as a stage transfers nothing between its own layers and its devices are chosen for all of them together. So layers
get fitted times (`costs.fit`), which agree with the predictions for spans as long as stages.

Stages are cut from the cleaned graph: every cut is legal, and handing tensors on costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import first_alike
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.layer_costs import PacedCosts, additive, fit_stages
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.machine import Machine
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import Layer, operators_of
from shisha_rt.placement.stage_problem import place_stage
from shisha_rt.plan.plan import Team

_LEAST_S: Final = 1e-9  # least time of a stage, whatever a description says: the fit divides by it


class PlacedCosts(PacedCosts):
    """Costs by the placement of operators on devices.

    `costs_of_place` has the costs of the graph's operators on the devices of each place, `costs_of_team` on those of
    each team. Seconds are inf if none of the devices can run one of the operators.
    """

    def __init__(
        self,
        graph: Graph,
        layers: tuple[Layer, ...],
        machine: Machine,
        costs_of_place: Mapping[str, OperatorCosts],
        costs_of_team: Mapping[Team, OperatorCosts] | None = None,
    ) -> None:
        ones = {
            team: PlacedCosts(graph, layers, machine.as_one(team), {team[0]: costs})
            for team, costs in (costs_of_team or {}).items()
        }
        super().__init__(graph, layers, machine, ones)
        self._costs_of_place = costs_of_place
        self._first_alike = first_alike(costs_of_place)
        self._stages_s: dict[tuple[str, int, int], float] = {}

    def costs(self) -> Costs:
        time_s = np.array([self._layer_times_s(place.name) for place in self._machine.places]).T
        placed = additive(self._layers, self._machine, time_s, np.zeros(len(self._layers) - 1))
        same = len({costs.devices for costs in self._costs_of_place.values()}) == 1
        return replace(placed, teams=self._teams(), mixed=same)

    def segment_cpu_s(self, first: int, last: int, place: str) -> float:
        return self._machine.place(place).threads * self._placed_s(first, last, place)

    def _layer_times_s(self, place: str) -> Floats:
        """(layers,) seconds, fitted within each sequence of layers that the place can run; nan for other layers."""
        runs = groupby(range(len(self._layers)), key=lambda layer: self._capable(place, layer, layer))
        span_s = partial(self._span_s, place_name=place)
        times_s = [
            fit_stages(self._graph, self._layers, [(layer, layer) for layer in run], span_s)
            if capable
            else np.full(len(list(run)), math.nan)
            for capable, run in runs
        ]
        return np.concatenate(times_s)

    def _capable(self, place: str, first: int, last: int) -> bool:
        costs = self._costs_of_place[place].part(*operators_of(self._layers, first, last))
        return bool((costs.capable_alone if len(costs.devices) > 1 else costs.capable).all())

    def _placed_s(self, first: int, last: int, place: str) -> float:
        """Seconds of the best placement at full speed."""
        key = self._first_alike[place], first, last
        if key not in self._stages_s:
            self._stages_s[key] = self._solved_s(*key)
        return self._stages_s[key]

    def _solved_s(self, place: str, first: int, last: int) -> float:
        if not self._capable(place, first, last):
            return math.inf
        operators = operators_of(self._layers, first, last)
        return max(_LEAST_S, place_stage(self._graph, *operators, self._costs_of_place[place]).cost_s)
