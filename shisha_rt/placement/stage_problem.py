"""The placement problem of one stage of a pipeline, and its solution segment by segment.

A stage's inputs are in the host's memory, and its outputs must end there. So the host is a device, too
(`host_of`). It runs two additional operators: `entry` makes the stage's inputs, `exit` reads its outputs. Both cost
nothing, only transfers to and from them do.

A measured device's operator times include converting its tensors to the plain format: transfers into and out of the
stage are free for it, and it pays only for tensors from other devices. Measured costs are not exact, so several devices
must be predicted to gain more than a margin over a single one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.spans import ends
from shisha_rt.outcome import Outcome
from shisha_rt.placement.build import check_capable, unchecked_problem
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Problem, ProblemTensor
from shisha_rt.placement.segment_times import host_of, segment_times_s
from shisha_rt.placement.segments import segments
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.placement.solver_names import StageSolver
from shisha_rt.placement.solvers import solve
from shisha_rt.placement.stage_placement import StagePlacement

DEFAULT_MARGIN: Final = 0.03


def stage_problem(graph: Graph, first: int, last: int, costs: OperatorCosts) -> Problem:
    """The problem of operators `first` to `last` (inclusive); `costs` are of the whole graph.

    The operators are nodes 1, 2, ...; node 0 is `entry` and the last node `exit`. The host is the last device. With a
    single device, operators may be able to run only in groups. Raises BadInput as `build_problem` does.
    """
    operators, own_costs = graph.operators[first : last + 1], costs.part(first, last)
    check_capable(replace(graph, operators=operators), own_costs, alone=len(costs.devices) > 1)
    inputs, outputs = ends(graph, first, last)
    entry = Operator("entry", "Entry", "", (), inputs, {})
    exit_ = Operator("exit", "Exit", "", outputs, (), {})
    with_host = _with_host(own_costs)
    problem = unchecked_problem(replace(graph, operators=(entry, *operators, exit_)), with_host)
    measured = {m for m, device in zip(problem.memory_of, with_host.devices, strict=True) if not device.described}
    tensors = (_entering(tensor, measured) if tensor.producer == 0 else tensor for tensor in problem.tensors)
    return replace(problem, tensors=tuple(tensors))


def place_stage(
    graph: Graph,
    first: int,
    last: int,
    costs: OperatorCosts,
    solver: StageSolver = "exact",
    margin: float = DEFAULT_MARGIN,
) -> StagePlacement:
    """Place operators `first` to `last` (inclusive). Raises BadInput as `build_problem` does.

    Several devices are used only if the best single one is predicted to take more than 1 + `margin` times as long. If
    all devices are described, costs are exact and no margin applies.
    """
    problem = stage_problem(graph, first, last, costs)
    solution = solve(solver, problem) if len(costs.devices) > 1 else _on_the_one(graph, problem)
    if not all(device.described for device in costs.devices):
        solution = _worth_several(problem, solution, margin)
    assignment = solution.assignment
    assert assignment is not None  # neither solver ends without
    devices = tuple(problem.devices[device] for device in assignment[1:-1])
    return StagePlacement(
        devices=devices,
        cost_s=cost(problem, assignment).total_s,
        segments_s=segment_times_s(graph, segments(graph, first, devices), costs),
        lower_bound_s=solution.lower_bound_s,
        outcome=solution.outcome,
    )


def _on_the_one(graph: Graph, problem: Problem) -> PlacementSolution:
    """The placement on the only device; raises BadInput if operators that run only in groups share a neighbour."""
    device, host = range(len(problem.devices))
    assignment = (host, *[device] * (len(problem.nodes) - 2), host)
    cost_s = cost(problem, assignment).total_s
    if cost_s == math.inf:
        raise BadInput(
            f"{graph.name}: operators {problem.nodes[1].name!r} to {problem.nodes[-2].name!r}: "
            f"{problem.devices[device]} cannot run them all, as some that it can only run in groups share a neighbour; "
            "expected another device",
            Error.DEVICE_UNFIT,
        )
    return PlacementSolution(assignment, Outcome.OPTIMAL, cost_s)


def _worth_several(problem: Problem, solution: PlacementSolution, margin: float) -> PlacementSolution:
    """The best single device if it takes at most 1 + `margin` times as long as the solution; else the solution."""
    *devices, host = range(len(problem.devices))
    operator_count = len(problem.nodes) - 2
    singles = [(host, *[device] * operator_count, host) for device in devices]
    single = min(singles, key=lambda assignment: cost(problem, assignment).total_s)
    assert solution.assignment is not None
    single_s, solution_s = cost(problem, single).total_s, cost(problem, solution.assignment).total_s
    if single_s > (1 + margin) * solution_s:
        return solution
    return replace(solution, answer=single, outcome=solution.outcome if single_s <= solution_s else Outcome.FEASIBLE)


def _with_host(costs: OperatorCosts) -> OperatorCosts:
    """Costs with the operators `entry` before and `exit` after all others, and with the host after all devices."""
    time_s = np.pad(costs.time_s, ((1, 1), (0, 1)), constant_values=math.inf)
    time_s[[0, -1], -1] = 0.0
    groups = (replace(group, operators=tuple(index + 1 for index in group.operators)) for group in costs.groups)
    return OperatorCosts((*costs.devices, host_of(costs.devices)), time_s, tuple(groups))


def _entering(tensor: ProblemTensor, measured: set[int]) -> ProblemTensor:
    """A stage's input, made free to move into the memories of measured devices."""
    *rows, host_s = tensor.transfer_s
    host_s = tuple(0.0 if memory in measured else s for memory, s in enumerate(host_s))
    return replace(tensor, transfer_s=(*rows, host_s))
