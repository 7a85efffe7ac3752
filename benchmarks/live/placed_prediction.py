"""How well the time of a placement is predicted: `python -m benchmarks placed_prediction`.

Random placements of whole networks: 1 to 6 runs of operators, each with a random order of devices, whose first is never
that of the run before; an operator is on the first device of the order that can run it. The product's worker builds
each placement as one stage and runs it with no other load on the machine; the prediction by costs is compared with the
median of its service times.

- Real engines: ONNX Runtime on one thread and OpenVINO on one core, with costs that were profiled just before.
- The board of the DCG papers, emulated (`pim-2`): costs are formulas that the worker emulates, so this measures how
  exactly it does. Seconds are those of the board, without its `time_scale`.

`error %`: measured over predicted, minus 1. `segments ms`: the worker's times of its segments, CPU time on a real
engine; a difference to the service time shows that something else was running.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, save_csv, show
from benchmarks.rigs.one_place import OnePlace, by_order, fresh_cache, on_one_place, one_core, predicted_s
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.segments import Segment, segments

BOARD: Final = "pim-2"
MAX_RUNS: Final = 6
AIM_PERCENT: Final = 5.0

_SECONDS: Final = 0.5
_SLOTS: Final = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and how many placements are tried. With a `sequence` length it is a transformer on the board."""

    model: str
    placements: int
    sequence: int | None = None

    def ready(self) -> OnePlace:
        path = zoo_path(self.model, print)
        if self.sequence is None:
            return on_one_place(path, one_core(), {}, precision="exact")
        return on_one_place(path, load_machine(BOARD), {"sequence": self.sequence}, precision="any")


FULL: Final = (Case("squeezenet", 30), Case("inception_v1", 30), Case("bert", 30, sequence=16))
QUICK: Final = (Case("squeezenet", 10), Case("bert", 5, sequence=16))


def random_placement(rng: random.Random, costs: OperatorCosts) -> tuple[str, ...]:
    """(operators,): the name of each operator's device, which can run it."""
    operators, devices = costs.time_s.shape
    starts = sorted(rng.sample(range(1, operators), min(rng.randrange(MAX_RUNS), operators - 1)))
    found: list[str] = []
    order: list[int] = []
    for first, after in pairwise([0, *starts, operators]):
        preferred = order[:1]
        order = rng.sample(range(devices), devices)
        if order[:1] == preferred:  # else the two runs would be one
            order.reverse()
        found += by_order(costs.part(first, after - 1), order)
    return tuple(found)


def rows_of(case: Case) -> Iterator[Row]:
    """Yield a row for each placement when it has been run."""
    network = case.ready()
    with fresh_cache():
        costs = network.profile().costs
    problem = network.problem(costs)
    rng = random.Random(case.model)
    with network.rig(_SLOTS) as rig:
        for number in range(case.placements):
            placement = random_placement(rng, costs)
            parts = segments(network.graph, 0, placement)
            before_s = predicted_s(problem, placement)
            stage = network.load(rig, placement)
            rate = rig.alone(stage, _SECONDS)
            after_s = rate.service_s / network.machine.time_scale
            rig.unload(stage)
            yield {
                "model": case.model,
                "machine": network.machine.name,
                "emulated": "yes" if network.machine.emulated else "no",
                "number": number,
                "segments": len(parts),
                "predicted ms": 1e3 * before_s,
                "measured ms": 1e3 * after_s,
                "error %": 100 * (after_s / before_s - 1),
                "segments ms": 1e3 * sum(rate.segments_s),
                "placement": written(parts),
            }


def written(parts: Sequence[Segment]) -> str:
    return " ".join(f"{part.device}:{part.first}-{part.last}" for part in parts)


def summaries(rows: Sequence[Row]) -> list[Row]:
    """A row for each network: the size of errors of predictions, and their signed median, which shows a bias."""
    found: list[Row] = []
    for (model, machine), group in groupby(rows, key=lambda row: (row["model"], row["machine"])):
        own = list(group)
        errors = np.array([float(str(row["error %"])) for row in own])
        off = np.abs(errors)
        found.append(
            {
                "model": model,
                "machine": machine,
                "emulated": own[0]["emulated"],
                "placements": len(own),
                "median off %": float(np.median(off)),
                "90% within %": float(np.quantile(off, 0.9)),
                "worst %": float(off.max()),
                "median error %": float(np.median(errors)),
            }
        )
    return found


def placed_prediction(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer placements, and two networks only.")] = False,
) -> None:
    """Predicted against measured times of random placements, on real engines and on the emulated PIM board."""
    about = facts(f"placed_prediction{' --quick' * quick}")
    rows: list[Row] = []
    for case in QUICK if quick else FULL:
        print(f"placed_prediction: {case.model} ...", flush=True)
        for row in rows_of(case):
            rows.append(row)
            # After each network, so that results are kept if a later one fails.
            save_csv("placed_prediction", rows, about)
    show(
        "Random placements: measured times against predicted ones",
        summaries(rows),
        [f"aim: median off by at most {AIM_PERCENT:g}%"],
    )
    print(f"written to {RESULTS}: placed_prediction.csv")


if __name__ == "__main__":
    typer.run(placed_prediction)
