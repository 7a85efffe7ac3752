"""All sets of the board's numbers that satisfy the cells of Table 2 to which they were fitted.

A prediction is as certain as its range over all these sets. A network's time is linear in the numbers as long as its
operators stay on their places, so the sets are a union of polytopes, one for each placement by OpSeq. They are sampled
by walks from vertex to vertex.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from benchmarks.partitiontuner.board import NETWORKS
from benchmarks.partitiontuner.numbers import (
    FITTED,
    Numbers,
    PlacedCell,
    costs_by_network,
    linear,
    numbers_of,
    placed,
    with_numbers,
)
from benchmarks.report.results import Row
from shisha_rt.arrays import Floats
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.planner.strategies import SchemeName

CPU_WITHIN: Final = 0.25
"""Tolerance of cells of the CPU alone. The files' numbers need 11%, and no numbers of this form come closer for six
networks. With tolerances of 11% and 1% a call of the NPU takes 1.6 to 2.5 ms; from 23% and 2.1% on it may take nothing.
It is not known how close so few numbers should come.
"""
WITHIN: Final = 0.025
"""Tolerance of cells of TypeSeq and OpSeq, of the networks that were fitted."""
_LEAST, _MOST = 1e-3, 1e3
"""Limits of each number, as factors of the number in the file."""
_CALLS: Final = tuple(float(factor) for factor in np.geomspace(_LEAST, 2.0, 12))
"""Starts of the walks: times of a call of the NPU, as factors of that in the file."""
_ROUNDS: Final = 20
_SLACK: Final = 1e-9
_NAMES: Final = tuple(Numbers.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class _Region:
    """Times of cells over the paper's are `fixed` (cells,) + `by_factor` (cells, numbers) @ factors, and must be
    within `within` (cells,) of 1. Factors multiply the numbers in the files.
    """

    fixed: Floats
    by_factor: Floats
    within: Floats

    def __add__(self, other: _Region) -> _Region:
        pairs = ((self.fixed, other.fixed), (self.by_factor, other.by_factor), (self.within, other.within))
        return _Region(*map(np.concatenate, pairs))

    def holds(self, factors: Floats) -> bool:
        return bool((np.abs(self.fixed + self.by_factor @ factors - 1) <= self.within + _SLACK).all())

    def corner(self, aim: Floats) -> Floats | None:
        """The factors of the least `aim` (numbers,) @ factors that satisfy all cells; None: there are none."""
        limits = np.concatenate([1 - self.fixed + self.within, self.fixed - 1 + self.within])
        rows = np.concatenate([self.by_factor, -self.by_factor])
        result = linprog(aim, A_ub=rows, b_ub=limits, bounds=(_LEAST, _MOST))
        return np.asarray(result.x, np.float64) if result.success else None

    def nearest(self, bounds: Sequence[tuple[float, float]]) -> tuple[float, Floats]:
        """The largest error of a cell, in multiples of its `within`, and the factors that minimise it."""
        rows = np.concatenate([self.by_factor, -self.by_factor])
        rows = np.column_stack([rows, np.tile(-self.within, 2)])
        limits = np.concatenate([1 - self.fixed, self.fixed - 1])
        aim = np.zeros(rows.shape[1])
        aim[-1] = 1
        result = linprog(aim, A_ub=rows, b_ub=limits, bounds=[*bounds, (0, None)])
        return float(result.fun), np.asarray(result.x[:-1], np.float64)


class Board:
    """The board with any numbers, and the cells that these must satisfy; `graphs`: by network, with Relus sunk."""

    def __init__(self, devices: tuple[Device, Device], graphs: Mapping[str, Graph]) -> None:
        self._devices, self._costs_of = devices, costs_by_network(graphs)
        self._numbers = numbers_of(devices)
        self._known: dict[tuple[tuple[float, tuple[int, ...]], ...], _Region] = {}
        self._always = self._region("baseline", CPU_WITHIN) + self._region("typeseq", WITHIN)

    def numbers(self, factors: Floats) -> Numbers:
        return Numbers(*(np.array(astuple(self._numbers)) * factors).tolist())

    def region_at(self, factors: Floats) -> _Region:
        """The region of numbers with which OpSeq places as with these factors."""
        return self._always + self._region("opseq", WITHIN, with_numbers(self._devices, self.numbers(factors)))

    def reach(self, without: Sequence[str]) -> tuple[float, Numbers]:
        """The largest error of cells of the CPU alone and TypeSeq for the other networks, and the numbers that minimise
        it.
        """
        cells = [
            placed(self._devices, self._costs_of[network], network, scheme)
            for network in NETWORKS
            if network not in without
            for scheme in _LINEAR
        ]
        off, factors = self._of(cells, 1.0).nearest([(0, _MOST)] * len(_NAMES))
        return off, self.numbers(factors)

    def _region(self, scheme: SchemeName, within: float, board: tuple[Device, Device] | None = None) -> _Region:
        cells = [placed(board or self._devices, self._costs_of[network], network, scheme) for network in FITTED[scheme]]
        return self._of(cells, within)

    def _of(self, cells: Sequence[PlacedCell], within: float) -> _Region:
        key = tuple((cell.wanted_s, cell.assignment) for cell in cells)
        if key not in self._known:
            fixed, by_factor = linear(self._devices, cells, self._numbers, _NAMES)
            self._known[key] = _Region(fixed, by_factor, np.full(len(cells), within))
        return self._known[key]


_LINEAR: Final[Sequence[SchemeName]] = ("baseline", "typeseq")
"""Schemes whose placement does not depend on costs."""


def number_sets(board: Board, count: int, rng: random.Random) -> list[Numbers]:
    """Sets that satisfy all fitted cells, spread by random walks; the files' numbers come first.

    Fewer than `count` if the walks find no more.
    """
    sets = [np.ones(len(_NAMES)), *_starts(board)]
    generator = np.random.default_rng(rng.randrange(2**32))
    for _ in range(20 * count):
        if len(sets) >= count:
            break
        start = sets[generator.integers(len(sets))]
        end = board.region_at(start).corner(generator.standard_normal(len(_NAMES)))
        if end is not None:
            towards = (start + share * (end - start) for share in (1.0, 0.5))
            sets += [factors for factors in towards if board.region_at(factors).holds(factors)][:1]
    return [board.numbers(factors) for factors in sets]


def _starts(board: Board) -> Iterator[Floats]:
    """Yield sets with different times of a call of the NPU, solved again until OpSeq's placement no longer changes.

    Every other step goes only half of the way, as a full step may overshoot when operators move.
    """
    for call in _CALLS:
        bounds = [(call, call) if name == "npu_call_s" else (_LEAST, _MOST) for name in _NAMES]
        factors = np.ones(len(_NAMES))
        for turn in range(_ROUNDS):
            region = board.region_at(factors)
            if turn and region.holds(factors):
                yield factors
                break
            nearest = region.nearest(bounds)[1]
            factors = np.sqrt(factors * nearest) if turn % 2 else nearest


def reach_rows(board: Board) -> Iterator[Row]:
    """Least errors of one set of numbers for the 14 cells of the CPU alone and TypeSeq, or those of six networks."""
    for without in ([], *([network] for network in NETWORKS)):
        off, numbers = board.reach(without)
        left = ", ".join(NETWORKS[network].title for network in without)
        yield {"cells": f"all but {left}" if left else "all 14", "furthest %": 100 * off, **asdict(numbers)}
