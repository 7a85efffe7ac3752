"""Figure 6: Algorithm 2 from Shisha's seed and from random plans that use every place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.report.results import Row
from benchmarks.shisha.cases import Case, Run, seeded, tuned


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
