"""What the load leads to, at each look: the best plan for it serves, is searched for, or is loaded ahead."""

from __future__ import annotations

from typing import Final

from shisha_rt.core.lifecycle.instructions import Ending, Settled
from shisha_rt.core.tuning.candidates import Candidate
from shisha_rt.core.tuning.comparing import Comparing
from shisha_rt.core.tuning.course import Then, TuningCourse
from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.core.tuning.objective_switching import Wish
from shisha_rt.core.tuning.state import Purpose, State
from shisha_rt.plan.rate import Objective

FLOWING_LOOKS: Final = 12
"""Looks in a row with frames before cuts or batches are tried: by then the objective has followed the load."""


class LoadResponse:
    """Follows the load, unless a client has set the plan or the objective."""

    def __init__(self, course: TuningCourse, comparing: Comparing) -> None:
        self._course = course
        self._serving, self._choice, self._outbox = course.serving, course.choice, course.outbox
        self._switching = course.switching
        self._comparing = comparing
        self._wish: Wish | None = None  # the last one
        self._flowing = 0  # looks in a row at which frames had come
        self._in_flight: tuple[int, ...] = ()  # at the last looks

    def look(self, counted: FramesCounted) -> None:
        """Make the best plan for the present load live; search for one if none is known."""
        course = self._course
        self._in_flight = (*self._in_flight, counted.in_flight)[-FLOWING_LOOKS:]
        is_free = course.state is State.WATCHING and self._choice.automatic
        is_free = is_free and not course.are_pending(*Purpose)
        tried_for = self._tried_for
        wish = self._switching.look(counted, self._outbox.now_s, tried_for)
        self._flowing = self._flowing + 1 if self._switching.frames_came else 0
        if not is_free and tried_for is None:
            self._switching.restart()
            return
        self._wish = wish or self._wish
        if wish is not None and tried_for is not None:
            self._give_way(wish, tried_for)
        elif wish is not None:
            self._heed(wish)
        elif is_free:
            self._use_leisure()

    def _heed(self, wish: Wish) -> None:
        course = self._course
        if wish.best is None:
            if not course.findings.pauses.is_on(wish.objective, self._outbox.now_s):  # what was tried for it gave way
                self._outbox.write(self._switching.follow(wish))
                course.begin(wish.reason)
        elif course.standby.lead_to(wish.best.plan):
            self._outbox.write(self._switching.follow(wish))
            course.return_to_best()  # from the next look on it is watched
        else:
            course.propose(wish.best.plan, Purpose.SWITCH)

    def _use_leisure(self) -> None:
        """While the plan for the present load serves: try what few frames cannot show, and prepare for other load."""
        course, flows = self._course, self._flowing >= FLOWING_LOOKS
        cuttable = None if course.is_crowded or not flows else course.findings.cuts_due
        if cuttable is not None:
            course.search("the network may be cut to more use", cuttable)
        elif due := self._batches_due:
            course.begin_comparing("throughput")
            course.contests.begin_batches(due)
        elif flows and not course.compares:
            ahead = course.standby.to_load_ahead()
            if ahead is not None:
                course.propose(ahead, Purpose.AHEAD)

    @property
    def _batches_due(self) -> list[Candidate]:
        """Plans with batches to be compared, as at each of the last looks enough frames were in flight to fill them."""
        compares = self._course.is_guided and self._choice.compares and self._choice.objective == "throughput"
        few = not compares or len(self._in_flight) < FLOWING_LOOKS
        return [] if few else self._course.findings.batches_due(min(self._in_flight))

    @property
    def _tried_for(self) -> Objective | None:
        """The objective whose trials the load may break off; a search for throughput is not broken off."""
        course, contest = self._course, self._course.contests.running
        if not self._choice.automatic:
            return None
        if contest is not None:
            return contest.objective
        is_for_latency = course.state is State.TUNING and course.searches.present.objective == "latency"
        return "latency" if is_for_latency else None

    def _give_way(self, wish: Wish, tried_for: Objective) -> None:
        """Break off what tries plans, and have the best plan known for the present load serve."""
        course = self._course
        if course.contests.running is not None:
            course.contests.give_way()
        else:
            course.findings.pauses.begin(tried_for, self._outbox.now_s)
        if course.rival is not None:
            self._comparing.go_on()
            return
        course.return_to_best()
        if wish.objective != self._choice.objective:
            course.then = Then.SWITCH

    def switch(self) -> None:
        """Go on from `Then.SWITCH`: have the plan serve that the load asks for."""
        course, live, wish = self._course, self._serving.live, self._wish
        best = None if wish is None else self._choice.best(self._serving.available, wish.objective)
        if wish is None or best is None or best != wish.best:
            course.return_to_best()
        elif live is not None and live[1] == best.plan:
            self._follow(wish)
        elif live is not None and not course.are_pending(Purpose.SWITCH):
            course.propose(best.plan, Purpose.SWITCH)

    def switched(self, end: Settled) -> bool:
        """Handle the end of a switch; False: the caller has to, as something else was asked for or places changed."""
        course, wish = self._course, self._wish
        if end.ending is not Ending.LIVE:
            if not end.transient:  # it is not tried again at once
                self._switching.rest(self._outbox.now_s)
                if course.then is Then.SWITCH:
                    course.return_to_best()
            return True
        awaited = course.state is State.WATCHING or course.then is Then.SWITCH
        if not awaited or not self._choice.auto or wish is None or wish.best is None:
            return False
        if self._choice.best(self._serving.available, wish.objective) != wish.best:
            return False  # the plan is the best for other places than are there now
        self._follow(wish)
        return True

    def _follow(self, wish: Wish) -> None:
        """Watch the plan that the load asks for, which is live."""
        self._outbox.write(self._switching.follow(wish))
        assert wish.best is not None
        self._course.watch_best(wish.best, wish.objective)
