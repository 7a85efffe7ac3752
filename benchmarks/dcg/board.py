"""The papers' three networks on the papers' board, and the papers' placement schemes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import TOPOLOGIES
from shisha_rt.placement.build import build_problem
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.solver_names import SolverName
from shisha_rt.placement.solvers import SolverOptions, solve

BOARD: Final = "pim-board"
MODELLED: Final = "modelled, device descriptions"
MADE_FROM: Final = f"{MODELLED} made from this figure"
"""Figures 2(b) and 8: the descriptions have their ratios, so agreement with them proves nothing."""
FITTED_TO: Final = f"{MODELLED} fitted to this figure"
"""Figures 9 and 11: times of transposing and of transfers were fitted to these."""
TITLES: Final[Mapping[str, str]] = {"bert": "BERT", "roberta": "RoBERTa", "gpt2": "GPT-2"}
SEQUENCES: Final = (8, 16, 32, 64)
"""The papers' p."""
SHOWN: Final = 16
"""The p of Figures 10 to 12."""

CPU_S: Final = "CPU_S only"
CPU_P_FIRST: Final = "(CPU_P, PIM, CPU_S)"
PIM_FIRST: Final = "(PIM, CPU_P, CPU_S)"
ALS: Final = "ALS"
OPT: Final = "optimum"
DUET: Final[Mapping[int, str]] = {x: f"DUET(x={x}%)" for x in (0, 25, 50)}

SCHEMES: Final[Mapping[str, tuple[SolverName, SolverOptions]]] = {
    CPU_S: ("priority", SolverOptions(priority=("cpu_s",))),
    CPU_P_FIRST: ("priority", SolverOptions(priority=("cpu_p", "pim", "cpu_s"))),
    PIM_FIRST: ("priority", SolverOptions(priority=("pim", "cpu_p", "cpu_s"))),
    **{label: ("duet", SolverOptions(duet_x=x)) for x, label in DUET.items()},
    ALS: ("als", SolverOptions()),
    OPT: ("exact", SolverOptions()),
}
"""The schemes of section 4.3. The paper's OPT is ALS; `exact` is the proven optimum."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network at sequence length p; transfers count for each edge, as in the papers."""

    network: str
    sequence: int
    graph: Graph
    devices: tuple[Device, ...]
    problem: Problem

    @property
    def title(self) -> str:
        return TITLES[self.network]


def cases(networks: Sequence[str], sequences: Sequence[int]) -> Iterator[Case]:
    """Every network at every p. All weights are 0, as they have no effect here."""
    devices = board_devices()
    with tempfile.TemporaryDirectory() as folder:
        for network in networks:
            print(f"dcg: reading {TITLES[network]} ...", flush=True)
            path = Path(folder) / f"{network}.onnx"
            onnx.save(TOPOLOGIES[network](), path)
            for sequence in sequences:
                graph = read_model(path, InputSizes({"sequence": sequence})).graph
                problem = build_problem(graph, described_costs(graph, devices), "per_edge")
                yield Case(network, sequence, graph, devices, problem)


def board_devices() -> tuple[Device, ...]:
    """CPU_S, CPU_P and PIM, in this order."""
    machine = load_machine(BOARD)
    (place,) = machine.places
    return devices_of(machine, place)


def place(problem: Problem, scheme: str) -> Assignment:
    assignment = solve(SCHEMES[scheme][0], problem, SCHEMES[scheme][1]).assignment
    assert assignment is not None  # none of the schemes ends without
    return assignment
