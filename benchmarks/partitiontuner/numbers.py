"""The numbers of the board's descriptions that are fitted to the paper's Table 2, and how they are found.

What a network takes is linear in them as long as its operators stay where they are; where OpSeq puts them depends on
them. So they are solved for, the network is placed anew, and so on; the best that was met is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Final

import numpy as np

from benchmarks.partitiontuner.board import board_costs
from benchmarks.partitiontuner.published import NETWORKS, SCHEMES
from shisha_rt.arrays import Floats
from shisha_rt.machine.device import Device, Transfer
from shisha_rt.model.graph import Graph
from shisha_rt.papers.partitiontuner.partition_problem import whole_problem
from shisha_rt.papers.partitiontuner.schemes import opseq, typeseq
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.planner.strategies import SchemeName

GROUPED: Final = "resnext50"
"""What a multiply-add in many groups takes follows from it alone."""
FITTED: Final[Mapping[SchemeName, Sequence[str]]] = MappingProxyType(
    {"baseline": tuple(NETWORKS), "typeseq": ("resnet50", "squeezenet"), "opseq": ("resnet50", "squeezenet")}
)
"""The cells of Table 2 that numbers are fitted to; all others are predictions."""

_CPU: Final = ("mac_s", "weight_s", "lrn_s")
_GROUPED: Final = ("grouped_mac_s",)
_ELEMENT: Final = "element_s"
_NPU: Final = ("npu_mac_s", "npu_call_s", "npu_byte_s", _ELEMENT)
_ROUNDS: Final = 30
_REWEIGHTED: Final = 100
_NO_ERROR: Final = 1e-9
_LEAST: Final = 1e-3
"""Of what it was at the start: no number falls further, or becomes negative."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Seconds: on the CPU for each multiply-add (in many groups), weight of a Gemm, element of an LRN and of what goes
    element by element; on the NPU for each multiply-add, call, and byte in or out.
    """

    mac_s: float
    grouped_mac_s: float
    weight_s: float
    lrn_s: float
    element_s: float
    npu_mac_s: float
    npu_call_s: float
    npu_byte_s: float


def numbers_of(devices: tuple[Device, Device]) -> Numbers:
    """As their descriptions have them."""
    cpu, npu = devices

    def first_s(op: str) -> list[float]:
        return [term.seconds for family in cpu.families if op in family.ops for term in family.terms]

    (others,) = (family for family in cpu.families if not family.ops)
    mac_s, _, grouped_s = first_s("Conv")
    assert npu.transfer_in is not None
    return Numbers(
        mac_s=mac_s,
        grouped_mac_s=grouped_s,
        weight_s=first_s("Gemm")[1],
        lrn_s=first_s("LRN")[0],
        element_s=others.terms[0].seconds,
        npu_mac_s=npu.families[0].terms[0].seconds,
        npu_call_s=npu.call_s,
        npu_byte_s=1 / npu.transfer_in.bandwidth_bytes_per_s,
    )


def with_numbers(devices: tuple[Device, Device], numbers: Numbers) -> tuple[Device, Device]:
    """The same devices with other numbers: each stands wherever the one before it stood."""
    cpu, npu = devices
    before = numbers_of(devices)
    on_cpu = {getattr(before, name): getattr(numbers, name) for name in (*_CPU, *_GROUPED, _ELEMENT)}
    moved = Transfer(0.0, 1 / numbers.npu_byte_s)
    return _with_seconds(cpu, on_cpu), replace(
        _with_seconds(npu, {before.npu_mac_s: numbers.npu_mac_s}),
        call_s=numbers.npu_call_s,
        transfer_in=moved,
        transfer_out=moved,
    )


def _with_seconds(device: Device, new: Mapping[float, float]) -> Device:
    families = tuple(
        replace(
            family,
            terms=tuple(replace(term, seconds=new.get(term.seconds, term.seconds)) for term in family.terms),
        )
        for family in device.families
    )
    return replace(device, families=families)


def fitted(devices: tuple[Device, Device], graphs: Mapping[str, Graph]) -> Numbers:
    """The numbers that Table 2 wants; `devices` are where the search starts. `graphs`: by network."""
    numbers = numbers_of(devices)
    best, least = numbers, math.inf
    for _ in range(_ROUNDS):
        numbers = _cpu_fitted(devices, graphs, numbers)
        cells = _npu_cells(devices, graphs, numbers)
        off = float(np.abs(_taken_s(with_numbers(devices, numbers), cells) / _wanted_s(cells) - 1).max())
        if off < least:
            best, least = numbers, off
        numbers = _npu_fitted(devices, cells, numbers)
    return best


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of Table 2, and the place of each operator there."""

    graph: Graph
    wanted_s: float
    assignment: tuple[int, ...]


