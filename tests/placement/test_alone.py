"""Assignments that count on groups that are not in use: nodes that cannot run there go elsewhere."""

from __future__ import annotations

import math

from shisha_rt.placement.check import cost, fastest_alone, feasible
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor

ONLY_IN_A_GROUP = (1.0, math.inf)


def chain(*groups: tuple[int, ...]) -> Problem:
    """Three nodes in a row, of which the NPU runs the first and the last only within groups."""
    nodes = tuple(Node(str(at), "Conv", (2.0, 1.0) if at == 1 else ONLY_IN_A_GROUP) for at in range(3))
    tensors = tuple(ProblemTensor(str(at), at, (at + 1,), ((0.0, 0.0), (0.0, 0.0))) for at in range(2))
    listed = tuple(Group(group, 1, 1.0) for group in groups)
    return Problem(("cpu", "npu"), ("m", "n"), (0, 1), nodes, tensors, listed, "once")


def test_of_groups_that_share_a_node_one_is_in_use() -> None:
    problem = chain((0, 1), (1, 2))
    assert cost(problem, (1, 1, 1)).total_s == math.inf
    assignment = feasible(problem, (1, 1, 1), fastest_alone(problem))
    assert assignment == (1, 1, 0)
    assert cost(problem, assignment).total_s < math.inf


def test_nodes_stay_where_a_group_runs_all_and_go_where_none_does() -> None:
    assert feasible(chain((0, 1, 2)), (1, 1, 1), (0, 1, 0)) == (1, 1, 1)
    assert feasible(chain((0, 1, 2)), (1, 0, 1), (0, 1, 0)) == (0, 0, 0)
    assert fastest_alone(chain()) == (0, 1, 0)
