"""When plans are compared, and what becomes of the winner: it is measured, unless it has been, kept and watched."""

from __future__ import annotations

from typing import Final

from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.contest import Contest
from shisha_rt.core.tuning.course import Then, TuningCourse
from shisha_rt.core.tuning.profiling_turn import ProfilingTurn
from shisha_rt.core.tuning.state import Purpose, State
from shisha_rt.plan.measurement import Measurement

AFTER_LOSER_S: Final = 0.5
"""From the end of a comparison until its winner is measured: the loser and its spinning threads end meanwhile."""


class Comparing:
    """`judged`: the last comparison that was decided."""

    def __init__(self, course: TuningCourse, profiling: ProfilingTurn) -> None:
        self.judged: Contest | None = None
        self._course = course
        self._serving, self._choice, self._outbox = course.serving, course.choice, course.outbox
        self._contests = course.contests
        self._profiling = profiling

    @property
    def awaits_load(self) -> bool:
        """Whether candidates are to be compared as soon as enough frames come."""
        idle = State.COMPARING, State.WATCHING, State.PROFILING, State.NO_COSTS
        return self._course.state in idle and self._course.compares

    def answered(self, event: ev.FrameAnswered | ev.FrameAlone) -> bool:
        """Count a frame for the comparison that runs, or for the load that one awaits, and begin it once that has come.

        To be called while a comparison runs, or `awaits_load`. Return whether more than counts may have changed.
        """
        course, contests = self._course, self._contests
        if contests.running is not None:
            contests.answered(event)
            self.go_on()
            return True
        if course.then is not None or course.are_pending(Purpose.STAY):
            return False
        objective = contests.load_seen(event, self._outbox.now_s)
        if objective is None:
            gives_up = course.state is State.COMPARING and self.awaits_load and contests.missed(self._outbox.now_s)
            if gives_up:
                course.search("frames do not come in a way to compare plans by")
            return gives_up
        if objective == "latency" and self._profiling.goes_on:
            return False
        course.begin_comparing(objective)
        contests.begin(objective)
        self.go_on()
        return True

    def go_on(self) -> None:
        """See to the end of a comparison, if it has come."""
        course, search = self._course, self._course.searches.present
        if self._contests.is_decided:
            self._end()
        elif self._contests.running is not None:
            return
        elif course.rival is not None:  # no result, for want of load
            best, rival = search.best_runnable, course.rival
            better = best is not None and best[1].is_better_than(rival.measurement, search.objective)
            course.rival, course.then = None, Then.KEEP if better else Then.RETURN
        elif course.state is State.COMPARING and (self._contests.of_batches or not course.compares):
            course.return_to_best()

    def _end(self) -> None:
        """End the comparison, and have its winner, which is live, kept: after it is measured, unless it is known."""
        course = self._course
        self.judged, rival = self._contests.end(), course.rival
        course.rival, course.then = None, Then.MEASURE if rival is None else Then.KEEP
        if rival is not None and self.judged is not None:
            course.findings.note(self.judged)
            if self.judged.serving == rival.plan:
                course.searches.present.best = rival.plan, rival.measurement

    def keep_winner(self) -> None:
        """Go on from `Then.MEASURE` and `Then.KEEP`, in which the winner is live."""
        course, live, best = self._course, self._serving.live, self._course.searches.present.best_runnable
        settled = self._profiling.since_compared_s(self._outbox.now_s) >= AFTER_LOSER_S
        if course.then is Then.KEEP and live is not None and best is not None and live[1] == best[0]:
            course.watch(course.keep_best())
        elif course.then is Then.KEEP:
            course.begin("another plan has gone live")
        elif course.then is Then.MEASURE and course.measuring.epoch is None and settled:
            if live is not None and self.judged is not None and live[1] == self.judged.serving:
                course.measuring.begin(self._outbox.now_s, None)
            elif not course.are_pending(Purpose.STAY):
                course.begin("another plan has gone live")

    def measured(self, measurement: Measurement) -> None:
        """Keep the winner, whose stages have been measured."""
        course, live, search = self._course, self._serving.live, self._course.searches.present
        assert live is not None and self.judged is not None  # noqa: PT018 (its winner is live)
        course.then = None
        course.findings.note(self.judged)
        course.measuring.repeatability.observe(live[1], measurement)
        measurement = course.measuring.repeatability.widen(measurement)
        search.best = live[1], measurement
        if self._choice.auto:
            self._choice.objective = search.objective
        course.keep_best()
        if self._contests.of_batches or not course.compares:
            course.watch(measurement)
