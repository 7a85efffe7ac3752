"""Time and memory of `exact`: `python -m benchmarks exact_planner`.

Costs are drawn: a layer's weight is lognormal (sigma 0.3); a place of the nth kind takes n times as long, times another
lognormal factor for each layer (sigma 0.2). Transfers, if any, are between 0 and twice the mean layer. "with latency"
is all that `plan --strategy exact` computes; "to the proof" omits the search for low latency among the plans of the
smallest bottleneck. Seconds are of CPU time in one thread, as on an idle machine. Peak memory is what Python and numpy
allocate, in a separate run.

With copies (`--copies` measures only these): stages may have any number of places, and teams of two, four and eight
places of the first kind take 0.55, 0.32 and 0.2 times as long. Sizes take turns, draw by draw.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.report.facts import facts
from benchmarks.report.figures import planner_figure
from benchmarks.report.results import Row, save_csv, save_figure, show
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import stage_costs
from shisha_rt.planner.latency import low_latency
from shisha_rt.planner.reach import lattice, reach
from shisha_rt.planner.solution import PlanSolution

LAYER_S: Final = 1e-3
NOTES: Final = (
    "seconds of CPU time, medians over draws; to the proof: without the search for low latency",
    "latency gap: latency over its lower bound, less 1; proven: no plan of that bottleneck has a lower one",
)


@dataclass(frozen=True, slots=True)
class Size:
    """Size of drawn problems, number of draws, and the aim in seconds (None: no aim)."""

    layers: int
    places: int
    kinds: int
    transfers: bool = False
    draws: int = 5
    aim_s: float | None = None
    objective: Objective = "throughput"


AIMS: Final = (
    Size(50, 8, 2, draws=20, aim_s=0.01),
    Size(50, 8, 2, transfers=True, draws=20),
    Size(1000, 256, 2, aim_s=0.1),
    Size(1000, 256, 2, transfers=True),
    Size(1000, 256, 4, draws=1, aim_s=10),
    Size(1000, 256, 4, transfers=True, draws=1),
)
BY_LAYERS: Final = tuple(
    Size(layers, 64, kinds, draws=3) for kinds in (1, 2, 3, 4) for layers in (125, 250, 500, 1000, 2000, 4000)
)
BY_PLACES: Final = tuple(
    Size(1000, places, kinds, draws=3 if places < 256 else 1)
    for kinds in (1, 2, 3, 4)
    for places in (8, 16, 32, 64, 128, 256)
)
COPIES: Final = tuple(
    Size(50, 64, kinds, transfers=transfers, aim_s=aim_s, objective=objective)
    for kinds, aim_s in ((1, 0.1), (2, 1.0), (3, None))
    for transfers in (False, True)
    for objective in OBJECTIVES
)
TEAMS: Final = {2: 0.55, 4: 0.32, 8: 0.2}


def drawn(size: Size, number: int) -> Costs:
    rng = np.random.default_rng([size.layers, size.places, size.kinds, number])
    weight_s = LAYER_S * rng.lognormal(0, 0.3, size.layers)
    columns = [(1 + kind) * weight_s * rng.lognormal(0, 0.2, size.layers) for kind in range(size.kinds)]
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 0, 0) for i in range(size.layers)),
        places=tuple(CostPlace(str(i), 1 + i % size.kinds, None) for i in range(size.places)),
        time_s=np.stack([columns[i % size.kinds] for i in range(size.places)], axis=1),
        transfer_s=rng.uniform(0, 2 * LAYER_S, size.layers - 1) if size.transfers else np.zeros(size.layers - 1),
    )


def measured(size: Size) -> Row:
    """Medians over draws. Raises RuntimeError if an optimum is not proven."""
    whole_s: list[float] = []
    latency_s: list[float] = []
    gaps: list[float] = []
    for number in range(size.draws):
        costs = drawn(size, number)
        begun_s = time.process_time()
        solution = exact_plan(costs)
        whole_s.append(time.process_time() - begun_s)
        if solution.outcome is not Outcome.OPTIMAL or solution.lower_bound_s is None or solution.plan is None:
            raise RuntimeError(f"{size}: exact ended as {solution.outcome}")
        latency_s.append(_latency_part_s(costs, solution.lower_bound_s))
        found_s = CostsEvaluator(costs).measurement_of(solution.plan).service_s
        gaps.append(0.0 if solution.latency_proven else sum(found_s) / solution.statistics["latency_bound_s"] - 1)
    return {
        "layers": size.layers,
        "places": size.places,
        "kinds": size.kinds,
        "transfers": "yes" if size.transfers else "no",
        "draws": size.draws,
        "cells": int(solution.statistics["cells"]),
        "probes": int(solution.statistics["probes"]),
        "to the proof s": median(whole_s) - median(latency_s),
        "with latency s": median(whole_s),
        "aim s": size.aim_s,
        "peak MiB": _peak_bytes(drawn(size, 0)) / 2**20,
        "latency proven": f"{sum(gap == 0 for gap in gaps)} of {size.draws}",
        "worst latency gap %": 100 * max(gaps),
    }


def measured_with_copies(sizes: Sequence[Size]) -> list[Row]:
    """Medians over draws; sizes take turns. Raises RuntimeError if an optimum is not proven."""
    taken_s: dict[Size, list[float]] = {size: [] for size in sizes}
    solutions: dict[Size, PlanSolution] = {}
    for number in range(max(size.draws for size in sizes)):
        for size in sizes:
            costs = with_teams(drawn(size, number), size)
            begun_s = time.process_time()
            solutions[size] = exact_plan(costs, Goal(replicate=True, objective=size.objective))
            taken_s[size].append(time.process_time() - begun_s)
            if solutions[size].outcome is not Outcome.OPTIMAL:
                raise RuntimeError(f"{size}: exact ended as {solutions[size].outcome}")
    return [
        {
            "layers": size.layers,
            "places": size.places,
            "kinds": size.kinds,
            "transfers": "yes" if size.transfers else "no",
            "objective": size.objective,
            "draws": size.draws,
            "cells": int(solutions[size].statistics["cells"]),
            "seconds": median(taken_s[size]),
            "most s": max(taken_s[size]),
            "aim s": size.aim_s,
            "space": solutions[size].space,
        }
        for size in sizes
    ]


def with_teams(costs: Costs, size: Size) -> Costs:
    """The costs with teams of places of the first kind."""
    first = [place.name for place in costs.places][:: size.kinds]
    teams = [CostTeam(tuple(first[:n]), by * costs.time_s[:, 0]) for n, by in TEAMS.items() if n <= len(first)]
    return replace(costs, teams=tuple(teams))


def _latency_part_s(costs: Costs, bottleneck_s: float) -> float:
    """Seconds of the search for low latency alone, with its table computed before."""
    model = stage_costs(costs)
    states = lattice([len(kind.places) for kind in model.kinds], len(costs.places))
    table = reach(states, model.furthest(bottleneck_s), lambda: False, to_the_end=True)
    assert table is not None  # as it is never stopped
    begun_s = time.process_time()
    low_latency(model, table, Goal())
    return time.process_time() - begun_s


def _peak_bytes(costs: Costs) -> int:
    tracemalloc.start()
    exact_plan(costs)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes


def exact_planner(
    copies: Annotated[bool, typer.Option("--copies", help="Only with copies and teams.")] = False,
) -> None:
    """CPU time and memory of the exact planner: the sizes aimed at, and how both grow with layers and with places."""
    about = facts("exact_planner") | {"costs": "drawn"}
    with_copies = measured_with_copies(COPIES)
    show("With copies and teams", with_copies, ("seconds of CPU time, median and most over draws",))
    print(f"written to {save_csv('exact_planner_copies', with_copies, about)}")
    if copies:
        return
    aims, by_layers, by_places = (list(map(measured, sizes)) for sizes in (AIMS, BY_LAYERS, BY_PLACES))
    show("The exact planner", aims, NOTES)
    show("64 places, more and more layers", by_layers, NOTES)
    show("1,000 layers, more and more places", by_places, NOTES)
    print(f"written to {save_csv('exact_planner', aims, about)}")
    print(f"written to {save_csv('exact_planner_growth', [*by_layers, *by_places], about)}")
    print(f"written to {save_figure('exact_planner', planner_figure(by_layers, by_places), about)}")


if __name__ == "__main__":
    typer.run(exact_planner)
