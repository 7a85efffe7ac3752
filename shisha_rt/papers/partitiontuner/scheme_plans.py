"""The schemes of the PartitionTuner paper, and `forkjoin`, the schedule for the least makespan, as plans over places.

The paper's four schemes solve its problem, in which an operator's cost includes transfers; all but `partitiontuner` run
everything in sequence (Section 4.2.1). `forkjoin` takes the plan of the least predicted latency of these:

- its own schedule, in which transfers are apart from operators, and those of `partitiontuner` and `baseline`, each with
  and without barriers, and with or without whole lanes as stages;
- a list schedule;
- for few nodes, a schedule without barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from shisha_rt.costs.costs import Costs
from shisha_rt.outcome import LeftSeconds, forever, within
from shisha_rt.papers.partitiontuner.forkjoin import fork_join_blocks
from shisha_rt.papers.partitiontuner.listed import listed
from shisha_rt.papers.partitiontuner.partition_plan import (
    Foretold,
    foretold,
    plan_by_needs,
    plan_in_lanes,
    plan_in_sections,
    plan_in_turn,
)
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem, whole_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_layers
from shisha_rt.papers.partitiontuner.schemes import baseline, opseq, partitiontuner, typeseq
from shisha_rt.papers.partitiontuner.unbarred import any_order_bound_s, can_be_tried, unbarred
from shisha_rt.placement.branches import parallel_branches
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import SchemeName

_MOST_BRANCHES: Final = 4
"""Most places that branches are spread over."""


@dataclass(frozen=True, slots=True)
class SchemePlan:
    """`assignment` (nodes,): the place (index) of each. `lower_bound_s`: no schedule over these places takes less.

    `parallel_branches`: number of parallel branches of the network; `overlapping`: number of partitions that may run in
    parallel with others.
    """

    scheme: SchemeName
    plan: Plan
    assignment: tuple[int, ...]
    foretold: Foretold
    lower_bound_s: float
    parallel_branches: int
    overlapping: int


def scheme_plan(scheme: SchemeName, costs: ProcessorCosts, left_s: LeftSeconds = forever) -> SchemePlan | None:
    """The scheme's plan of the least predicted latency; ties: the fewest stages.

    None if no place can run some node alone or, for `baseline`, no place can run all nodes.
    """
    problem, apart = whole_problem(costs), apart_problem(costs)
    if not all(node.capable for node in (*problem.nodes, *apart.nodes)):
        return None
    candidates = [
        (plan, assignment, foretold(costs, plan)) for plan, assignment in _plans(scheme, costs, problem, left_s)
    ]
    if not candidates:
        return None
    plan, assignment, prediction = min(candidates, key=lambda option: (option[2].latency_s, len(option[0].stages)))
    parallel = parallel_branches(problem)
    return SchemePlan(scheme, plan, assignment, prediction, any_order_bound_s(apart), parallel, _overlapping(plan))


def side_by_side(
    costs: Costs, needs: Sequence[frozenset[int]], handover_s: float, far: frozenset[str]
) -> SchemePlan | None:
    """The plan of `forkjoin` by costs of layers, over the fastest places of this host; None without one.

    `needs` (layers,): the earlier layers from which each reads a tensor. `far`: places of other hosts.
    """
    processors = costs_of_layers(costs, needs, handover_s)
    return scheme_plan("forkjoin", processors.on(_quickest(processors, far)))


def _quickest(processors: ProcessorCosts, far: frozenset[str]) -> list[str]:
    """The places of this host that take the least time for the whole network; more of them seldom help."""
    whole_s = [sum(row[place] for row in processors.time_s) for place in range(len(processors.places))]
    near = (place for place, name in enumerate(processors.places) if name not in far)
    order = sorted(near, key=whole_s.__getitem__)
    return [processors.places[place] for place in order[:_MOST_BRANCHES]]


_Assigned = tuple[Plan, tuple[int, ...]]


def _plans(scheme: SchemeName, costs: ProcessorCosts, problem: Problem, left_s: LeftSeconds) -> Iterator[_Assigned]:
    """Yield the scheme's plans with their assignments; `problem`: with transfers in operators, as in the paper."""
    match scheme:
        case "baseline" | "typeseq" | "opseq":
            assignment = {"baseline": baseline, "typeseq": typeseq, "opseq": opseq}[scheme](problem).assignment
            if assignment is not None:
                in_sequence = tuple(range(len(problem.nodes)))
                yield plan_in_sections(costs, schedule_of(problem, assignment, in_sequence)), assignment
        case "partitiontuner":
            solved = partitiontuner(problem, left_s)
            assert solved.assignment is not None  # every node can run by itself somewhere
            assert solved.schedule is not None
            yield plan_in_sections(costs, solved.schedule), solved.assignment
        case "forkjoin":
            apart = apart_problem(costs)
            for items, solved in (
                (apart, fork_join_blocks(apart, left_s)),
                (problem, partitiontuner(problem, left_s)),
                (problem, baseline(problem)),
            ):
                if solved.assignment is not None:
                    schedule = solved.schedule or schedule_of(items, solved.assignment)
                    for plan in (plan_in_sections(costs, schedule), plan_in_lanes(costs, schedule)):
                        yield plan, solved.assignment
                        yield plan_by_needs(costs, plan), solved.assignment
            if can_be_tried(apart):
                free = unbarred(apart, should_stop=within(left_s))
                if free.runs is not None:
                    yield plan_in_turn(costs, free.schedule(apart)), free.assignment()
            by_lists = listed(costs, left_s)
            if by_lists is not None:
                yield by_lists


def _overlapping(plan: Plan) -> int:
    """How many stages may run in parallel with a stage on another place."""
    before = [plan.ancestors(stage) for stage in range(len(plan.stages))]
    parallel: set[int] = set()
    for a, b in combinations(range(len(before)), 2):
        if a not in before[b] and b not in before[a] and plan.stages[a].place != plan.stages[b].place:
            parallel |= {a, b}
    return len(parallel)
