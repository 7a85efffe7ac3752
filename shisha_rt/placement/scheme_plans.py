"""The schemes of the PartitionTuner paper, and the schedule for the makespan, as plans over places.

The first four decide by the paper's problem, in which what an operator costs has its transfers in it; all but
`partitiontuner` run everything in sequence (Section 4.2.1). `forkjoin` goes by computing and moving apart, and takes of
its own schedule and the others', each in sections and by needs, with whole lanes as stages and without, and of a
schedule by lists the one that is predicted to be the quickest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shisha_rt.placement.branches import branches, structure
from shisha_rt.placement.forkjoin import forkjoin
from shisha_rt.placement.listed import listed
from shisha_rt.placement.narrowing import least_node_s
from shisha_rt.placement.partition_plan import Foretold, foretold, plan_by_needs, plan_in_lanes, plan_in_sections
from shisha_rt.placement.partition_problem import apart_problem, whole_problem
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.processors import ProcessorCosts
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.placement.schemes import baseline, opseq, partitiontuner, typeseq
from shisha_rt.placement.solution import LeftSeconds, Solution, forever
from shisha_rt.placement.solver_names import SchemeName
from shisha_rt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class SchemePlan:
    """`assignment` (nodes,): the place (index) of each. `lower_bound_s`: no schedule over these takes less.

    `parallel_branches` and `overlapping` count branches of the network, and partitions that run beside others.
    """

    scheme: SchemeName
    plan: Plan
    assignment: tuple[int, ...]
    foretold: Foretold
    lower_bound_s: float
    parallel_branches: int
    overlapping: int


def scheme_plan(scheme: SchemeName, costs: ProcessorCosts, left_s: LeftSeconds = forever) -> SchemePlan | None:
    """The quickest that the scheme has, of equally quick ones that of the fewest stages.

    None where no place runs some node by itself, or `baseline` finds none that runs all.
    """
    problem = whole_problem(costs)
    if not all(node.capable for node in (*problem.nodes, *apart_problem(costs).nodes)):
        return None
    least_s = _least_latency_s(costs)
    parallel = sum(branch.level != branch.name for branch in branches(problem))
    found = (
        SchemePlan(scheme, plan, assignment, foretold(costs, plan), least_s, parallel, overlapping)
        for plan, assignment, overlapping in _plans(scheme, costs, problem, left_s)
    )
    return min(found, key=lambda one: (one.foretold.latency_s, len(one.plan.stages)), default=None)


_Found = tuple[Plan, tuple[int, ...], int]


def _plans(scheme: SchemeName, costs: ProcessorCosts, problem: Problem, left_s: LeftSeconds) -> Iterator[_Found]:
    """Each with its assignment, and how many of its partitions run beside others; `problem` is the paper's."""
    match scheme:
        case "baseline" | "typeseq" | "opseq":
            solved = {"baseline": baseline, "typeseq": typeseq, "opseq": opseq}[scheme](problem)
            if solved.assignment is not None:
                yield _in_sections(costs, problem, solved.assignment, in_sequence=True)
        case "partitiontuner":
            yield _in_sections(costs, problem, _assignment(partitiontuner(problem, left_s)))
        case "forkjoin":
            apart = apart_problem(costs)
            for its, solved in (
                (apart, forkjoin(apart, left_s)),
                (problem, partitiontuner(problem, left_s)),
                (problem, baseline(problem)),
            ):
                if solved.assignment is not None:
                    schedule = schedule_of(its, solved.assignment, structure(its))
                    for plan in (plan_in_sections(costs, schedule), plan_in_lanes(costs, schedule)):
                        yield plan, tuple(solved.assignment), len(schedule.overlapping)
                        yield plan_by_needs(costs, plan), tuple(solved.assignment), len(schedule.overlapping)
            by_lists = listed(costs, left_s)
            if by_lists is not None:
                plan, assignment = by_lists
                yield plan, assignment, _overlapping(plan)


def _overlapping(plan: Plan) -> int:
    """How many stages are neither before nor after some other, elsewhere."""
    before = [plan.ancestors(stage) for stage in range(len(plan.stages))]
    return sum(
        any(
            a not in before[b] and b not in before[a] and plan.stages[a].place != plan.stages[b].place
            for b in range(len(before))
            if b != a
        )
        for a in range(len(before))
    )


def _assignment(solution: Solution) -> tuple[int, ...]:
    assert solution.assignment is not None  # every node can run by itself somewhere
    return solution.assignment


def _in_sections(
    costs: ProcessorCosts, problem: Problem, assignment: Assignment, *, in_sequence: bool = False
) -> _Found:
    items = tuple(range(len(problem.nodes))) if in_sequence else structure(problem)
    schedule = schedule_of(problem, assignment, items)
    return plan_in_sections(costs, schedule), tuple(assignment), len(schedule.overlapping)


def _least_latency_s(costs: ProcessorCosts) -> float:
    """Every node at its least: the longest way through the network, or all of it shared out evenly, if that is more."""
    problem = apart_problem(costs)
    least_s = [float(min(row)) for row in least_node_s(problem)]
    ends_s = list(least_s)
    for tensor in sorted(problem.tensors, key=lambda tensor: tensor.producer):
        for reader in tensor.consumers:
            ends_s[reader] = max(ends_s[reader], ends_s[tensor.producer] + least_s[reader])
    return max(*ends_s, math.fsum(least_s) / len(costs.places))
