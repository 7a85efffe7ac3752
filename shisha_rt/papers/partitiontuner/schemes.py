"""The schemes that the PartitionTuner paper compares (Sections 2 and 4.2.1), on any number of devices.

In the paper, an operator's cost includes its transfers. If a problem states transfers apart, only `partitiontuner` and
`baseline` take them into account: `typeseq` decides by type, `opseq` by single operators.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from shisha_rt.outcome import HEURISTIC, LeftSeconds, Outcome, forever
from shisha_rt.papers.partitiontuner.unbarred import any_order_bound_s
from shisha_rt.placement.branches import parallel_branches
from shisha_rt.placement.check import cost, fastest_alone, feasible
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.placement.solution import ANY_ORDER_BOUND, PlacementSolution

_CONV: Final = "Conv"
_RELU: Final = "Relu"


def baseline(problem: Problem) -> PlacementSolution:
    """All nodes on the one device that is cheapest; INFEASIBLE if no device can run them all."""
    single = [(device,) * len(problem.nodes) for device in range(len(problem.devices))]
    best = min(single, key=lambda assignment: cost(problem, assignment).total_s)
    if cost(problem, best).total_s == math.inf:
        return PlacementSolution(None, Outcome.INFEASIBLE, reason="no device can run every node")
    return PlacementSolution(best, Outcome.FEASIBLE, reason=HEURISTIC)


def typeseq(problem: Problem, accelerator: str | None = None) -> PlacementSolution:
    """TypeSeq: Convs that the accelerator can run alone go there, with the Relus after them.

    The accelerator is the last device, unless named. Such a Relu reads only the Conv; the accelerator runs it alone or
    in a group. Every other node is on the first other device that can run it. Costs are ignored. Raises BadInput for an
    unknown device.
    """
    there = len(problem.devices) - 1 if accelerator is None else problem.device_named(accelerator, "accelerator")
    others = tuple([min(node.capable, key=lambda device: (device == there, device)) for node in problem.nodes])
    chosen = list(others)
    for index, node in enumerate(problem.nodes):
        if node.op == _CONV:
            able = there in node.capable
        else:
            makers = problem.makers[index]
            follows = len(makers) == 1 and all(problem.nodes[m].op == _CONV and chosen[m] == there for m in makers)
            able = node.op == _RELU and follows and there in problem.devices_of[index]
        if able:
            chosen[index] = there
    return PlacementSolution(feasible(problem, chosen, others), Outcome.FEASIBLE, reason=HEURISTIC)


def opseq(problem: Problem) -> PlacementSolution:
    """OpSeq: each node on the device that takes the least time for the node alone; ties: the first device."""
    return PlacementSolution(fastest_alone(problem), Outcome.FEASIBLE, reason=HEURISTIC)


def partitiontuner(problem: Problem, left_s: LeftSeconds = forever) -> PlacementSolution:
    """Minimise the sum of all costs, then let branches overlap in the schedule; outcome and bound are of the sum.

    The backend finder's dynamic programming over operators and groups is that of `exact`, which includes transfers and
    handles points where branches meet (ours: the paper does not say how).
    """
    solution = exact_placement(problem, left_s=left_s)
    assert solution.assignment is not None  # every node can run by itself
    schedule = schedule_of(problem, solution.assignment)
    statistics = {
        "partitions": float(len(schedule.partitions)),
        "parallel_branches": float(parallel_branches(problem)),
        "overlapping_branches": float(len(schedule.overlapping)),
        ANY_ORDER_BOUND: any_order_bound_s(problem),
    }
    return replace(solution, statistics={**solution.statistics, **statistics}, schedule=schedule)
