"""Two plans compared live, in turns: windows of the one that serves and of its challenger, A B A B.

A window begins when the other plan's last frame is out. Under throughput it counts answers in a second while frames
wait the whole time, or a target keeps many out: what clients see, with all that passes between service times. Under
latency it takes the median of frames that met no other, while some do. Turns make what drifts hit both alike; the
ratios of neighbouring windows are what is judged, until they differ from 1 by more than they spread. The rate of a
window without the load that it needs is a lower bound of its plan's. It counts where it is more than 1.1 times the
other plan's rate under that load, several times in a row, as where a client cannot keep the faster plan busy; else it
counts for nothing.
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
"""Of a window: periods of a CPU quota are 0.1 s."""
MOST_S: Final = 2.0
FEWEST_FRAMES: Final = 5
"""Of a window that has lasted for so long."""
MOST_PAIRS: Final = 8
LEAST_PAIRS: Final = 2
LEAST_DIFFERENCE: Final = 0.01
WAITED: Final = 0.9
"""Share of a window's answers behind which others waited."""
KEPT_OUT: Final = 0.1
"""Frames that a target had refused, for each answer of this window and of the one before: so many are the load, too. Of
the one before, as the better of two plans may pass all that come.
"""
ALONE: Final = 0.1
"""Share of a window's answers that met no other, if it is to be one of frames by themselves."""
FAR_FASTER: Final = 1.1
"""By so much a plan must be ahead in a window without the load, for that to count: less may be what comes by chance."""
MOST_VOID: Final = 3
"""Windows in a row without the load, or pairs of them that tell nothing."""
LEAST_BOUNDS: Final = 3
"""Pairs in a row of which one window had not the load."""

_ASSUMED_SPREAD: Final = 0.03
_ASSUMED_WEIGHT: Final = 2.0
"""Spread of ratios that is assumed before there are many: so many ratios' worth."""
_SURE: Final = 2.0


class Verdict(Enum):
    """How a duel ended."""

    BETTER = "better"
    NOT_BETTER = "not_better"
    NO_LOAD = "no_load"


@dataclass(frozen=True, slots=True)
class DuelResult:
    """`seconds`: of the plan that served and of its challenger, what is to be small (nan where there is no window).

    `ratio`: the former over the latter, over 1 where the challenger is faster.
    """

    verdict: Verdict
    seconds: tuple[float, float]
    ratio: float
    pairs: int


class Duel:
    """`teams`: the most that either plan has. `turn`: whose window it is, 0 for the plan that served before.

    `warm_up`: answers that the challenger, whose window is the first, gives before anything is counted.
    """

    def __init__(self, objective: Objective, teams: int, warm_up: int, now_s: float) -> None:
        self.turn = 1  # it has just gone live
        self.last_s = now_s
        self._objective = objective
        self._teams = teams
        self._figures: tuple[list[float], list[float]] = [], []
        self._full = [True, True]  # whether the newest figure of each is one of a window with the load
        self._bounds: list[tuple[float, float]] = []  # the newest pairs of which one window had not the load
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

    @property
    def pairs(self) -> int:
        return min(map(len, self._figures))

    def answered(self, event: FrameAnswered, now_s: float) -> DuelResult | None:
        """Count an answer of the plan whose turn it is, while no frame of the other is under way.

        A window has whole runs, as their frames are answered all at once. Returns the outcome when this answer settles
        it; `turn` is the other's when it ends a window.
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
        return self._close(None, now_s) if meets and now_s - self._opened_s >= LEAST_S else None

    def alone(self, latency_s: float, now_s: float) -> DuelResult | None:
        """Count a frame of the plan whose turn it is that met no other; returns as `answered`."""
        self.last_s = now_s
        if not self._warm_up:
            self._alone_s.append(latency_s)
        return self._end(now_s) if self._objective == "latency" else None

    def look(self, now_s: float) -> DuelResult | None:
        """Every so often: a window that does not get the load that it needs ends without a figure."""
        patience_s = 2 * MOST_S
        flows = self._frames >= FEWEST_FRAMES and now_s - self.last_s < patience_s
        return None if flows or now_s - self._opened_s < patience_s else self._close(None, now_s)

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
        return self._close(lasted_s / self._answers, now_s, full=self._had_load)

    @property
    def _had_load(self) -> bool:
        answers_before, kept_out_before = self._before
        kept_out = self._kept_out - kept_out_before
        return self._waited >= WAITED * self._answers or kept_out >= KEPT_OUT * (answers_before + self._answers)

    def _close(self, figure_s: float | None, now_s: float, *, full: bool = True) -> DuelResult | None:
        """End a window. Without a figure it is taken again, some times; the very first by the other plan."""
        if figure_s is None:
            return self._taken_again(now_s, by_other=not any(self._figures))
        self._figures[self.turn].append(figure_s)
        self._full[self.turn] = full
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
            return self._taken_again(now_s, by_other=False)
        self._bounds.append(pair)
        self._start(now_s)
        if len(self._bounds) < LEAST_BOUNDS:
            return None
        old, new = zip(*self._bounds, strict=True)
        self._figures = list(old), list(new)
        return self._outcome(Verdict.NOT_BETTER if slower else Verdict.BETTER)

    def _taken_again(self, now_s: float, *, by_other: bool) -> DuelResult | None:
        self._void += 1
        if by_other:
            self.turn = 1 - self.turn
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
