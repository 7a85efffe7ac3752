"""The DCG papers' networks executed on their board, emulated: `python -m benchmarks pim_board`.

Each network at each sequence length p is one stage of the product's own worker on the machine `pim-2`. Operators are
placed as by `python -m benchmarks dcg`, with costs that count a transfer for each edge, and then executed: values are
computed on this host, in bfloat16 on the PIM, and take as long as the device descriptions say. All seconds are those of
the board, without the machine's `time_scale`.

- `on paper ms`: the placement's cost as the papers count it, as in `dcg_speedups`. `predicted ms`: the product's
  prediction, in which a tensor moves once to each memory, and inputs and outputs of the network move, too.
- `optimum as run`: the best placement by `predicted ms`, which a daemon would use; the others do not optimise it.
- `measured ms`: the median service time of the worker's frames; `error %`: against `predicted ms`.
- `ALS over it`, `optimum over it`: the scheme's measured time over that of ALS, and over that of the optimum as run.

`pim_board_gains` compares the least and the largest gains of ALS and of the optimum with the papers' Figure 9, to which
the descriptions of the devices were fitted.

`pim_board_runs`: the profile runs of Algorithm 1, with transfers between devices as the papers count them, each run
once by a new worker. `build s`: building and warming the segments; `frames s`: the rest, one frame each. The product
needs none of these runs, as described devices have formulas.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.dcg.board import ALS, CPU_P_FIRST, DUET, OPT, PIM_FIRST, SEQUENCES, TITLES, Case, place
from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, save_csv, show
from benchmarks.rigs.one_place import OnePlace, fresh_cache, on_one_place, predicted_s
from benchmarks.rigs.stage_rig import StageRig
from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.build import build_problem, tensor_kinds
from shisha_rt.placement.check import cost
from shisha_rt.placement.dcg import device_mapped_graph
from shisha_rt.placement.problem import Assignment
from shisha_rt.placement.profiling import profile_runs
from shisha_rt.placement.segments import segments
from shisha_rt.placement.stage_problem import place_stage

BOARD: Final = "pim-2"
AS_RUN: Final = "optimum as run"
SCHEMES: Final = (CPU_P_FIRST, PIM_FIRST, DUET[50], ALS, OPT, AS_RUN)
PAPER: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {CPU_P_FIRST: (1.1, 2.1), PIM_FIRST: (1.1, 3.0), DUET[50]: (1.09, 1.23)}
)
"""Least and largest gain of ALS over each scheme, over all networks and p: DCG-2024, Figure 9."""
PAPER_RUNS: Final = "3 + 1"

_QUICK_NETWORKS: Final = ("bert",)
_QUICK_SEQUENCES: Final = (8, 64)
_FRAMES: Final = 2


@dataclass(frozen=True, slots=True)
class Executed:
    """A scheme on a network at sequence length p; the board's seconds for one frame."""

    network: str
    sequence: int
    scheme: str
    segments: int
    on_paper_s: float
    predicted_s: float
    measured_s: float


class Board:
    """A network at one sequence length on the emulated board, and a worker that runs it."""

    def __init__(self, network: str, sequence: int, here: OnePlace, rig: StageRig) -> None:
        self._costs = described_costs(here.graph, here.devices)
        on_paper = build_problem(here.graph, self._costs, "per_edge")
        self._case = Case(network, sequence, here.graph, here.devices, on_paper)
        self._as_run = here.problem(self._costs)
        self._here = here
        self._rig = rig

    def execute(self, scheme: str) -> Executed:
        """Place the network and run it."""
        case = self._case
        placement = self._placement(scheme)
        assignment = [case.problem.devices.index(name) for name in placement]
        stage = self._here.load(self._rig, placement)
        (rate,) = self._rig.saturate([stage], [1.0], seconds=_FRAMES)  # as if each took a second: so many frames
        self._rig.unload(stage)
        return Executed(
            network=case.network,
            sequence=case.sequence,
            scheme=scheme,
            segments=len(segments(case.graph, 0, placement)),
            on_paper_s=cost(case.problem, assignment).total_s,
            predicted_s=predicted_s(self._as_run, placement),
            measured_s=rate.service_s / self._here.machine.time_scale,
        )

    def _placement(self, scheme: str) -> tuple[str, ...]:
        graph = self._case.graph
        if scheme == AS_RUN:
            return place_stage(graph, 0, len(graph.operators) - 1, self._costs).devices
        return self._named(place(self._case.problem, scheme))

    def profile(self) -> Row:
        """Execute each profile run of the device-mapped graph once."""
        case = self._case
        dcg = device_mapped_graph(case.problem, tensor_kinds(case.graph, case.problem), "devices")
        runs = profile_runs(dcg)
        build_s = 0.0
        start_s = time.monotonic()
        for run in (*runs.node_runs, *runs.edge_runs):
            stage = self._here.load(self._rig, self._named(run.assignment))
            build_s += stage.prepared.build_s + stage.prepared.warm_s
            self._rig.unload(stage)
        frames_s = (time.monotonic() - start_s - build_s) / self._here.machine.time_scale
        return {
            "network": case.title,
            "p": case.sequence,
            "node runs": len(runs.node_runs),
            "edge runs": len(runs.edge_runs),
            "edge runs, no fewer than": runs.edge_run_bound,
            "paper": PAPER_RUNS,
            "build s": build_s,
            "frames s": frames_s,
            "cold s": build_s + frames_s,
            "emulated": "yes",
        }

    def _named(self, assignment: Assignment) -> tuple[str, ...]:
        return tuple(self._case.problem.devices[device] for device in assignment)


