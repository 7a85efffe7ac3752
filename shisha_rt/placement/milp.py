"""The placement problem as a mixed integer linear program. Needs scipy, whose solver is HiGHS.

Columns, all from 0 to 1:

- `place` (device) of each node: 1 if it runs there by itself;
- `use` of each group: 1 if all of its nodes run in it;
- `move` (device, memory) of each tensor and consumer: 1 if the producer runs on the device, the consumer in the memory;
- `copy` (device, memory) of each tensor that is paid once for several consumers: at least each `move` of the tensor.

As `move` adds up to `place` on both sides, the relaxation is the local polytope, which has no gap on trees of tensors
with one consumer each.

HiGHS's tolerances are absolute, and costs may spread over many orders of magnitude. So each node's least cost is
subtracted from its costs, and these are divided by the *room*: the best known assignment's cost less the sum of least
costs. Columns that cost more than the room are left out. An answer with far less room is the start of another solve.

HiGHS is not trusted: its answer is rounded to an assignment, whose cost is checked, and bounds come from `narrowing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import STOPPED, LeftSeconds, Outcome, forever, within
from shisha_rt.placement.check import fastest_alone, feasible
from shisha_rt.placement.narrowing import (
    PROVEN,
    Narrowed,
    WidthLimits,
    bounded,
    least_node_s,
    narrowed,
    quick_assignment,
)
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution

_MOST_COLUMNS: Final = 1 << 17
"""With so many, the program takes half a gigabyte of memory."""
_MUCH_LESS: Final = 1 / 8
_OF_THE_TIME: Final = 0.7
"""HiGHS's share of the time left; the rest is for proving its answer."""
_ROUNDED_UP: Final = 1 + 1e-6
"""Relative tolerance, so that rounding leaves out no column of the best known assignment."""


def milp(problem: Problem, left_s: LeftSeconds = forever) -> PlacementSolution:
    """HiGHS's assignment within the time left, or none (LIMIT); optimal if `narrowing` proves it.

    Raises BadInput if scipy is not installed.
    """
    should_stop = within(left_s)
    start = bounded(problem, quick_assignment(problem, should_stop))
    columns = column_count(start.left)
    if columns > _MOST_COLUMNS:
        reason = f"a program of {columns} columns, and {_MOST_COLUMNS} are the most"
        return PlacementSolution(None, Outcome.LIMIT, start.lower_bound_s, reason=reason)
    assignment = least_by_program(start, lambda: _OF_THE_TIME * left_s())
    statistics = {"columns": float(columns)}
    if assignment is None:
        reason = STOPPED if should_stop() else "HiGHS has found nothing"
        return PlacementSolution(None, Outcome.LIMIT, start.lower_bound_s, reason, statistics)
    answer = bounded(problem, assignment)
    narrow = narrowed(answer, WidthLimits(), left_s)
    bound_s = min(narrow.lower_bound_s, answer.cost_s)
    if answer.cost_s <= bound_s * (1 + PROVEN):
        return PlacementSolution(answer.assignment, Outcome.OPTIMAL, bound_s, statistics=statistics)
    if narrow.cost_s < answer.cost_s:
        reason = f"not the best: one found in proving costs {answer.cost_s - narrow.cost_s:.3g} s less"
    else:
        reason = STOPPED if should_stop() else "no proof of optimality was found (HiGHS's own does not count)"
    return PlacementSolution(answer.assignment, Outcome.FEASIBLE, bound_s, reason, statistics)


def column_count(problem: Problem) -> int:
    """Number of columns of the program, without `use` and `copy`."""
    devices = problem.devices_of
    memories = [len({problem.memory_of[device] for device in group_devices}) for group_devices in devices]
    return sum(map(len, devices)) + sum(
        len(devices[tensor.producer]) * memories[consumer]
        for tensor in problem.tensors
        for consumer in tensor.consumers
    )


