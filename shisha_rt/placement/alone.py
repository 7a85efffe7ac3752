"""Where nodes run by themselves, without groups: the fallback if a group turns out not to be in use."""

from __future__ import annotations

import math

from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Assignment, Problem


def fastest_alone(problem: Problem) -> tuple[int, ...]:
    """Assign each node to the device that runs it fastest by itself; of equally fast devices to the first."""
    return tuple([min(node.capable, key=node.cost_s.__getitem__) for node in problem.nodes])


def feasible(problem: Problem, assignment: Assignment, elsewhere: Assignment) -> tuple[int, ...]:
    """The assignment; nodes that can run there neither alone nor in a group move to their devices of `elsewhere`."""
    if cost(problem, assignment).total_s < math.inf:
        return tuple(assignment)
    stranded = {n for n, node in enumerate(problem.nodes) if node.cost_s[assignment[n]] == math.inf}
    taken: set[int] = set()
    for group in problem.groups:
        nodes = set(group.nodes)
        if nodes & stranded and not nodes & taken and all(assignment[node] == group.device for node in nodes):
            taken |= nodes
    stranded -= taken
    return tuple([elsewhere[n] if n in stranded else device for n, device in enumerate(assignment)])
