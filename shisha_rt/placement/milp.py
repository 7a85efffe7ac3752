"""The placement problem as a mixed integer linear program, for graphs that are too wide for `exact`. Needs scipy.

Columns, all from 0 to 1: `place` (device) of each node, 1 where it runs; `move` (device, memory) of each tensor and
consumer, 1 where the producer runs on the one and the consumer in the other; `copy` (device, memory) of each tensor
that is paid once for several consumers, no less than any `move` of it; `use` of each group. As `move` adds up to
`place` on both sides, the relaxation is the local polytope, which has no gap on trees of tensors that are read once.

The solver is not trusted: an assignment is read off by rounding, which makes one of any answer, and its cost is
checked; the bound is its own less what its tolerances are worth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from shisha_rt.errors import BadInput
from shisha_rt.outcome import Outcome
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import Solution

_GAP: Final = 1e-6
"""HiGHS's absolute gap, and how far from a whole number it takes a column to be one."""

_PER_COLUMN: Final = 1e-7
"""HiGHS's tolerance of a reduced cost; no column is above 1, so that is what each may be worth to the bound."""

_SOLVED: Final = (0, 1)
"""scipy's: to the end, or to a limit."""


def milp(problem: Problem, time_limit_s: float | None = None) -> Solution:
    """A placement of least cost; the best found if `time_limit_s` ends it, which may be none (LIMIT).

    Optimal if the checked cost meets the bound, but for the tolerances. Raises BadInput if scipy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint
        from scipy.optimize import milp as solve
        from scipy.sparse import coo_array
    except ImportError:
        raise BadInput("milp: scipy is missing, expected the extra: pip install 'shisha-rt[solve]'") from None

    program = _Program(problem)
    cost_s = np.array(program.cost_s)
    # HiGHS's tolerances are absolute: make the mean cost 1.
    scale_s = float(np.abs(cost_s[cost_s != 0]).mean()) if cost_s.any() else 1.0
    matrix = coo_array((program.coefficient, (program.row, program.column)), (len(program.low), len(cost_s)))
    result = solve(
        cost_s / scale_s,
        integrality=np.array(program.whole),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), program.low, program.high),
        options={"mip_rel_gap": 0.0} | ({} if time_limit_s is None else {"time_limit": time_limit_s}),
    )
    solved = result.status in _SOLVED and result.mip_dual_bound is not None
    dual_s = float(result.mip_dual_bound) * scale_s if solved else 0.0
    slack_s = (_GAP + _PER_COLUMN * len(cost_s)) * scale_s
    bound_s = max(0.0, dual_s - slack_s)  # no cost is negative
    statistics = {"columns": float(len(cost_s)), "rows": float(len(program.low))}
    if result.x is None:
        return Solution(None, Outcome.LIMIT, bound_s, statistics)
    assignment = tuple(max(place, key=lambda device: result.x[place[device]]) for place in program.place)
    found_s = cost(problem, assignment).total_s
    outcome = Outcome.OPTIMAL if found_s <= dual_s + slack_s else Outcome.FEASIBLE
    return Solution(assignment, outcome, min(bound_s, found_s), statistics)


class _Program:
    """Columns and rows, `low` <= row <= `high`; the sparse matrix as (row, column, coefficient)."""

    def __init__(self, problem: Problem) -> None:
        self.cost_s: list[float] = []
        self.whole: list[bool] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self.coefficient: list[float] = []
        self.place = [{d: self._column(node.cost_s[d], whole=True) for d in node.capable} for node in problem.nodes]
        for place in self.place:
            self._row(place.values(), (), 1, 1)
        self._tensors(problem)
        self._groups(problem)

    def _tensors(self, problem: Problem) -> None:
        memory_of = problem.memory_of
        for tensor in problem.tensors:
            together = problem.transfer_counting == "once" and len(tensor.consumers) > 1
            source = self.place[tensor.producer]
            copy: dict[tuple[int, int], int] = {}
            for consumer in tensor.consumers:
                target = self.place[consumer]
                memories = sorted({memory_of[device] for device in target})
                move = {
                    (d, m): self._column(0.0 if together else tensor.transfer_s[d][m]) for d in source for m in memories
                }
                for device in source:
                    self._row([move[device, memory] for memory in memories], [source[device]], 0, 0)
                for memory in memories:
                    there = [column for device, column in target.items() if memory_of[device] == memory]
                    self._row([move[device, memory] for device in source], there, 0, 0)
                if together:
                    for pair, column in move.items():
                        if pair not in copy:
                            copy[pair] = self._column(tensor.transfer_s[pair[0]][pair[1]])
                        self._row([copy[pair]], [column], 0, np.inf)

    def _groups(self, problem: Problem) -> None:
        """A node where it runs is in one of its groups there, or in none."""
        having: dict[int, list[int]] = {}
        for group in problem.groups:
            if all(group.device in self.place[node] for node in group.nodes):
                alone_s = sum(problem.nodes[node].cost_s[group.device] for node in group.nodes)
                use = self._column(group.cost_s - alone_s, whole=True)
                for node in group.nodes:
                    having.setdefault(self.place[node][group.device], []).append(use)
        for place, uses in having.items():
            self._row([place], uses, 0, np.inf)

    def _column(self, cost_s: float, whole: bool = False) -> int:
        self.cost_s.append(cost_s)
        self.whole.append(whole)
        return len(self.cost_s) - 1

    def _row(self, plus: Iterable[int], minus: Iterable[int], low: float, high: float) -> None:
        """`low` <= sum of `plus` - sum of `minus` <= `high`."""
        for columns, coefficient in ((plus, 1.0), (minus, -1.0)):
            for column in columns:
                self.row.append(len(self.low))
                self.column.append(column)
                self.coefficient.append(coefficient)
        self.low.append(low)
        self.high.append(high)
