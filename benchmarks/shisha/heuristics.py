"""Figures 7 and 8: H1 to H6 on C1 to C6; and Figure 9: how far alpha must go as slow places get slower."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks.report.results import Row
from benchmarks.shisha.cases import Case, seeded, tuned
from shisha_rt.papers.simulate.paper_machines import CONFIGURATIONS
from shisha_rt.planner.tune import HEURISTICS

ALPHAS: Final = (1, 2, 3, 4, 5, 7, 10, 20, 50, 100)
SLOWDOWNS: Final = (3, 6, 12)

_ASSIGNED: Final = {"layers": "Rank_l", "weight": "Rank_w", "random": "random"}
_BALANCED: Final = {"nlfep": "nlFEP", "nfep": "nFEP"}


def heuristic_rows(case: Case, draws: int) -> list[Row]:
    """A row for each heuristic; medians if the assignment is random."""
    rows: list[Row] = []
    for name, heuristic in HEURISTICS.items():
        count = draws if heuristic.assign == "random" else 1
        rng = random.Random(0)
        runs = [tuned(case, seeded(case, heuristic, rng), heuristic) for _ in range(count)]
        rows.append(
            {
                "network": case.network,
                "machine": case.configuration,
                "heuristic": name,
                "draws": count,
                "fps": median(run.fps for run in runs),
                "over optimum": median(run.fps for run in runs) / case.optimum_fps,
                "virtual s to best": median(run.time_to_best_s for run in runs),
                "trials to best": median(run.trials_to_best for run in runs),
            }
        )
    return rows


def alpha_rows(cases: Sequence[tuple[float, Case]]) -> list[Row]:
    """`cases`: each with the factor of slow places' times. The seed uses ranks only, so it is always the same."""
    rows: list[Row] = []
    for slowdown, case in cases:
        most_fps = tuned(case, seeded(case), alpha=max(ALPHAS)).fps
        for alpha in ALPHAS:
            run = tuned(case, seeded(case), alpha=alpha)
            rows.append(
                {
                    "network": case.network,
                    "machine": case.configuration,
                    "times slower": slowdown,
                    "alpha": alpha,
                    "over alpha = 100": run.fps / most_fps,
                    "over optimum": run.fps / case.optimum_fps,
                    "trials": run.trials,
                }
            )
    return rows


def table_1() -> list[Row]:
    return [
        {"heuristic": name, "assignment of EPs": _ASSIGNED[one.assign], "balancing": _BALANCED[one.balance]}
        for name, one in HEURISTICS.items()
    ]


def table_2() -> list[Row]:
    return [
        {"machine": name, "FEPs": _places(one.fast, one.fast_cores), "SEPs": _places(one.slow, one.slow_cores)}
        for name, one in CONFIGURATIONS.items()
    ]


def _places(count: int, cores: int) -> str:
    return f"{count} {cores}-core" if count else "none"