# --- tables -------------------------------------------------------------------------------------------------------


def executed_rows(results: Sequence[Executed]) -> list[Row]:
    """A row for each of `results`, in which all schemes of a network at one p are adjacent."""
    rows: list[Row] = []
    for (network, sequence), group in groupby(results, key=lambda one: (one.network, one.sequence)):
        own = {one.scheme: one for one in group}
        for scheme, one in own.items():
            rows.append(
                {
                    "network": TITLES[network],
                    "p": sequence,
                    "scheme": scheme,
                    "segments": one.segments,
                    "on paper ms": 1e3 * one.on_paper_s,
                    "predicted ms": 1e3 * one.predicted_s,
                    "measured ms": 1e3 * one.measured_s,
                    "error %": 100 * (one.measured_s / one.predicted_s - 1),
                    "ALS over it": one.measured_s / own[ALS].measured_s,
                    "optimum over it": one.measured_s / own[AS_RUN].measured_s,
                    "emulated": "yes",
                }
            )
    return rows


def gain_rows(results: Sequence[Executed]) -> list[Row]:
    """The least and the largest gain over each scheme of `PAPER`, over all networks and p that were executed."""
    found = {(one.network, one.sequence, one.scheme): one for one in results}
    settings = list(dict.fromkeys((one.network, one.sequence) for one in results))

    def ends(rival: str, scheme: str, seconds: str) -> str:
        gains = [
            getattr(found[*setting, rival], seconds) / getattr(found[*setting, scheme], seconds) for setting in settings
        ]
        return _span(min(gains), max(gains))

    return [
        {
            "over": rival,
            "paper": _span(*paper),
            "ALS on paper": ends(rival, ALS, "on_paper_s"),
            "ALS measured": ends(rival, ALS, "measured_s"),
            "optimum on paper": ends(rival, OPT, "on_paper_s"),
            "optimum measured": ends(rival, AS_RUN, "measured_s"),
            "settings": len(settings),
        }
        for rival, paper in PAPER.items()
    ]


def _span(least: float, most: float) -> str:
    return f"{least:.2f} to {most:.2f}"


def _error_note(results: Sequence[Executed]) -> str:
    off = np.abs([one.measured_s / one.predicted_s - 1 for one in results])
    return f"measured against predicted: median {np.median(off):.2%} off, worst {off.max():.2%}"


def pim_board(
    quick: Annotated[bool, typer.Option("--quick", help="BERT only, at p = 8 and 64.")] = False,
) -> None:
    """BERT, RoBERTa and GPT-2 on the emulated PIM board, executed by workers: the rows of `dcg`, measured."""
    networks, sequences = (_QUICK_NETWORKS, _QUICK_SEQUENCES) if quick else (tuple(TITLES), SEQUENCES)
    machine = load_machine(BOARD)
    about = facts(f"pim_board{' --quick' * quick}") | {
        "emulated": f"{machine.name}, time_scale = {machine.time_scale:g}, which is taken out of all seconds",
        "costs": "device descriptions, fitted to Figures 9 and 11 of the DCG papers",
    }
    results: list[Executed] = []
    runs: list[Row] = []
    for network in networks:
        path = zoo_path(network, print)
        for sequence in sequences:
            print(f"pim_board: {TITLES[network]}, p = {sequence} ...", flush=True)
            # Half a gigabyte of model for each p is not worth keeping.
            with fresh_cache():
                here = on_one_place(path, machine, {"sequence": sequence}, precision="any")
                with here.rig(slot_count=1) as rig:
                    board = Board(network, sequence, here, rig)
                    if sequence == sequences[0]:
                        runs.append(board.profile())
                    results += [board.execute(scheme) for scheme in SCHEMES]
            # After each network, so that results are kept if a later one fails.
            save_csv("pim_board", executed_rows(results), about)
            save_csv("pim_board_gains", gain_rows(results), about)
            save_csv("pim_board_runs", runs, about)
    show("The DCG papers' board, emulated: placements executed", executed_rows(results), [_error_note(results)])
    show("What ALS and the optimum gain: on paper and measured", gain_rows(results))
    show("Profile runs executed", runs)
    print(f"written to {RESULTS}: pim_board.csv, pim_board_gains.csv, pim_board_runs.csv")


if __name__ == "__main__":
    typer.run(pim_board)
