"""Assembly-line scheduling (DCG-2022 and DCG-2024, section 3.3, Eq. 2): the cheapest path to each device, node by node.

    f_d[j] = a_dj + min(f_d[j-1], min over c != d of f_c[j-1] + T_dj)

It gives up the optimum for a time linear in the operators: of all paths that end on a device only the cheapest is kept,
though another may have tensors that are read later on better devices. If every tensor is read only by the next operator
(a chain), the result is the optimum.

The two solvers differ in T_dj, the cost to bring all inputs of node j to device d. `als` sums it along the kept path.
`als_literal` follows Eq. 2 as printed: every producer counts as if it were on the device of operator j-1, so a path
that stays on its device pays nothing, even for tensors made on another.

The solvers ignore groups; these can only make the result cheaper than the recurrence says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import add

from shisha_rt.outcome import HEURISTIC, STOPPED, Outcome, ShouldStop, never
from shisha_rt.placement.check import cost
from shisha_rt.placement.paths import START, Paths
from shisha_rt.placement.problem import Problem, ProblemTensor
from shisha_rt.placement.solution import PlacementSolution

Rows = Sequence[Sequence[float]]
"""(devices, memories) seconds to bring a tensor into each memory, for the kept path that ends on each device."""


def als(problem: Problem, should_stop: ShouldStop = never) -> PlacementSolution:
    """Eq. 2 with T summed along the kept path, by the problem's `transfer_counting`.

    Optimal on a chain without groups, else feasible. `statistics["recurrence_s"]` is f at the end. None (LIMIT) if
    stopped: `should_stop` is asked at each node.
    """
    paths = Paths()
    return _solve(problem, paths, _AlongPath(problem, paths), should_stop)


def als_literal(problem: Problem, should_stop: ShouldStop = never) -> PlacementSolution:
    """Eq. 2 as printed; `statistics["recurrence_s"]` is the cost that it predicts for its assignment."""
    return _solve(problem, Paths(), _FromPrevious(problem), should_stop)


def _solve(
    problem: Problem, paths: Paths, transfers: _AlongPath | _FromPrevious, should_stop: ShouldStop
) -> PlacementSolution:
    """`transfers`: T_dj, tensor by tensor."""
    memory_of = problem.memory_of
    kept = [START] * len(problem.devices)
    best_s = [0.0] * len(problem.devices)  # f of Eq. 2
    for index, node in enumerate(problem.nodes):
        if should_stop():
            return PlacementSolution(None, Outcome.LIMIT, reason=STOPPED)
        arrival_s = [best_s] * len(problem.memories)  # (memories, devices): by the device of the operator before
        for rows in transfers.due_s(index, kept):
            columns = zip(*rows, strict=True)
            arrival_s = [list(map(add, before_s, column)) for before_s, column in zip(arrival_s, columns, strict=True)]
        least_s = list(map(min, arrival_s))
        through = [kept[by_device_s.index(s)] for by_device_s, s in zip(arrival_s, least_s, strict=True)]
        kept = [paths.then(through[memory], device) for device, memory in enumerate(memory_of)]
        best_s = [cost_s + least_s[memory] for cost_s, memory in zip(node.cost_s, memory_of, strict=True)]
        transfers.read(index, kept)
    total_s = min(best_s)
    statistics = {"recurrence_s": total_s}
    assignment = paths.devices(kept[best_s.index(total_s)])
    if not problem.groups and all(set(t.consumers) <= {t.producer + 1} for t in problem.tensors):  # a plain chain
        # The checker rounds once where the recurrence rounds at each node: both are the optimum.
        bound_s = cost(problem, assignment).total_s
        return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, statistics=statistics)
    return PlacementSolution(assignment, Outcome.FEASIBLE, None, HEURISTIC, statistics)


class _AlongPath:
    """Unpaid transfer costs of each tensor, stored by the device of the last node so far that made or read it."""

    def __init__(self, problem: Problem, paths: Paths) -> None:
        self._problem = problem
        self._paths = paths
        self._inputs = problem.inputs
        self._once = problem.transfer_counting == "once"
        self._used: list[tuple[int, Rows]] = [(tensor.producer, tensor.transfer_s) for tensor in problem.tensors]

    def due_s(self, node: int, kept: Sequence[int]) -> Iterator[Rows]:
        """Costs of each tensor that a node reads; the paths `kept` (devices,) end just before it."""
        return (self._unpaid_s(tensor, node - 1, kept) for tensor in self._inputs[node])

    def read(self, node: int, kept: Sequence[int]) -> None:
        """Note that a node has read its tensors; the paths `kept` now end with it."""
        if not self._once:
            return
        for tensor in self._inputs[node]:
            if node < self._problem.tensors[tensor].consumers[-1]:
                rows = self._unpaid_s(tensor, node, kept)
                self._used[tensor] = node, tuple(map(_paid, rows, self._problem.memory_of))

    def _unpaid_s(self, tensor: int, end: int, kept: Sequence[int]) -> Rows:
        used, rows = self._used[tensor]
        return rows if used == end else [rows[self._paths.device_of(used, path)] for path in kept]


def _paid(row: Sequence[float], memory: int) -> Sequence[float]:
    return (*row[:memory], 0.0, *row[memory + 1 :]) if row[memory] else row


class _FromPrevious:
    """Every producer counts as on the previous operator's device; if this cannot run the producer, its tensor is free.

    With two devices, as in the papers, the producer is then on the reader's device. With more devices the rule is ours:
    the device-mapped graph has no edge there.
    """

    def __init__(self, problem: Problem) -> None:
        self._inputs = problem.inputs
        self._rows = [_possible(problem, tensor) for tensor in problem.tensors]

    def due_s(self, node: int, kept: Sequence[int]) -> Iterator[Rows]:
        return (self._rows[tensor] for tensor in self._inputs[node])

    def read(self, node: int, kept: Sequence[int]) -> None:
        pass


def _possible(problem: Problem, tensor: ProblemTensor) -> Rows:
    nothing_s = [0.0] * len(problem.memories)
    made_s = problem.nodes[tensor.producer].cost_s
    return [row if s < math.inf else nothing_s for row, s in zip(tensor.transfer_s, made_s, strict=True)]
