"""What nodes can do by themselves, out of any group: the way back where a group turns out not to be in use."""

from __future__ import annotations

import math

from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Assignment, Problem


def fastest_alone(problem: Problem) -> tuple[int, ...]:
    """Assign each node to the device that takes least for the node alone; of equal devices the first."""
    return tuple([min(node.capable, key=node.cost_s.__getitem__) for node in problem.nodes])


def feasible(problem: Problem, assignment: Assignment, elsewhere: Assignment) -> tuple[int, ...]:
    """The assignment; where nodes can run neither alone nor in a group, they are moved `elsewhere`, where they can."""
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
