"""A live comparison of two plans in alternating windows: of the plan that serves and of its challenger, A B A B.

A window begins when the other plan's last frame is done. For throughput it measures answers per second while frames are
queued all the time, or a target has many refused: what clients see, time between service times included. For latency it
takes the median of frames that met no other, as long as there are some. As windows alternate, drift affects both plans
alike. The ratios of neighbouring windows are judged: the comparison ends when their mean differs from 1 by more than
their spread. The rate of a window without enough load is only a lower bound of its plan's rate. It counts if it is more
than 1.1 times the other plan's rate under load, several times in a row, as happens if a client cannot keep the faster
plan busy; else the pair of windows is dropped.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shisha_rt.core.tuning.events import FrameAnswered
from shisha_rt.plan.rate import Objective

LEAST_FRAMES: Final = 20
LEAST_S: Final = 0.3
"""The shortest window: periods of a CPU quota are 0.1 s."""
MOST_S: Final = 2.0
FEWEST_FRAMES: Final = 5
"""The fewest frames of a window that has lasted for `MOST_S`."""
MOST_PAIRS: Final = 8
LEAST_PAIRS: Final = 2
LEAST_DIFFERENCE: Final = 0.01
WAITED: Final = 0.9
"""A window has the load for throughput if other frames were queued at this fraction of its answers ..."""
KEPT_OUT: Final = 0.1
"""... or if a target had so many frames refused for each answer in two windows: the better plan may accept all."""
ALONE: Final = 0.03
"""A window has the load for latency if at least this fraction of its answers met no other frame. Of frames that come at
random while copies are busy half of the time it is a tenth, of those that wait none."""
FAR_FASTER: Final = 1.1
"""A window without the load counts if its plan is faster by more than this factor: less may be chance."""
MOST_VOID: Final = 3
"""The comparison ends without a result after so many windows without the load, or pairs without a result, in a row."""
LEAST_BOUNDS: Final = 3
"""So many pairs in a row with one window without the load decide the comparison, if they agree."""

_ASSUMED_SPREAD: Final = 0.03
_ASSUMED_WEIGHT: Final = 2.0
"""Assumed spread of ratios, which counts as much as that of so many measured ones."""
_SURE: Final = 2.0


class Verdict(Enum):
    """How a duel ended."""

    BETTER = "better"
    NOT_BETTER = "not_better"
    NO_LOAD = "no_load"


@dataclass(frozen=True, slots=True)
class DuelResult:
    """`seconds`: for each frame, of the plan that served and of its challenger (nan if there is no window).

    `ratio`: the former over the latter, above 1 if the challenger is faster.
    """

    verdict: Verdict
    seconds: tuple[float, float]
    ratio: float
    pairs: int


class Duel:
    """`teams`: the most teams of a stage in either plan. `turn`: whose window it is: 0, the plan that served before; 1,
    the challenger. `warm_up`: first answers of the challenger, whose window is the first, which are not counted.
    """

    def __init__(self, objective: Objective, teams: int, warm_up: int, now_s: float) -> None:
        self.turn = 1  # it has just gone live
        self.last_s = now_s
        self._objective = objective
        self._teams = teams
        self._figures: tuple[list[float], list[float]] = [], []
        self._full = [True, True]  # whether each plan's newest figure is from a window with the load
        self._bounds: list[tuple[float, float]] = []  # the newest pairs with one window without the load
        self._void = 0
        self._warm_up = warm_up
        self._answers = self._kept_out = self._kept_out_at_start = 0
        self._start(now_s)

    def _start(self, now_s: float) -> None:
        self._opened_s = now_s
        self._first_s: float | None = None
        self._before = self._answers, self._kept_out_at_start
        self._kept_out_at_start = self._kept_out
        self._answers = self._waited = 0
        self._alone_s: list[float] = []

    def interrupt(self, now_s: float) -> None:
        """Begin the window anew: a worker is gone, without which the plan is slower."""
        before = self._before
        self._start(now_s)
        self._before, self.last_s = before, now_s

    @property
    def pairs(self) -> int:
        return min(map(len, self._figures))

    def answered(self, event: FrameAnswered, now_s: float) -> DuelResult | None:
        """Count an answer of the plan whose turn it is, while no frame of the other is in flight.

        A window has whole batches, whose frames are all answered at once. Return the result if this answer decides the
        comparison; if it ends a window, `turn` changes to the other plan.
        """
        self.last_s, self._kept_out = now_s, event.kept_out
        if self._warm_up:
            self._warm_up -= 1
            self._start(now_s)
        if self._first_s is None:
            self._first_s = None if event.left else now_s  # a window is timed between answers
            return None
        self._answers += 1
        self._waited += event.in_flight > self._teams
        if self._objective == "throughput":
            return None if event.left else self._end(now_s)
        meets = self._answers >= LEAST_FRAMES and len(self._alone_s) < ALONE * self._answers
        return self._end_without_figure(now_s) if meets and now_s - self._opened_s >= LEAST_S else None

    def alone(self, latency_s: float, now_s: float) -> DuelResult | None:
        """Count a frame of the plan whose turn it is that met no other; returns as `answered`."""
        self.last_s = now_s
        if not self._warm_up:
            self._alone_s.append(latency_s)
        return self._end(now_s) if self._objective == "latency" else None

    def look(self, now_s: float) -> DuelResult | None:
        """Called periodically, to end a window without a figure if it does not get the load that it needs."""
        patience_s = 2 * MOST_S
        flows = self._frames >= FEWEST_FRAMES and now_s - self.last_s < patience_s
        return None if flows or now_s - self._opened_s < patience_s else self._end_without_figure(now_s)

    @property
    def _frames(self) -> int:
        return self._answers if self._objective == "throughput" else len(self._alone_s)

    def _end(self, now_s: float) -> DuelResult | None:
        lasted_s = now_s - (self._opened_s if self._first_s is None else self._first_s)
        full = self._frames >= LEAST_FRAMES and lasted_s >= LEAST_S
        if not full and not (lasted_s >= MOST_S and self._frames >= FEWEST_FRAMES):
            return None
        if self._objective == "latency":
            return self._close(statistics.median(self._alone_s), now_s)
        return self._close(lasted_s / self._answers, now_s)

    @property
    def _had_load(self) -> bool:
        if self._objective == "latency":
            return True  # else there is no figure
        answers_before, kept_out_before = self._before
        kept_out = self._kept_out - kept_out_before
        return self._waited >= WAITED * self._answers or kept_out >= KEPT_OUT * (answers_before + self._answers)

    def _end_without_figure(self, now_s: float) -> DuelResult | None:
        """End a window, and repeat it, a few times; the very first one by the other plan."""
        if not any(self._figures):
            self.turn = 1 - self.turn
        return self._repeat(now_s)

    def _close(self, figure_s: float, now_s: float) -> DuelResult | None:
        """End a window with its figure, and judge if it is the second of a pair."""
        self._figures[self.turn].append(figure_s)
        self._full[self.turn] = self._had_load
        self.turn = 1 - self.turn
        if len(self._figures[0]) != len(self._figures[1]):
            self._start(now_s)
            return None
        if all(self._full):
            self._void = 0
            self._bounds.clear()
            self._start(now_s)
            return self._judge()
        pair = self._figures[0].pop(), self._figures[1].pop()
        slower = int(pair[1] > pair[0])
        tells = self._full[slower] and pair[slower] > FAR_FASTER * pair[1 - slower]
        if not tells or any(int(new_s > old_s) != slower for old_s, new_s in self._bounds):
            self._bounds.clear()
            return self._repeat(now_s)
        self._bounds.append(pair)
        self._start(now_s)
        if len(self._bounds) < LEAST_BOUNDS:
            return None
        old, new = zip(*self._bounds, strict=True)
        self._figures = list(old), list(new)
        return self._outcome(Verdict.NOT_BETTER if slower else Verdict.BETTER)

    def _repeat(self, now_s: float) -> DuelResult | None:
        self._void += 1
        self._start(now_s)
        return self._outcome(Verdict.NO_LOAD) if self._void >= MOST_VOID else None

    def _judge(self) -> DuelResult | None:
        if self.pairs < LEAST_PAIRS:
            return None
        ratios = self._log_ratios
        mean = statistics.fmean(ratios)
        squares = math.fsum((ratio - mean) ** 2 for ratio in ratios)
        spread = math.sqrt((_ASSUMED_WEIGHT * _ASSUMED_SPREAD**2 + squares) / (_ASSUMED_WEIGHT + len(ratios) - 1))
        if abs(mean) > max(LEAST_DIFFERENCE, _SURE * spread / math.sqrt(len(ratios))):
            return self._outcome(Verdict.BETTER if mean > 0 else Verdict.NOT_BETTER)
        return self._outcome(Verdict.NOT_BETTER) if self.pairs >= MOST_PAIRS else None

    @property
    def _log_ratios(self) -> list[float]:
        return [math.log(old_s / new_s) for old_s, new_s in zip(*self._figures, strict=False)]

    def _outcome(self, verdict: Verdict) -> DuelResult:
        old_s, new_s = (statistics.median(figures) if figures else math.nan for figures in self._figures)
        ratios = self._log_ratios
        return DuelResult(
            verdict, (old_s, new_s), math.exp(statistics.fmean(ratios)) if ratios else math.nan, self.pairs
        )
