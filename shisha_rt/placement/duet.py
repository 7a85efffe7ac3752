"""DUET's greedy correction, the baseline of DCG-2024 (Section 4.3): first without transfers, then with them.

Every node goes to its fastest device. Then the first x percent, in topological order, are reassigned, each to the
device of least cost: the node's own plus the transfers to and from its neighbours where they are now (our rule: the
paper gives none). One pass, one node at a time: no move raises the cost, but none moves two nodes at once, so nodes
that would gain only by moving together stay. Node groups are ignored.

The number of consumers of each tensor in each memory is kept up to date. So the effect of moving a node depends on the
node's own tensors only, and all moves together take time linear in nodes and edges.
"""

from __future__ import annotations

from typing import Final

from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import HEURISTIC, Outcome
from shisha_rt.placement.check import fastest_alone
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution

DEFAULT_X: Final = 50.0
"""The share that the paper's Figure 9 compares with."""


def duet(problem: Problem, x: float = DEFAULT_X) -> PlacementSolution:
    """DUET with the first `x` percent of the nodes reassigned; 0, 25 and 50 in the paper.

    Ties go to the device listed first; a node moves only if that lowers the cost. Raises BadInput unless x is from 0 to
    100.
    """
    if not 0 <= x <= 100:
        raise BadInput(f"x = {x:g}: expected a percentage from 0 to 100", Error.WRONG_OPTION)
    state = _Assignment(problem)
    for node in range(int(len(problem.nodes) * x / 100)):
        state.reassign(node)
    return PlacementSolution(tuple(state.assignment), Outcome.FEASIBLE, reason=HEURISTIC)


class _Assignment:
    """The present assignment. `_readers` (tensors, memories): number of a tensor's consumers in a memory."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._once = problem.transfer_counting == "once"
        self.assignment = list(fastest_alone(problem))
        self._readers = [[0] * len(problem.memories) for _ in problem.tensors]
        for node in range(len(problem.nodes)):
            self._count(node, 1)

    def reassign(self, node: int) -> None:
        """Move the node to the device of least cost, if that is less than where it is."""
        before = self.assignment[node]
        self._count(node, -1)
        costs_s = {device: self._cost_s(node, device) for device in self._problem.nodes[node].capable}
        cheapest = min(costs_s, key=costs_s.__getitem__)
        if costs_s[cheapest] < costs_s[before]:
            self.assignment[node] = cheapest
        self._count(node, 1)

    def _count(self, node: int, by: int) -> None:
        memory = self._problem.memory_of[self.assignment[node]]
        for tensor in self._problem.inputs[node]:
            self._readers[tensor][memory] += by

    def _cost_s(self, node: int, device: int) -> float:
        """Cost that the node adds on `device`, transfers both ways included; `_readers` must not count the node."""
        problem = self._problem
        cost_s = problem.nodes[node].cost_s[device]
        for index in problem.inputs[node]:
            tensor = problem.tensors[index]
            if not (self._once and self._readers[index][problem.memory_of[device]]):  # else a copy is there
                cost_s += problem.edge_cost_s(tensor, self.assignment[tensor.producer], device)
        for index in problem.outputs[node]:
            row = problem.tensors[index].transfer_s[device]
            for transfer_s, readers in zip(row, self._readers[index], strict=True):
                cost_s += transfer_s * (min(readers, 1) if self._once else readers)
        return cost_s
