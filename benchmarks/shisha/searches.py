"""Figures 4 to 9: Shisha and its rivals on one network and machine, its seeds, its heuristics, and alpha.

Randomised rivals run many times; as in the paper the best run counts, of equal ones the fastest. The median run is
reported, too, as online tuning has only one run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.report.results import Row
from benchmarks.shisha.cases import Case, Run, best_with_assignment_fps, searched, seeded, tuned
from shisha_rt.papers.shisha.exhaustive import trial_count
from shisha_rt.papers.shisha.rivals import RANDOM_WALK_TRIALS
from shisha_rt.papers.shisha.search import Limit
from shisha_rt.papers.simulate.paper_machines import CONFIGURATIONS
from shisha_rt.planner.solution import explored_fraction
from shisha_rt.planner.strategies import RivalName
from shisha_rt.planner.tune import HEURISTICS

# --- figures 4 and 5: searches ----------------------------------------------------------------------------------------


SHISHA: Final = "Shisha"
EXHAUSTIVE: Final = "ES"
PIPE_SEARCH: Final = "PS"
OPTIMUM: Final = "optimum (exact; trials: what ES has to try)"
RANDOMISED: Final[Mapping[str, RivalName]] = {
    "SA": "annealing",
    "SA_s": "annealing_seeded",
    "HC": "hill_climbing",
    "HC_s": "hill_climbing_seeded",
    "RW": "random_walk",
}
PIPE_SEARCH_TRIALS: Final = 395
"""2.03% of C(17, 7), the part that it explored in Figure 4; its time limit is not published."""

Runs = Mapping[str, Sequence[Run]]


def compared(case: Case, runs: int, most_plans: int = 0) -> Runs:
    """The runs of every search; Exhaustive Search runs only if it has at most `most_plans` plans."""
    by_search = {SHISHA: [tuned(case, seeded(case))]}
    for title, name in RANDOMISED.items():
        limit = Limit(RANDOM_WALK_TRIALS) if name == "random_walk" else Limit()
        by_search[title] = [searched(case, name, random.Random(number), limit) for number in range(runs)]
    by_search[PIPE_SEARCH] = [searched(case, "pipe_search", random.Random(0), Limit(PIPE_SEARCH_TRIALS))]
    if trial_count(case.space) <= most_plans:
        by_search[EXHAUSTIVE] = [searched(case, "exhaustive", random.Random(0), Limit())]
    return by_search


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


def search_rows(case: Case, by_search: Runs) -> list[Row]:
    """A row for each search. `trials as in the paper`: with plans that Shisha would measure again. The last row is the
    optimum's.
    """
    own = kept(by_search[SHISHA])
    own_s = own.time_to_best_s
    within = best_with_assignment_fps(case, seeded(case)) / case.optimum_fps
    rows: list[Row] = []
    for title, runs in by_search.items():
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


# --- figure 6: seeds --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seeds:
    """A run's first gain is its seed, its last the solution."""

    case: Case
    own: Run
    drawn: Sequence[Run]

    def row(self) -> Row:
        own, optimum_fps = self.own, self.case.optimum_fps
        times_s = [run.time_to_best_s for run in self.drawn]
        return {
            "network": self.case.network,
            "machine": self.case.configuration,
            "random seeds": len(self.drawn),
            "seed over optimum": own.gains[0][1] / optimum_fps,
            "random seed over optimum, median": median(run.gains[0][1] for run in self.drawn) / optimum_fps,
            "solution over optimum": own.fps / optimum_fps,
            "from random, median": median(run.fps for run in self.drawn) / optimum_fps,
            "worst": min(run.fps for run in self.drawn) / optimum_fps,
            "best": max(run.fps for run in self.drawn) / optimum_fps,
            "virtual s to best": own.time_to_best_s,
            "from random s, median": median(times_s),
            "from random later %": 100 * sum(time_s > own.time_to_best_s for time_s in times_s) / len(times_s),
        }


def from_seeds(case: Case, count: int) -> Seeds:
    rng = random.Random(0)
    space = case.space
    starts = [space.plan(space.drawn(rng)) for _ in range(count)]
    own = tuned(case, seeded(case))
    return Seeds(case, own, [tuned(case, start) for start in starts])


# --- figures 7 to 9: heuristics and alpha -----------------------------------------------------------------------------


ALPHAS: Final = (1, 2, 3, 4, 5, 7, 10, 20, 50, 100)
SLOWDOWNS: Final = (3, 6, 12)

_ASSIGNED: Final = {"layers": "Rank_l", "weight": "Rank_w", "random": "random"}
_BALANCED: Final = {"nlfep": "nlFEP", "nfep": "nFEP"}


def heuristic_rows(case: Case, draws: int) -> Iterator[Row]:
    """A row for each heuristic; medians if the assignment is random."""
    for name, heuristic in HEURISTICS.items():
        count = draws if heuristic.assign == "random" else 1
        rng = random.Random(0)
        runs = [tuned(case, seeded(case, heuristic, rng), heuristic) for _ in range(count)]
        yield {
            "network": case.network,
            "machine": case.configuration,
            "heuristic": name,
            "draws": count,
            "fps": median(run.fps for run in runs),
            "over optimum": median(run.fps for run in runs) / case.optimum_fps,
            "virtual s to best": median(run.time_to_best_s for run in runs),
            "trials to best": median(run.trials_to_best for run in runs),
        }


def alpha_rows(cases: Sequence[tuple[float, Case]]) -> Iterator[Row]:
    """`cases`: each with the factor of slow places' times. The seed uses ranks only, so it is always the same."""
    for slowdown, case in cases:
        most_fps = tuned(case, seeded(case), alpha=max(ALPHAS)).fps
        for alpha in ALPHAS:
            run = tuned(case, seeded(case), alpha=alpha)
            yield {
                "network": case.network,
                "machine": case.configuration,
                "times slower": slowdown,
                "alpha": alpha,
                "over alpha = 100": run.fps / most_fps,
                "over optimum": run.fps / case.optimum_fps,
                "trials": run.trials,
            }


def table_1() -> list[Row]:
    return [
        {"heuristic": name, "assignment of EPs": _ASSIGNED[heuristic.assign], "balancing": _BALANCED[heuristic.balance]}
        for name, heuristic in HEURISTICS.items()
    ]


def table_2() -> list[Row]:
    return [
        {
            "machine": name,
            "FEPs": _places(configuration.fast, configuration.fast_cores),
            "SEPs": _places(configuration.slow, configuration.slow_cores),
        }
        for name, configuration in CONFIGURATIONS.items()
    ]


def _places(count: int, cores: int) -> str:
    return f"{count} {cores}-core" if count else "none"
