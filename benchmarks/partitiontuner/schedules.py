"""How well a schedule's time is predicted, and how good our schedules are on random graphs.

On graphs of up to 30 nodes they are compared with a proven bound, on smaller ones with all assignments in all orders.

Random schedules of a network on the emulated board: each operator, or group that the NPU runs as one, is on a random
place that can run it; the probability of the NPU is drawn, too. The emulator uses the same formulas as the prediction,
so errors are due to hand-overs. They are corrected by the mean hand-over measured in the *other* schedules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

import numpy as np

from benchmarks.partitiontuner.cases import ready_for
from benchmarks.partitiontuner.live import Asked, asked
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.report.results import Row
from shisha_rt.machine.machine import Machine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.forkjoin import fork_join_blocks, forkjoin
from shisha_rt.papers.partitiontuner.measured_processors import processor_costs
from shisha_rt.papers.partitiontuner.partition_plan import foretold, plan_in_sections
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.placement.branches import structure
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s
from tests.papers.partitiontuner.every_order import least_of_any_order_s, small_problem
from tests.placement.random_problems import SHAPES, random_problem

MODELS: Final = ("squeezenet", "resnet18")
"""Many small partitions in branches, and few large ones."""
_NODES: Final = 30


@dataclass(frozen=True, slots=True)
class Tried:
    """A random schedule, predicted and measured, in the board's seconds.

    `handovers`: number on a frame's longest path. `own_stages_s`: measured time in stages.
    """

    network: str
    partitions: int
    overlapping: int
    handovers: int
    stages_s: float
    told_handover_s: float
    own_stages_s: float
    measured_s: float

    @property
    def handover_s(self) -> float:
        """Mean seconds of one hand-over."""
        return (self.measured_s - self.own_stages_s) / self.handovers


def random_assignment(rng: random.Random, problem: Problem, device: int) -> tuple[int, ...]:
    """(nodes,): a random choice of the nodes that `device` can run, others on the first other device that can run them.

    A group is drawn as one; if it is not chosen, its nodes are drawn one by one.
    """
    share = rng.random()
    found = [min(node.capable, key=lambda its: (its == device, its)) for node in problem.nodes]
    free = set(range(len(problem.nodes)))
    for group in problem.groups:
        if group.device == device and free.issuperset(group.nodes) and rng.random() < share:
            for node in group.nodes:
                found[node] = device
            free.difference_update(group.nodes)
    for index in sorted(free):
        if device in problem.nodes[index].capable and rng.random() < share:
            found[index] = device
    return tuple(found)


def tried(machine: Machine, source: str, count: int, frames: int) -> Iterator[Tried]:
    """Run `count` schedules, divided among the networks; `source`: the machine as an argument of `serve`."""
    for number, model in enumerate(MODELS):
        own = count // len(MODELS) + (number < count % len(MODELS))
        if own:
            path = zoo_path(model, print)
            costs = processor_costs(ready_for(path, machine)).costs
            with asked(str(path), source, ("--strategy", "baseline")) as side:
                for turn in range(own):
                    print(f"  {NETWORKS[model].title}: schedule {turn + 1} of {own}", flush=True)
                    yield _tried(model, costs, side, random.Random(f"{model} {turn}"), frames)


def _tried(model: str, costs: ProcessorCosts, side: Asked, rng: random.Random, frames: int) -> Tried:
    problem = apart_problem(costs)
    assignment = random_assignment(rng, problem, len(costs.places) - 1)
    schedule = schedule_of(problem, assignment, structure(problem))
    plan = plan_in_sections(costs, schedule)
    _set(side, plan)
    for _ in range(frames):
        side.send()
    measured, told = side.measured(), foretold(costs, plan)
    return Tried(
        network=NETWORKS[model].title,
        partitions=len(plan.stages),
        overlapping=len(schedule.overlapping),
        handovers=round(latency_s(plan, [(1.0,) for _ in plan.stages])),
        stages_s=told.latency_s - told.handover_s,
        told_handover_s=told.handover_s,
        own_stages_s=measured.stages_s,
        measured_s=measured.latency_s,
    )


def _set(side: Asked, plan: Plan) -> None:
    """Make a plan live, and run a frame to warm up."""
    settled = side.client.set_plan(plan)
    if settled["outcome"] != "live":
        raise RuntimeError(f"{plan} is {settled['outcome']}: {settled['reason']}")
    side.plan = plan
    side.send()
    side.forget()


def schedule_rows(found: Sequence[Tried]) -> list[Row]:
    return [
        {
            "network": one.network,
            "partitions": one.partitions,
            "in parallel": one.overlapping,
            "hand-overs": one.handovers,
            "predicted ms": 1e3 * (one.stages_s + one.told_handover_s),
            "of it hand-overs": 1e3 * one.told_handover_s,
            "measured ms": 1e3 * one.measured_s,
            "stages off %": 100 * (one.own_stages_s / one.stages_s - 1),
            "error % without hand-overs": _error(one, 0.0),
            "error % as told": _error(one, one.told_handover_s / one.handovers),
            "error % by those measured": _error(one, _others_s(found, one)),
            "hand-over us": 1e6 * one.handover_s,
        }
        for one in found
    ]


def _error(one: Tried, handover_s: float) -> float:
    """Error of the prediction in percent, with this time of a hand-over."""
    return 100 * (one.measured_s / (one.stages_s + one.handovers * handover_s) - 1)


def _others_s(found: Sequence[Tried], one: Tried) -> float:
    """The mean hand-over of all other schedules; its own if there are none."""
    return mean([other.handover_s for other in found if other is not one] or [one.handover_s])


def schedule_summary(found: Sequence[Tried]) -> list[Row]:
    """Errors of predictions in percent: without hand-overs, with assumed ones, and with measured ones."""
    rows = schedule_rows(found)
    return [
        {
            "hand-overs": how,
            "schedules": len(rows),
            "median off %": float(np.median(off)),
            "95% within %": float(np.quantile(off, 0.95)),
            "worst %": float(off.max()),
        }
        for how in ("without hand-overs", "as told", "by those measured")
        for off in [np.abs([float(str(row[f"error % {how}"])) for row in rows])]
    ]


def graph_rows(count: int) -> list[Row]:
    """On random graphs of every shape, on two devices: our schedules over the bounds that they prove."""
    over: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for seed in range(count):
        rng = random.Random(seed)
        shape = SHAPES[seed % len(SHAPES)]
        problem = random_problem(rng, shape, rng.randint(2, _NODES), 2, groups=rng.choice((0, 3)))
        found = fork_join_blocks(problem)
        assert found.schedule is not None
        assert found.lower_bound_s is not None
        over[shape].append(_over(found.schedule.makespan_s, found.lower_bound_s))
    everywhere = [ratio for ratios in over.values() for ratio in ratios]
    return [_distances(shape, ratios) for shape, ratios in (*over.items(), ("all", everywhere)) if ratios]


def order_rows(count: int) -> list[Row]:
    """On random graphs of up to 12 nodes: schedules over the least makespan of any assignment in any order."""
    ways: dict[str, list[float]] = {"blocks with barriers": [], "forkjoin": []}
    for seed in range(count):
        problem = small_problem(seed)
        least_s = least_of_any_order_s(problem)
        for way, found in zip(ways, (fork_join_blocks(problem), forkjoin(problem)), strict=True):
            assert found.schedule is not None
            ways[way].append(_over(found.schedule.makespan_s, least_s))
    return [
        {
            "schedules": way,
            "graphs": len(over),
            "above the least": sum(ratio > 1 + 1e-9 for ratio in over),
            "over it, median": median(over),
            "95% within": float(np.quantile(over, 0.95, method="higher")),
            "worst": max(over),
        }
        for way, over in ways.items()
    ]


def _over(makespan_s: float, bound_s: float) -> float:
    return makespan_s / bound_s if bound_s else 1.0 if makespan_s == 0 else math.inf


def _distances(shape: str, ratios: Sequence[float]) -> Row:
    return {
        "shape": shape,
        "graphs": len(ratios),
        "proven optimal": sum(ratio <= 1 + 1e-9 for ratio in ratios),
        "over the bound, median": median(ratios),
        "95% within": float(np.quantile(ratios, 0.95, method="higher")),
        "worst": max(ratios),
    }
