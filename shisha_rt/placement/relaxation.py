"""A lower bound of the least sum of tables, for when eliminating their variables costs too much. Generic.

Costs are moved between tables such that the sum of every assignment of values stays the same. From each table of
several variables, the least entry for each value of a variable moves to that variable's own table; the least entry of
an own table moves to the bound. The rest of an own table goes back, in equal parts, to the tables with variables that
come later in the sweep (sequential message passing: Kolmogorov, TRW-S, 2006). The bound never falls, and approaches
that of the linear programming relaxation. The cost of some assignment is known; if the bound shows that every
assignment with a certain value is worse, that value's entry is set to the known cost.

Entries are never negative, and capped at the known cost. So they stay small, and rounding errors are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.outcome import ShouldStop, never
from shisha_rt.placement.elimination import Factor, Scope, Table

_MOST_SWEEPS: Final = 100
_STALLED: Final = 1e-3
"""Share of the gap that a sweep has to close for another one to follow."""
_EPSILON: Final = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Every assignment costs at least `least` or the known cost, whichever is lower. `values`: the best one seen.

    `least_with`, (values,) for each variable: the same bound for the assignments with each value.
    """

    least: float
    values: Sequence[int]
    least_with: Sequence[Table]


def relaxed(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    sequence: Sequence[int],
    known: float,
    should_stop: ShouldStop = never,
) -> Relaxed:
    """Bound the sum of `factors`, which are not negative, given the cost `known` of some assignment.

    Sweeps visit variables in the order of `sequence`, and back. Ends if a sweep gains little, or if stopped:
    `should_stop` is asked at each variable.
    """
    passing = _Passing(sizes, factors, sequence, known)
    best, values = np.inf, passing.guess()
    for _ in range(_MOST_SWEEPS):
        before = passing.least
        stopped = not passing.sweep(should_stop)
        guess = passing.guess()
        total = sum([float(table[tuple([guess[variable] for variable in scope])]) for scope, table in factors])
        if total < best:
            best, values = total, guess
        gap = min(known, best) - passing.least
        if stopped or passing.least - before <= _STALLED * gap:
            break
    return Relaxed(passing.proven, values, passing.least_with)


class _Side(NamedTuple):
    """A table as seen by one of its variables. `others`: the axes of the other variables; `shape`: to which the
    variable's own table is reshaped to broadcast; `has_ahead`: whether another variable of the table comes later in a
    sweep forwards, and in a sweep backwards.
    """

    table: Table
    scope: Scope
    others: tuple[int, ...]
    shape: tuple[int, ...]
    has_ahead: tuple[bool, bool]


class _Passing:
    """The tables while costs move between them. `least`: the bound so far; `proven`: less possible rounding errors."""

    def __init__(self, sizes: Sequence[int], factors: Sequence[Factor], sequence: Sequence[int], known: float) -> None:
        self._known = known
        self._roundings = 0
        self._sequence = sequence
        self.least = 0.0
        self.least_with = [np.zeros(size) for size in sizes]
        self._own = [np.zeros(size) for size in sizes]
        self._sides: list[list[_Side]] = [[] for _ in sizes]
        rank = {variable: rank for rank, variable in enumerate(sequence)}
        for scope, full in factors:
            table = np.minimum(full, known)
            if not scope:
                self.least += float(table)
            elif len(scope) == 1:
                self._own[scope[0]] += table
            else:
                ranks = [rank[variable] for variable in scope]
                for axis, variable in enumerate(scope):
                    others = tuple([other for other in range(len(scope)) if other != axis])
                    shape = tuple([size if at == axis else 1 for at, size in enumerate(table.shape)])
                    has = ranks[axis] < max(ranks), ranks[axis] > min(ranks)
                    self._sides[variable].append(_Side(table, scope, others, shape, has))

    @property
    def proven(self) -> float:
        return self.least - self._lost

    @property
    def _lost(self) -> float:
        """Bound of rounding errors: results are at most twice the known cost; an assignment has one entry a table."""
        return self._roundings * _EPSILON * self._known

    def sweep(self, should_stop: ShouldStop) -> bool:
        """Visit all variables forwards, then backwards. Returns False if stopped."""
        for direction, ordered in enumerate((self._sequence, self._sequence[::-1])):
            for variable in ordered:
                if should_stop():
                    return False
                self._visit(variable, direction)
        return True

    def _visit(self, variable: int, direction: int) -> None:
        """Move costs by way of a variable's own table. `direction` of the sweep: 0 forwards, 1 backwards."""
        own, sides = self._own[variable], self._sides[variable]
        for side in sides:
            moved = np.minimum.reduce(side.table, side.others)
            np.subtract(side.table, moved.reshape(side.shape), out=side.table)
            np.minimum(own + moved, self._known, out=own)
        common = own.min()
        self.least += float(common)
        own -= common
        self._roundings += 4 * len(sides) + 2
        least_with = own + self.proven
        np.maximum(self.least_with[variable], least_with, out=self.least_with[variable])
        own[least_with > self._known] = self._known
        ahead = [side for side in sides if side.has_ahead[direction]]
        if ahead:
            most = max(len(ahead), len(sides) - len(ahead))
            part = own / most
            for side in ahead:
                np.minimum(side.table + part.reshape(side.shape), self._known, out=side.table)
            own -= len(ahead) * part
            np.maximum(own, 0.0, out=own)

    def guess(self) -> list[int]:
        """Choose each variable's best value in turn, given the values chosen before."""
        values = [-1] * len(self._own)
        for variable in self._sequence:
            cost = self._own[variable].copy()
            for side in self._sides[variable]:
                cost += _at(side, variable, values)
            values[variable] = int(cost.argmin())
        return values


def _at(side: _Side, variable: int, values: Sequence[int]) -> Table:
    """The least that a table adds to each value of a variable, given the others' `values` (-1: not chosen yet)."""
    chosen: Iterator[int | slice] = (
        values[other] if other != variable and values[other] >= 0 else slice(None) for other in side.scope
    )
    table = side.table[tuple(chosen)]
    free = [other for other in side.scope if other == variable or values[other] < 0]
    axes = tuple([axis for axis, other in enumerate(free) if other != variable])
    return np.minimum.reduce(table, axes) if axes else table
