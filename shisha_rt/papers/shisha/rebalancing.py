"""Two walks that make up for stages that something else slows down: ODIN's, and least-loaded scheduling (LLS).

ODIN: P. N. Soomro, N. Papadopoulou, M. Pericàs, "ODIN: Overcoming Dynamic Interference in iNference pipelines",
Euro-Par 2023, arXiv 2306.01679. Its authors' earlier walk is Shisha's; like that, both of these move one layer at a
time off the slowest stage, know no costs, leave stages on their places, and differ in who takes the layer and when they
end.

Only the abstract of the paper was at hand. What it says: interference is noticed online, from stages, and mitigated by
moving work among them; LLS is what ODIN is held against. All that is below is guessed from that, for both: which stage
takes a layer, that the number of moves without gain is limited, by how many (as in Shisha's walk), and that the best
plan stays. What tells that a search is due, the caller says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.plan.measurement import Measurement
from shisha_rt.planner.tune import ShishaTuner, Walk


@dataclass(frozen=True, slots=True)
class LeastLoaded(ShishaTuner):
    """The slowest stage gives a layer to the least loaded one, again and again until the rate falls.

    Loaded is a stage by the part of the time that it works. Of a pipeline at saturation, which turns out a frame each
    time its slowest stage has done one, that is in proportion to the stage's time.
    """

    def why_over(self, walk: Walk, observation: Measurement) -> str | None:
        """A rate that may be the same, by the noise, has not fallen."""
        assert walk.best_measured is not None  # it has been judged
        return "the rate has fallen" if walk.best_measured.is_better_than(observation) else None

    def target(self, source: int, times_s: Sequence[float]) -> int | None:
        return _lightest(range(len(times_s)), source, times_s)


@dataclass(frozen=True, slots=True)
class Odin(ShishaTuner):
    """The slowest stage gives a layer to the lightest stage on that side of it which has less to do in all.

    It explores further through plans that are no better, and ends after `alpha` of them in a row.
    """

    def target(self, source: int, times_s: Sequence[float]) -> int | None:
        sides = [side for side in (range(source), range(source + 1, len(times_s))) if side]
        side = min(sides, key=lambda side: math.fsum(times_s[position] for position in side), default=range(0))
        return _lightest(side, source, times_s)


def _lightest(positions: Sequence[int], source: int, times_s: Sequence[float]) -> int | None:
    """Of these positions the one with the least time; of equals the nearest, then the first. None: there is no other.

    One that has no layers takes no time.
    """
    others = (position for position in positions if position != source)
    return min(others, key=lambda position: (times_s[position], abs(position - source)), default=None)
