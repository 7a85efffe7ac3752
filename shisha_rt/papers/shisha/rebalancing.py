"""Two walks that rebalance stages which other work slows down: ODIN's, and least-loaded scheduling (LLS).

ODIN: P. N. Soomro, N. Papadopoulou, M. Pericàs, "ODIN: Overcoming Dynamic Interference in iNference pipelines",
Euro-Par 2023, arXiv 2306.01679. Its authors' earlier walk is Shisha's. Like it, both walks move one layer at a time off
the slowest stage, know no costs, and leave stages on their places. They differ in which stage takes the layer, and in
when they end.

Only the abstract of the paper was available. It says that interference is detected online, from stages, and mitigated
by moving work among them, and that ODIN is compared with LLS. The rest is our guess: for both walks, which stage takes
a layer, and that the best plan is the result; for ODIN, that the number of moves without gain is limited (as in
Shisha's walk); for LLS, that it ends when the rate falls. The caller decides when to search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.plan.measurement import Measurement
from shisha_rt.planner.tune import ShishaTuner, Walk


@dataclass(frozen=True, slots=True)
class LeastLoaded(ShishaTuner):
    """The slowest stage gives a layer to the least loaded one, repeatedly until the rate falls.

    A stage's load is the fraction of time that it is busy. At saturation, when the pipeline completes a frame each time
    its slowest stage does, that is proportional to the stage's time.
    """

    def why_over(self, walk: Walk, observation: Measurement) -> str | None:
        """The reason to end: the rate has fallen, beyond noise; None: it has not."""
        assert walk.best_measured is not None  # set by the judgement before
        return "the rate has fallen" if walk.best_measured.is_better_than(observation) else None

    def target(self, source: int, times_s: Sequence[float]) -> int | None:
        return _lightest(range(len(times_s)), source, times_s)


@dataclass(frozen=True, slots=True)
class Odin(ShishaTuner):
    """The slowest stage gives a layer to the lightest stage on one side of it: the side with the smaller total time.

    It goes on through plans that are no better, and ends after `alpha` of them in a row.
    """

    def target(self, source: int, times_s: Sequence[float]) -> int | None:
        sides = [side for side in (range(source), range(source + 1, len(times_s))) if side]
        side = min(sides, key=lambda side: math.fsum(times_s[position] for position in side), default=range(0))
        return _lightest(side, source, times_s)


def _lightest(positions: Sequence[int], source: int, times_s: Sequence[float]) -> int | None:
    """The position of the least time among these, other than `source`; ties: the nearest, then the first.

    None: there is no other. A position without layers takes no time.
    """
    others = (position for position in positions if position != source)
    return min(others, key=lambda position: (times_s[position], abs(position - source)), default=None)
