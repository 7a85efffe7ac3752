"""Figures 4 and 5: Shisha and its rivals on one network and machine.

Randomised rivals run many times; as in the paper the best run counts, of equal ones the fastest. The median run is
reported, too, as online tuning has only one run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Final

from benchmarks.report.results import Row
from benchmarks.shisha.cases import Case, Run, best_with_assignment_fps, searched, seeded, tuned
from shisha_rt.papers.shisha.exhaustive import trial_count
from shisha_rt.papers.shisha.rivals import RANDOM_WALK_TRIALS
from shisha_rt.papers.shisha.search import Limit
from shisha_rt.planner.solution import explored_fraction
from shisha_rt.planner.strategies import RivalName

SHISHA: Final = "Shisha"
EXHAUSTIVE: Final = "ES"
PIPE_SEARCH: Final = "PS"
OPTIMUM: Final = "optimum (exact; trials: what ES has to try)"
RANDOMISED: Final[Mapping[str, RivalName]] = MappingProxyType(
    {
        "SA": "annealing",
        "SA_s": "annealing_seeded",
        "HC": "hill_climbing",
        "HC_s": "hill_climbing_seeded",
        "RW": "random_walk",
    }
)
PIPE_SEARCH_TRIALS: Final = 395
"""2.03% of C(17, 7), the part that it explored in Figure 4; its time limit is not published."""

Runs = Mapping[str, Sequence[Run]]


def compared(case: Case, runs: int, most_plans: int = 0) -> Runs:
    """The runs of every search; Exhaustive Search runs only if it has at most `most_plans` plans."""
    found = {SHISHA: [tuned(case, seeded(case))]}
    for title, name in RANDOMISED.items():
        limit = Limit(RANDOM_WALK_TRIALS) if name == "random_walk" else Limit()
        found[title] = [searched(case, name, random.Random(number), limit) for number in range(runs)]
    found[PIPE_SEARCH] = [searched(case, "pipe_search", random.Random(0), Limit(PIPE_SEARCH_TRIALS))]
    if trial_count(case.space) <= most_plans:
        found[EXHAUSTIVE] = [searched(case, "exhaustive", random.Random(0), Limit())]
    return found


def kept(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: (run.fps, -run.time_to_best_s))


def restarted_s(runs: Sequence[Run], fps: float) -> float | None:
    """Virtual seconds, run after run, until a plan reaches `fps`; None: in no run."""
    passed_s = 0.0
    for run in runs:
        for at_s, reached_fps in run.gains:
            if reached_fps >= fps:
                return passed_s + at_s
        passed_s += run.time_s
    return None


def search_rows(case: Case, found: Runs) -> list[Row]:
    """A row for each search. `trials as in the paper`: with plans that Shisha would measure again. The last row is the
    optimum's.
    """
    own = kept(found[SHISHA])
    own_s = own.time_to_best_s
    within = best_with_assignment_fps(case, seeded(case)) / case.optimum_fps
    rows: list[Row] = []
    for title, runs in found.items():
        best = kept(runs)
        times_s = [run.time_to_best_s for run in runs]
        as_good_s = restarted_s(runs, own.fps)
        trials = best.paper_trials if title == SHISHA else best.trials
        rows.append(
            {
                "network": case.network,
                "machine": case.configuration,
                "search": title,
                "runs": len(runs),
                "fps": best.fps,
                "over optimum": best.fps / case.optimum_fps,
                "best with the seed's places": within if title == SHISHA else None,
                "median over optimum": median(run.fps for run in runs) / case.optimum_fps,
                "wall s before": best.setup_wall_s,
                "virtual s to best": best.time_to_best_s,
                "times as long": best.time_to_best_s / own_s,
                "median s to best": median(times_s),
                "median times as long": median(times_s) / own_s,
                "until as good, times as long": None if as_good_s is None else as_good_s / own_s,
                "trials": best.trials,
                "trials as in the paper": trials,
                "explored %": 100 * explored_fraction(trials, len(case.weights), len(case.places)),
            }
        )
    blank: dict[str, object] = dict.fromkeys(rows[0])
    about = {"network": case.network, "machine": case.configuration, "search": OPTIMUM}
    rows.append(blank | about | {"fps": case.optimum_fps, "over optimum": 1.0, "trials": trial_count(case.space)})
    return rows
