"""The numbers of the board's descriptions that are fitted to the paper's Table 2, and the fit.

A network's time is linear in the numbers as long as its operators stay on their places, but OpSeq's placement depends
on them. So solving for numbers and placing alternate, and the best numbers met are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Final

import numpy as np

from benchmarks.partitiontuner.board import NETWORKS, SCHEMES, board_costs
from shisha_rt.arrays import Floats
from shisha_rt.machine.device import Device, Transfer
from shisha_rt.model.graph import Graph
from shisha_rt.papers.partitiontuner.partition_problem import whole_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.schemes import baseline, opseq, typeseq
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.planner.strategies import SchemeName

GROUPED: Final = "resnext50"
"""The only network that determines the time of a multiply-add in many groups."""
FITTED: Final[Mapping[SchemeName, Sequence[str]]] = {
    "baseline": tuple(NETWORKS),
    "typeseq": ("resnet50", "squeezenet"),
    "opseq": ("resnet50", "squeezenet"),
}
"""The cells of Table 2 to which numbers are fitted; all others are predictions."""

_CPU: Final = ("mac_s", "weight_s", "lrn_s")
_GROUPED: Final = ("grouped_mac_s",)
_ELEMENT: Final = "element_s"
_NPU: Final = ("npu_mac_s", "npu_call_s", "npu_byte_s", _ELEMENT)
_ROUNDS: Final = 30
_REWEIGHTED: Final = 100
_NO_ERROR: Final = 1e-9
_LEAST: Final = 1e-3
"""Least value of a number, as a fraction of its start value."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Seconds: on the CPU for each multiply-add (also in many groups), weight of a Gemm, element of an LRN, and element
    of other element-wise operators; on the NPU for each multiply-add, call, and byte in or out.
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
    cpu, npu = devices

    def first_s(op: str) -> list[float]:
        return [term.amount for family in cpu.families if op in family.ops for term in family.terms]

    (others,) = (family for family in cpu.families if not family.ops)
    mac_s, _, grouped_s = first_s("Conv")
    assert npu.transfer_in is not None
    return Numbers(
        mac_s=mac_s,
        grouped_mac_s=grouped_s,
        weight_s=first_s("Gemm")[1],
        lrn_s=first_s("LRN")[0],
        element_s=others.terms[0].amount,
        npu_mac_s=npu.families[0].terms[0].amount,
        npu_call_s=npu.call_s,
        npu_byte_s=1 / npu.transfer_in.bandwidth_bytes_per_s,
    )


def with_numbers(devices: tuple[Device, Device], numbers: Numbers) -> tuple[Device, Device]:
    """The same devices with other numbers, each of which replaces the old one wherever it occurs."""
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
            terms=tuple(replace(term, amount=new.get(term.amount, term.amount)) for term in family.terms),
        )
        for family in device.families
    )
    return replace(device, families=families)


CostsOn = Callable[[tuple[Device, Device]], ProcessorCosts]
"""Costs of a network on a board."""
_REMEMBERED: Final = 32


def costs_by_network(graphs: Mapping[str, Graph]) -> dict[str, CostsOn]:
    """Costs of each network, cached for the boards that were used last."""
    return {network: lru_cache(_REMEMBERED)(partial(board_costs, graph)) for network, graph in graphs.items()}


def fitted(devices: tuple[Device, Device], graphs: Mapping[str, Graph]) -> Numbers:
    """Fit the numbers to Table 2; `devices`: the start of the search; `graphs`: by network."""
    costs_of = costs_by_network(graphs)
    numbers = numbers_of(devices)
    best, least = numbers, math.inf
    for _ in range(_ROUNDS):
        numbers = _cpu_fitted(devices, costs_of, numbers)
        cells = _npu_cells(devices, costs_of, numbers)
        off = float(np.abs(_taken_s(with_numbers(devices, numbers), cells) / _wanted_s(cells) - 1).max())
        if off < least:
            best, least = numbers, off
        numbers = _npu_fitted(devices, cells, numbers)
    return best


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A cell of Table 2, and the place of each operator."""

    costs_on: CostsOn
    wanted_s: float
    assignment: tuple[int, ...]


def _cpu_fitted(devices: tuple[Device, Device], costs_of: Mapping[str, CostsOn], numbers: Numbers) -> Numbers:
    """Fit the CPU's numbers to the networks without many groups; the largest errors count most."""
    cells = {network: placed(devices, costs_of[network], network, "baseline") for network in FITTED["baseline"]}
    alone = cells.pop(GROUPED)
    numbers = _solved(devices, list(cells.values()), numbers, _CPU, _least_fourth_powers)
    return _solved(devices, [alone], numbers, _GROUPED, _least_squares)


