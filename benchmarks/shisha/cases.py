"""A network on one of the paper's machines, and results of searches on it. Pure except for reading the network.

The paper counts 52 layers in YOLOv3: the convolutions of its backbone. With its heads there are 75; both are here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.machine.machine import Place
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import Layer, group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.rivals import rival
from shisha_rt.papers.shisha.search import Limit
from shisha_rt.papers.simulate.paper_machines import paper_machine
from shisha_rt.papers.simulate.roofline import roofline_costs
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.seed import seed
from shisha_rt.planner.shards.balance import balanced
from shisha_rt.planner.shards.pieces import Piece
from shisha_rt.planner.strategies import DEFAULT_ALPHA, RivalName
from shisha_rt.planner.tune import DEFAULT_HEURISTIC, Heuristic, shisha

SYNTHNET, RESNET, YOLO, YOLO_HEADS = "SynthNet", "ResNet-50", "YOLOv3", "YOLOv3 with heads"
NETWORKS: Final[Mapping[str, str]] = {SYNTHNET: "synthnet", RESNET: "resnet50", YOLO: "darknet53", YOLO_HEADS: "yolov3"}
PAPERS: Final = (SYNTHNET, RESNET, YOLO)
FOUR_PLACES: Final = "C2"
EIGHT_PLACES: Final = "C5"
"""Ours: the paper states how many places Figures 4 and 5 have, not which. C5 has equally many fast and slow ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """`network`: a title; `weights` (layers,): Eq. 1."""

    network: str
    configuration: str
    places: Sequence[Place]
    weights: Sequence[float]
    costs: Costs
    optimum_fps: float

    @property
    def space(self) -> Space:
        stage_count = min(len(self.places), len(self.weights))
        names = [place.name for place in self.places]
        return space_of(len(self.weights), names, stage_count=stage_count, kinds=kinds_of(self.costs))


@dataclass(frozen=True, slots=True)
class Run:
    """`gains`: (virtual seconds, frames per second) of each best plan so far; the last one is the solution.

    `time_s`: virtual time of all trials; `trials`: number of plans measured. Shisha's walk ends when it would only
    repeat itself: see `paper_trials`. `setup_wall_s`: wall seconds before the first trial, which are not included in
    the virtual times.
    """

    gains: tuple[tuple[float, float], ...]
    time_s: float
    trials: int
    trials_to_best: int
    setup_wall_s: float = 0.0

    @property
    def fps(self) -> float:
        return self.gains[-1][1]

    @property
    def time_to_best_s(self) -> float:
        return self.gains[-1][0]

    @property
    def paper_trials(self) -> int:
        """Number of trials as the paper counts Shisha's: alpha after the last gain, with plans measured before."""
        return self.trials_to_best + DEFAULT_ALPHA


def case(network: str, configuration: str, slowdown: float = 3.0) -> Case:
    graph, layers = _read(NETWORKS[network])
    machine = paper_machine(configuration, slowdown)
    costs = roofline_costs(graph, layers, machine)
    plan = exact_plan(costs).plan
    assert plan is not None  # every place runs every layer, and no memory is limited
    optimum_fps = CostsEvaluator(costs).measurement_of(plan).throughput_fps
    return Case(network, configuration, machine.places, [layer.weight for layer in layers], costs, optimum_fps)


def best_with_assignment_fps(case: Case, start: Plan) -> float:
    """The best rate that Algorithm 2 could reach, with the places in the order of `start`."""
    layers = [Piece(layer, layer) for layer in range(len(case.weights))]
    _, plan = balanced(case.costs, layers, [((place,),) for place in start.places])
    assert plan is not None  # every place runs every layer, and no memory is limited
    return CostsEvaluator(case.costs).measurement_of(plan).throughput_fps


def tuned(case: Case, start: Plan, heuristic: Heuristic = DEFAULT_HEURISTIC, alpha: int = DEFAULT_ALPHA) -> Run:
    """Run Algorithm 2 from `start`."""
    return _run(run(shisha(start, case.places, alpha=alpha, balance=heuristic.balance), SimulatedEvaluator(case.costs)))


def seeded(case: Case, heuristic: Heuristic = DEFAULT_HEURISTIC, rng: random.Random | None = None) -> Plan:
    """Run Algorithm 1."""
    return seed(case.weights, case.places, assign=heuristic.assign, rng=rng)


def searched(case: Case, name: RivalName, rng: random.Random, limit: Limit) -> Run:
    start = seeded(case)
    search = rival(name, case.space, weights=case.weights, places=case.places, seed=start, rng=rng, limit=limit)
    return _run(run(search, SimulatedEvaluator(case.costs)), search.setup_s)


def _run(result: Result, setup_wall_s: float = 0.0) -> Run:
    clock_s = accumulate((trial.measurement.took_s for trial in result.trials), initial=0.0)
    next(clock_s)
    gains = tuple(
        (at_s, trial.measurement.throughput_fps)
        for at_s, trial in zip(clock_s, result.trials, strict=True)
        if trial.is_best
    )
    return Run(gains, result.trial_time_s, len(result.trials), result.trials_to_best, setup_wall_s)


@lru_cache
def _read(zoo_name: str) -> tuple[Graph, tuple[Layer, ...]]:
    graph = read_model(resolve_model(f"zoo:{zoo_name}")).graph
    return graph, group_layers(graph)