def least_by_program(narrow: Narrowed, left_s: LeftSeconds) -> tuple[int, ...] | None:
    """The best assignment that HiGHS finds for `narrow.left`, or None. Raises BadInput if scipy is not installed."""
    try:
        from scipy.optimize import Bounds, LinearConstraint
        from scipy.optimize import milp as solve
        from scipy.sparse import coo_array
    except ImportError:
        raise BadInput(
            "milp: scipy is missing, expected the extra: pip install 'shisha-rt[solve]'", Error.EXTRA_MISSING
        ) from None

    best: Narrowed | None = None
    while not narrow.is_settled:
        least_s = least_node_s(narrow.left).min(axis=1)
        room_s = narrow.cost_s - math.fsum(least_s)
        if room_s <= 0:
            break
        program = _Program(narrow.left, least_s, room_s)
        shape = len(program.low), len(program.cost)
        limit_s = max(0.0, left_s())
        result = solve(
            np.array(program.cost),
            integrality=np.isin(np.arange(len(program.cost)), program.whole),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(
                coo_array((program.coefficient, (program.row, program.column)), shape).tocsr(),
                program.low,
                program.high,
            ),
            options={"mip_rel_gap": 0.0} | ({"time_limit": limit_s} if limit_s < math.inf else {}),
        )
        if result.x is None:
            return None if best is None else best.assignment
        assignment = feasible(narrow.problem, program.assignment(result.x), fastest_alone(narrow.problem))
        answer = bounded(narrow.problem, assignment)
        best = answer if best is None or answer.cost_s < best.cost_s else best
        narrow = narrow.with_assignment(answer.assignment)
        if narrow.cost_s - math.fsum(least_s) > _MUCH_LESS * room_s:
            return best.assignment
    return narrow.assignment


class _Program:
    """Columns, of which `whole` are 0 or 1, and rows, `low` <= row <= `high`; the matrix as (row, column, coefficient).

    `least_s` (nodes,): the least cost of each node. `room_s`: by how much an assignment may exceed their sum; the unit
    of `cost`.
    """

    def __init__(self, problem: Problem, least_s: Floats, room_s: float) -> None:
        self._least_s, self._room_s, self._most_s = least_s, room_s, room_s * _ROUNDED_UP
        self.cost: list[float] = []
        self.whole: list[int] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self.coefficient: list[float] = []
        self._place: list[dict[int, list[int]]] = [{} for _ in problem.nodes]
        for node, place, node_s in zip(problem.nodes, self._place, least_s, strict=True):
            for device in node.capable:
                place[device] = self._choice(node.cost_s[device] - node_s)
        for group in problem.groups:
            use = self._choice(group.cost_s - math.fsum(least_s[list(group.nodes)]))
            if use:
                for member in group.nodes:
                    self._place[member].setdefault(group.device, []).extend(use)
        for place in self._place:
            self._row(chain.from_iterable(place.values()), (), 1, 1)
        self._tensors(problem)

    def assignment(self, columns: Floats) -> tuple[int, ...]:
        """Assign each node to the device with the largest value."""
        return tuple([max(place, key=lambda device: columns[place[device]].sum()) for place in self._place])

    def _tensors(self, problem: Problem) -> None:
        memory_of = problem.memory_of
        for tensor in problem.tensors:
            together = problem.transfer_counting == "once" and len(tensor.consumers) > 1
            source, transfer_s = self._place[tensor.producer], tensor.transfer_s
            copy: dict[tuple[int, int], list[int]] = {}
            for consumer in tensor.consumers:
                target = self._place[consumer]
                memories = sorted({memory_of[device] for device in target})
                pairs = [(d, m) for d in source for m in memories if transfer_s[d][m] <= self._most_s]
                move = {(d, m): self._column(0.0 if together else transfer_s[d][m]) for d, m in pairs}
                for device in source:
                    self._row(
                        [column for (d, _), columns in move.items() if d == device for column in columns],
                        source[device],
                        0,
                        0,
                    )
                for memory in memories:
                    there = [
                        column
                        for device, columns in target.items()
                        if memory_of[device] == memory
                        for column in columns
                    ]
                    self._row(
                        [column for (_, m), columns in move.items() if m == memory for column in columns], there, 0, 0
                    )
                if together:
                    for pair, column in move.items():
                        if pair not in copy:
                            copy[pair] = self._column(transfer_s[pair[0]][pair[1]])
                        self._row(copy[pair], column, 0, np.inf)

    def _column(self, seconds: float) -> list[int]:
        """Add one column, unless it costs more than the room; return its index in a list, or none."""
        if seconds > self._most_s:
            return []
        self.cost.append(seconds / self._room_s)
        return [len(self.cost) - 1]

    def _choice(self, seconds: float) -> list[int]:
        """As `_column`, for a column that is 0 or 1."""
        column = self._column(seconds)
        self.whole += column
        return column

    def _row(self, plus: Iterable[int], minus: Iterable[int], low: float, high: float) -> None:
        """Add the row `low` <= sum of `plus` - sum of `minus` <= `high`."""
        for columns, coefficient in ((plus, 1.0), (minus, -1.0)):
            for column in columns:
                self.row.append(len(self.low))
                self.column.append(column)
                self.coefficient.append(coefficient)
        self.low.append(low)
        self.high.append(high)