def _npu_fitted(devices: tuple[Device, Device], cells: Sequence[PlacedCell], numbers: Numbers) -> Numbers:
    """Fit the NPU's numbers, as many as cells. The step goes half of the way, as a full one may overshoot if operators
    move.
    """
    fit = _solved(devices, cells, numbers, _NPU, _least_squares)
    halves = (math.sqrt(before * after) for before, after in zip(astuple(numbers), astuple(fit), strict=True))
    return Numbers(*halves)


def _npu_cells(devices: tuple[Device, Device], costs_of: Mapping[str, CostsOn], numbers: Numbers) -> list[PlacedCell]:
    board = with_numbers(devices, numbers)
    schemes: Sequence[SchemeName] = ("typeseq", "opseq")
    return [placed(board, costs_of[network], network, scheme) for scheme in schemes for network in FITTED[scheme]]


def placed(board: tuple[Device, Device], costs_on: CostsOn, network: str, scheme: SchemeName) -> PlacedCell:
    """A cell as the scheme places it on this board; for the paper's schemes except PartitionTuner."""
    ms = NETWORKS[network].ms[list(SCHEMES).index(scheme)]
    assignment = _PLACING[scheme](whole_problem(costs_on(board))).assignment
    assert assignment is not None  # the CPU runs all
    return PlacedCell(costs_on, 1e-3 * ms, tuple(assignment))


_PLACING: Final[Mapping[SchemeName, Callable[[Problem], PlacementSolution]]] = {
    "baseline": baseline,
    "typeseq": typeseq,
    "opseq": opseq,
}


def _wanted_s(cells: Sequence[PlacedCell]) -> Floats:
    return np.array([cell.wanted_s for cell in cells])


def _taken_s(devices: tuple[Device, Device], cells: Sequence[PlacedCell]) -> Floats:
    """(cells,): times of their partitions, runs of operators on one place, in sequence."""
    taken_s = []
    for cell in cells:
        costs = cell.costs_on(devices)
        runs = (list(run) for _, run in groupby(range(len(cell.assignment)), key=cell.assignment.__getitem__))
        taken_s.append(math.fsum(costs.stage_s([(run[0], run[-1])], cell.assignment[run[0]]) for run in runs))
    return np.array(taken_s)


_Fit = Callable[[Floats, Floats], Floats]
"""(cells, numbers) and (cells,) to (numbers,)."""


def _solved(
    devices: tuple[Device, Device], cells: Sequence[PlacedCell], numbers: Numbers, names: Sequence[str], fit: _Fit
) -> Numbers:
    """Solve for the numbers `names`, such that errors relative to the paper's times are least by `fit`."""
    fixed, by_factor = linear(devices, cells, numbers, names)
    factors = fit(by_factor, 1 - fixed)
    least = _LEAST * np.array([getattr(numbers_of(devices), name) for name in names])
    after = np.maximum(np.array([getattr(numbers, name) for name in names]) * factors, least).tolist()
    return replace(numbers, **dict(zip(names, after, strict=True)))


def linear(
    devices: tuple[Device, Device], cells: Sequence[PlacedCell], numbers: Numbers, names: Sequence[str]
) -> tuple[Floats, Floats]:
    """Times of cells over the paper's: a constant (cells,), and coefficients (cells, names) of the numbers' factors."""
    taken_s, wanted_s = _taken_s(with_numbers(devices, numbers), cells), _wanted_s(cells)
    doubled = [with_numbers(devices, replace(numbers, **{name: 2 * getattr(numbers, name)})) for name in names]
    by_factor = np.array([_taken_s(board, cells) - taken_s for board in doubled]).T
    return (taken_s - by_factor.sum(axis=1)) / wanted_s, by_factor / wanted_s[:, None]


def _least_squares(rows: Floats, target: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(rows, target, rcond=None)[0], np.float64)


def _least_fourth_powers(rows: Floats, target: Floats) -> Floats:
    """Least fourth powers, so that the largest errors count most: damped least squares, reweighted by errors."""
    solution = _least_squares(rows, target)
    for _ in range(_REWEIGHTED):
        weights = np.abs(rows @ solution - target) + _NO_ERROR
        solution = solution + (_least_squares(weights[:, None] * rows, weights * target) - solution) / 3
    return solution