def _cpu_fitted(devices: tuple[Device, Device], graphs: Mapping[str, Graph], numbers: Numbers) -> Numbers:
    """Networks without many groups come as near as they can, those that are furthest off above all."""
    cells = {network: _cell(graphs[network], network, "baseline", None) for network in FITTED["baseline"]}
    alone = cells.pop(GROUPED)
    numbers = _solved(devices, list(cells.values()), numbers, _CPU, _least_fourth_powers)
    return _solved(devices, [alone], numbers, _GROUPED, _least_squares)


def _npu_fitted(devices: tuple[Device, Device], cells: Sequence[_Cell], numbers: Numbers) -> Numbers:
    """As many numbers as cells. Half of the way: where operators then move, all of it would be too far."""
    found = _solved(devices, cells, numbers, _NPU, _least_squares)
    halves = (math.sqrt(before * after) for before, after in zip(astuple(numbers), astuple(found), strict=True))
    return Numbers(*halves)


def _npu_cells(devices: tuple[Device, Device], graphs: Mapping[str, Graph], numbers: Numbers) -> list[_Cell]:
    board = with_numbers(devices, numbers)
    found = []
    solvers: Mapping[SchemeName, Callable[[Problem], PlacementSolution]] = {"typeseq": typeseq, "opseq": opseq}
    for scheme, solve in solvers.items():
        for network in FITTED[scheme]:
            assignment = solve(whole_problem(board_costs(graphs[network], board))).assignment
            assert assignment is not None  # the CPU runs all
            found.append(_cell(graphs[network], network, scheme, tuple(assignment)))
    return found


def _cell(graph: Graph, network: str, scheme: SchemeName, assignment: tuple[int, ...] | None) -> _Cell:
    ms = NETWORKS[network].ms[list(SCHEMES).index(scheme)]
    return _Cell(graph, 1e-3 * ms, assignment or (0,) * len(graph.operators))


def _wanted_s(cells: Sequence[_Cell]) -> Floats:
    return np.array([cell.wanted_s for cell in cells])


def _taken_s(devices: tuple[Device, Device], cells: Sequence[_Cell]) -> Floats:
    """(cells,): what their partitions, runs of operators in one place, take one after the other."""
    found = []
    for cell in cells:
        costs = board_costs(cell.graph, devices)
        runs = (list(run) for _, run in groupby(range(len(cell.assignment)), key=cell.assignment.__getitem__))
        found.append(math.fsum(costs.stage_s([(run[0], run[-1])], cell.assignment[run[0]]) for run in runs))
    return np.array(found)


_Fit = Callable[[Floats, Floats], Floats]
"""(cells, numbers) and (cells,) to (numbers,)."""


def _solved(
    devices: tuple[Device, Device], cells: Sequence[_Cell], numbers: Numbers, names: Sequence[str], fit: _Fit
) -> Numbers:
    """Some numbers anew, such that errors relative to what is wanted are least."""
    before = np.array([getattr(numbers, name) for name in names])
    taken_s = _taken_s(with_numbers(devices, numbers), cells)
    columns = []
    for name, value in zip(names, before.tolist(), strict=True):
        doubled = with_numbers(devices, replace(numbers, **{name: 2 * value}))
        columns.append(_taken_s(doubled, cells) - taken_s)
    by_factor = np.array(columns).T
    wanted_s = _wanted_s(cells)
    factors = fit(by_factor / wanted_s[:, None], 1 - (taken_s - by_factor.sum(axis=1)) / wanted_s)
    least = _LEAST * np.array([getattr(numbers_of(devices), name) for name in names])
    after = np.maximum(before * factors, least).tolist()
    return replace(numbers, **dict(zip(names, after, strict=True)))


def _least_squares(rows: Floats, target: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(rows, target, rcond=None)[0], np.float64)


def _least_fourth_powers(rows: Floats, target: Floats) -> Floats:
    """So that the largest errors count most. By least squares weighted with the errors before, damped."""
    found = _least_squares(rows, target)
    for _ in range(_REWEIGHTED):
        weights = np.abs(rows @ found - target) + _NO_ERROR
        found = found + (_least_squares(weights[:, None] * rows, weights * target) - found) / 3
    return found
