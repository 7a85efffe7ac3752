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

"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.dcg.board import ALS, CPU_P_FIRST, DUET, OPT, PIM_FIRST, SEQUENCES, TITLES, place
from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.one_place import OnePlace, on_one_place, predicted_s
from benchmarks.rigs.stage_rig import StageRig
from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.build import build_problem
from shisha_rt.placement.check import cost
from shisha_rt.placement.segments import segments
from shisha_rt.placement.stage_problem import place_stage

BOARD: Final = "pim-2"
AS_RUN: Final = "optimum as run"
SCHEMES: Final = (CPU_P_FIRST, PIM_FIRST, DUET[50], ALS, OPT, AS_RUN)

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


def executed(network: str, sequence: int, here: OnePlace, rig: StageRig) -> Iterator[Executed]:
    """Place a network at one sequence length by each scheme, and run it on the emulated board."""
    costs = described_costs(here.graph, here.devices)
    on_paper, as_run = build_problem(here.graph, costs, "per_edge"), here.problem(costs)
    for scheme in SCHEMES:
        if scheme == AS_RUN:
            placement = place_stage(here.graph, 0, len(here.graph.operators) - 1, costs).devices
        else:
            placement = tuple(on_paper.devices[device] for device in place(on_paper, scheme))
        stage = here.load(rig, placement)
        (rate,) = rig.saturate([stage], [1.0], seconds=_FRAMES)  # as if each took a second: so many frames
        rig.unload(stage)
        yield Executed(
            network=network,
            sequence=sequence,
            scheme=scheme,
            segments=len(segments(here.graph, 0, placement)),
            on_paper_s=cost(on_paper, [on_paper.devices.index(name) for name in placement]).total_s,
            predicted_s=predicted_s(as_run, placement),
            measured_s=rate.service_s / here.machine.time_scale,
        )


# --- tables -------------------------------------------------------------------------------------------------------


def executed_rows(results: Sequence[Executed]) -> Iterator[Row]:
    """A row for each of `results`, in which all schemes of a network at one p are adjacent."""
    for (network, sequence), group in groupby(results, key=lambda result: (result.network, result.sequence)):
        own = {result.scheme: result for result in group}
        for scheme, result in own.items():
            yield {
                "network": TITLES[network],
                "p": sequence,
                "scheme": scheme,
                "segments": result.segments,
                "on paper ms": 1e3 * result.on_paper_s,
                "predicted ms": 1e3 * result.predicted_s,
                "measured ms": 1e3 * result.measured_s,
                "error %": 100 * (result.measured_s / result.predicted_s - 1),
                "ALS over it": result.measured_s / own[ALS].measured_s,
                "optimum over it": result.measured_s / own[AS_RUN].measured_s,
                "emulated": "yes",
            }


def _error_note(results: Sequence[Executed]) -> str:
    off = np.abs([result.measured_s / result.predicted_s - 1 for result in results])
    return f"measured against predicted: median {np.median(off):.2%} off, worst {off.max():.2%}"


def pim_board(
    quick: Annotated[bool, typer.Option("--quick", help="BERT only, at p = 8 and 64.")] = False,
) -> None:
    """BERT, RoBERTa and GPT-2 on the emulated PIM board, executed by workers: the rows of `dcg`, measured."""
    networks, sequences = (_QUICK_NETWORKS, _QUICK_SEQUENCES) if quick else (tuple(TITLES), SEQUENCES)
    machine = load_machine(BOARD)
    about = {
        "emulated": f"{machine.name}, time_scale = {machine.time_scale:g}, which is taken out of all seconds",
        "costs": "device descriptions, fitted to Figures 9 and 11 of the DCG papers",
    }
    report = Report("pim_board", about, quick=quick)
    results: list[Executed] = []
    for network in networks:
        path = zoo_path(network, print)
        for sequence in sequences:
            report.step(f"{TITLES[network]}, p = {sequence}")
            # Half a gigabyte of model for each p is not worth keeping.
            with fresh_cache():
                here = on_one_place(path, machine, {"sequence": sequence}, precision="any")
                with here.rig(slot_count=1) as rig:
                    results += executed(network, sequence, here, rig)
            rows = list(executed_rows(results))
            report.save(rows)
    report.show("The DCG papers' board, emulated: placements executed", rows, [_error_note(results)])
