"""Online tuning in the daemon: plans are made live, measured on clients' frames, and judged.

The search itself runs in a process of its own, the tuner, and proposes plans (R4). Here each of them becomes an epoch
like any other, is measured in a window of its frames, and the measurement goes back to the tuner (`searches`). Without
frames tuning waits. When the search has ended, the best plan measured is made live (R5), kept on disk, and watched: if
a stage's time is outside its band for several windows, the machine has changed, and the search begins again from the
live plan.

Before a search, candidates are compared live whatever costs say of them (`comparing`): the whole network on each
engine, as copies and as teams. The search begins from the best candidate that can be cut, if that is nearly as fast as
the best of all; its result is compared with the best candidate in the end.

If no live plan can serve, the plan to fall back on is proposed here, too. Which plan is live, only the lifecycle knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner
from shisha_rt.core.lifecycle.instructions import Ending, PlaceBack, Replan, Settled
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.comparing import Comparing
from shisha_rt.core.tuning.course import Then, TuningCourse
from shisha_rt.core.tuning.instructions import Decided, TellProfiler
from shisha_rt.core.tuning.load_response import LoadResponse
from shisha_rt.core.tuning.profiler_messages import EnginesCompared, MeasureLayers, ModelProfiled
from shisha_rt.core.tuning.profiling_turn import PROFILER_WAITS_S, ProfilingTurn
from shisha_rt.core.tuning.run import SearchOptions, SearchRun
from shisha_rt.core.tuning.state import ATTEMPTS, WAITING, Intent, Profiles, Purpose, Serving, State
from shisha_rt.core.tuning.telling import drift_in_words, drift_record, engines_record, profiled_record
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective

QUIET_S: Final = 2.0
_SAMPLED_S: Final = 2e-3
"""While load to compare plans by is awaited, so much time passes from one answer that is looked at to the next."""


class Tuning:
    """What each event leads to. `options` None: no tuner. `fault`: why the daemon's last own plan could not go live."""

    def __init__(self, serving: Serving, choice: Choice, options: SearchOptions | None, warm_up: int) -> None:
        self._serving, self.choice = serving, choice
        self.course = course = TuningCourse(serving, choice, options, warm_up)
        self._outbox = course.outbox
        self.fault: Settled | None = None
        self.switching, self.standby = course.switching, course.standby
        self.measuring, self.drift = course.measuring, course.drift
        self.findings, self.contests, self.searches = course.findings, course.contests, course.searches
        self._profiling = ProfilingTurn()
        self._comparing = Comparing(course, self._profiling)
        self._load = LoadResponse(course, self._comparing)
        self._wants_answers: bool | None = None  # None: to be worked out, as something has changed
        self._answered_s = -math.inf

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        """Apply one event; the decisions are to be carried out in their order before the next event."""
        self._outbox.now_s = now_s
        if type(event) not in _OF_EACH_FRAME:
            self._wants_answers = None
        _APPLY[type(event)](self, event)
        return self._outbox.take()

    @property
    def hears(self) -> Collection[type]:
        """The types of events that `handle` takes."""
        return _APPLY.keys()

    # --- what is settled --------------------------------------------------------------------------------------

    def _settled(self, end: Settled) -> None:
        """Handle the end of any proposal, whoever made it: if its plan is live, the one being measured is not."""
        course, intent = self.course, end.proposed.ticket
        if not isinstance(intent, Intent):
            intent = None
        if intent is not None and intent.purpose is Purpose.AHEAD and self.standby.loaded_ahead(end):
            return
        if intent is not None and intent.purpose is Purpose.SWITCH and self._load.switched(end):
            return
        if end.ending is Ending.LIVE:
            self._plan_live(end.proposed.owner, intent)
        if intent is None:
            return
        current, clients_is_live = intent.run == self.search.number, self.choice.is_clients(self._serving.live)
        again = end.ending is Ending.DROPPED and intent.attempts > 1  # as when a worker died
        match intent.purpose:
            case Purpose.SERVE if again and not clients_is_live:
                self._plan_wanted(Replan(end.reason), intent.attempts - 1)
            case Purpose.SERVE:
                self._serves(end)
            case Purpose.COMPARE:
                compares = self.contests.running is not None
                self.contests.settled(end, intent.attempts)
                if compares:
                    self._comparing.go_on()
            case Purpose.TRIAL if current and self.state is State.TUNING:
                self.searches.settled(end, intent.attempts)
            case Purpose.STAY if again and current and self.state is not State.PAUSED:
                course.propose(end.plan, Purpose.STAY, intent.attempts - 1)
            case Purpose.STAY if course.then is Then.RETURN and end.ending is not Ending.LIVE:
                course.search(f"the best plan could not go live: {end.reason}")
            case Purpose.STAY if current and self.state is State.SETTLING and end.ending is Ending.LIVE:
                course.stay()
            case Purpose.STAY if current and self.state is State.SETTLING:
                course.begin(f"the best plan could not go live: {end.reason}")
            case Purpose.TRIAL | Purpose.PAUSE | Purpose.SWITCH if self.state is State.PAUSED and self.choice.automatic:
                if end.ending is not Ending.REFUSED:
                    self._leave_best(ATTEMPTS if end.ending is Ending.LIVE else intent.attempts - 1)

    def _plan_live(self, owner: Owner, intent: Intent | None) -> None:
        course, live = self.course, self._serving.live
        stays = intent is not None and intent.purpose is Purpose.STAY and intent.run == self.search.number
        is_late = intent is not None and intent.purpose is Purpose.TRIAL  # read only where no trial is awaited
        measuring = self.measuring.epoch is not None
        self.measuring.end()
        if owner is Owner.CLIENT:
            self.choice.of_client = None if live is None else live[1]
            course.pause("a client sets the plan")
        elif self.state is State.TUNING and measuring:
            goes_on = is_late or owner is Owner.PLACER  # the same stages on other devices
            course.begin("another plan has gone live", self.searches.again_from if goes_on else None)
        elif self.state is State.WATCHING and stays:
            course.watch_live()
        elif self.state is State.WATCHING and owner is Owner.TUNER:
            course.begin("another plan has gone live", self.watched)
        elif self.state is State.WATCHING:  # the same stages on other devices
            course.watch(None)
        elif self.state is State.COMPARING and is_late and course.then in (None, Then.MEASURE):
            contest = self.contests.running if course.then is None else self._comparing.judged
            course.return_to(self.search.start if contest is None else contest.serving)

    def _serves(self, end: Settled) -> None:
        """Begin tuning from a plan of the daemon's own, at the start or after a place has gone or come.

        If it is the best plan of an earlier search over the same places, only watch it: a place that several models
        share comes and goes.
        """
        self.fault = None if end.ending is Ending.LIVE or end.transient else end
        course, live, best = self.course, self._serving.live, self.choice.best(self._serving.available)
        if self.options is None or self.state is State.PAUSED or live is None:
            return
        if end.ending is not Ending.LIVE:
            serves = set(live[1].places) <= set(self._serving.available)
            if serves and self.state is not State.COMPARING and self.search.objective != self.choice.objective:
                course.begin(f"the objective is {self.choice.objective} now")
            return
        if self.choice.is_clients(live):
            course.pause("the daemon was started with a plan")
        elif best is not None and best.plan == live[1] and (self.state is State.OFF or self.findings.is_decided):
            when = "of an earlier run" if self.state is State.OFF else "by an earlier search over these places"
            course.break_off()
            self._outbox.write(event_log.TuningResumed(plan=str(best.plan), reason=f"the best plan {when}"))
            course.watch_best(best, self.choice.objective)
        elif self.state is not State.TUNING or self.search.epoch != live[0]:
            course.begin("a new plan of the daemon's own")

    # --- plans of the daemon's own ----------------------------------------------------------------------------

    def _plan_wanted(self, wanted: Replan, attempts: int = 1) -> None:
        """Propose a plan of the daemon's own; one attempt, as the lifecycle asks again while no plan can serve."""
        plan = self.choice.plan(self._serving.available)
        self._outbox.write(event_log.Replanned(reason=wanted.reason, plan=str(plan)))
        self.course.propose(plan, Purpose.SERVE, attempts)

    def _place_returned(self, returned: ev.PlaceReturned | PlaceBack) -> None:
        """Propose a plan with the place. A client's plan stays live, unless one without the place is on its way."""
        if self.course.are_pending(Purpose.SERVE) or not self.choice.is_clients(self._serving.live):
            self._plan_wanted(Replan(f"place {returned.place} is up again"), ATTEMPTS)

    # --- what clients and operators ask -----------------------------------------------------------------------

    def _pause_asked(self, asked: ev.PauseAsked) -> None:
        searching = self.searching
        self.course.pause(asked.why)
        if searching:
            self._leave_best(ATTEMPTS)

    def _leave_best(self, attempts: int) -> None:
        """Make the best plan of a paused search live, also if a trial that was on its way went live after the pause."""
        best, live = self.search.best_runnable, self._serving.live
        on_its_way = self.course.are_pending(Purpose.PAUSE)
        on_its_way |= self.search.objective != self.choice.objective  # the best plan for the new one
        if best is None or live is None or best[0] == live[1] or on_its_way or not attempts:
            return
        self.course.propose(best[0], Purpose.PAUSE, attempts)

    def _search_asked(self, asked: ev.SearchAsked) -> None:
        self.choice.of_client = None
        self.course.heeds_crowd = False  # a search that a client asks for is not postponed
        self.course.forget_results()
        self.course.begin(asked.why)

    def _options_set(self, wanted: ev.OptionsSet) -> None:
        assert self.options is not None  # else there is nothing to set
        strategy, alpha = wanted.strategy or self.options.strategy, wanted.alpha or self.options.alpha
        self.course.options = options = replace(self.options, strategy=strategy, alpha=alpha)
        self.choice.scheme = options.scheme
        if wanted.objective is None:
            return
        changes, live = self.choice.aim_at(wanted.objective), self._serving.live
        if live is None or not self.choice.automatic:
            return
        best = self.choice.best(self._serving.available)
        # In a pause nothing else would have it serve: a comparison for another objective may have been broken off.
        lacks = self.state is State.PAUSED and not self.choice.auto and best is not None and best.plan != live[1]
        if changes or lacks:
            self._plan_wanted(Replan(f"the objective is {wanted.objective} now"), ATTEMPTS)

    def _machine_changed(self, changed: ev.MachineChanged) -> None:
        self.choice.machine = changed.machine
        self.measuring.repeatability.machine_changed()
        self.drift.forget()
        if (live := self._serving.live) is not None and not self.choice.fits(live[1], self._serving.available):
            self._plan_wanted(Replan(changed.why), ATTEMPTS)
        self.course.forget_results()
        if self.searching or self.state in (State.WATCHING, State.COMPARING):
            self.course.begin(changed.why)

    # --- what the profiler and the tuner say ------------------------------------------------------------------

    def _profiler_said(self, said: ev.ProfilerSaid) -> None:
        """Begin the search that waits for costs; if costs were known, begin again, as layers or links have changed."""
        if isinstance(said.message, EnginesCompared):
            self._engines_tried(said.message.tried)
            return
        self.findings.awaited = False  # if it is still True, engines could not be tried
        self._profiling.ended()
        again, profiled = self.choice.profiles is Profiles.KNOWN, isinstance(said.message, ModelProfiled)
        if not (profiled if again else self.choice.profiles is Profiles.COMING):
            return
        self.choice.hear(said.message)
        if not again:
            self._outbox.write(profiled_record(said.message))
        if isinstance(said.message, ModelProfiled):
            self.searches.tell(said.message.costs)
        if self.state is State.PROFILING:
            self.course.begin("what layers cost has been measured")
        elif again and (self.searching or self.state is State.WATCHING):
            self.course.begin("what layers take, or links to other hosts, has been measured again")

    def _engines_tried(self, tried: EnginesTried) -> None:
        self.choice.tried, self.findings.awaited = tried, False
        self._outbox.write(engines_record(tried, self.choice.engines))
        self._profiling.wait(self._outbox.now_s)

    def _let_profile(self) -> None:
        """Have layers measured once plans have been compared; not while a client's pause keeps the tuner's own plan."""
        if self.state is State.PAUSED and self.choice.automatic:
            return
        now_s, measures_winner = self._outbox.now_s, self.course.then is Then.MEASURE
        if self.contests.running is not None:
            self._profiling.comparing(now_s)
            return
        if measures_winner:
            self._profiling.measuring_winner(now_s)
        if self._profiling.begins(now_s, PROFILER_WAITS_S if measures_winner or self.course.compares else 0.0):
            self._outbox.write(event_log.MeasuringLayers())
            self._outbox.decide(TellProfiler(MeasureLayers()))

    def _tuner_said(self, said: ev.TunerSaid) -> None:
        finished = self.searches.hear(said.message) if self.state is State.TUNING else None
        if finished is not None:
            self.course.finish(finished)

    def _tuner_died(self, died: ev.TunerDied) -> None:
        """Begin the search again, from the best plan that it had found (R5)."""
        self._outbox.write(event_log.TunerEnded(reason=died.reason))
        if self.state is State.TUNING:
            self.course.begin(f"the tuner's process died ({died.reason})", self.searches.again_from)

    # --- what frames take -------------------------------------------------------------------------------------

    def _part_taken(self, part: ev.PartTaken) -> None:
        if self.state is State.WATCHING and not part.full:  # slower for each frame than a full batch: no sign of drift
            self.measuring.frame_seen(self._outbox.now_s)
            return
        measurement = self.measuring.part_taken(part, self._outbox.now_s)
        if measurement is None:
            return
        self._wants_answers = None
        if self.state is State.TUNING:
            self.searches.judge(measurement)
        elif self.state is State.COMPARING:
            self._comparing.measured(measurement)
        else:
            self._watched(measurement)

    def _watched(self, measurement: Measurement) -> None:
        """Compare a window of the live plan with its baseline; search again if a stage has drifted."""
        live, repeatability = self._serving.live, self.measuring.repeatability
        assert live is not None
        self.measuring.begin(self._outbox.now_s, self.drift.baseline.measured, again=True)
        measurement = repeatability.widen(measurement)
        if self.course.is_crowded or self._profiling.goes_on:
            return
        self.switching.watched(live[1], measurement)
        drift = self.drift.judge(measurement, self._outbox.now_s)
        if drift is not None:
            repeatability.machine_changed()
            record = drift_record(live[1], drift)
            self._outbox.write(record)
            self.choice.correct(live[1], drift, self._serving.available)
            self.switching.corrected()
            self.course.forget_results()
            self.course.begin(drift_in_words(record))
            self.search.at_start = measurement

    def _frame_answered(self, event: ev.FrameAnswered | ev.FrameAlone) -> None:
        now_s = self._outbox.now_s
        if isinstance(event, ev.FrameAlone):
            self.measuring.frame_alone(event)
            is_wanted = self._wants_some
        else:
            is_wanted = self.wants_answer(now_s)
            self._answered_s = now_s if is_wanted else self._answered_s
        if is_wanted and self._comparing.answered(event):
            self._wants_answers = None

    def _frames_counted(self, counted: ev.FramesCounted) -> None:
        """Go on with what takes time, and follow the load."""
        self._let_profile()
        course, live = self.course, self._serving.live
        if self.state is State.WATCHING and live is not None and live[0] != self.measuring.epoch:
            course.watch_live()  # the plan before leads again, as a comparison was broken off
        if self.contests.running is not None:
            self.contests.look()
            self._comparing.go_on()
        elif self.state is State.COMPARING and live is not None:
            match course.then:
                case Then.MEASURE | Then.KEEP:
                    self._comparing.keep_winner()
                case Then.RETURN:
                    course.go_to_best()
                case Then.SWITCH:
                    self._load.switch()
        self._load.look(counted)

    def _host_seen(self, seen: ev.HostSeen) -> None:
        self.standby.memory_seen(seen.free_ratio)
        if self.contests.running is None:
            self.standby.review()
        self.drift.others_seen(seen.others_ratio, self._outbox.now_s)
        self.findings.others.seen(seen.others_ratio)
        if self.state is State.WATCHING:
            self.findings.drop_disturbed()

    # --- what others ask --------------------------------------------------------------------------------------

    @property
    def options(self) -> SearchOptions | None:
        return self.course.options

    @property
    def state(self) -> State:
        return self.course.state

    @property
    def search(self) -> SearchRun:
        return self.searches.present

    @property
    def searching(self) -> bool:
        return self.course.is_searching

    @property
    def _wants_some(self) -> bool:
        """Whether tuning needs events for computed frames; worked out anew only after events that change it."""
        if self._wants_answers is None:
            self._wants_answers = self.contests.running is not None or self._comparing.awaits_load
        return self._wants_answers

    def wants_answer(self, now_s: float) -> bool:
        """Whether tuning needs an event for a frame that is computed now: for each while plans are compared, for some
        while it awaits load to compare them by, but for each if there is a target, as those that it keeps out count.
        """
        if not self._wants_some or self.contests.running is not None or self.choice.target_s < math.inf:
            return self._wants_some
        return now_s >= self._answered_s + _SAMPLED_S

    @property
    def wants_load(self) -> Objective | None:
        """The objective whose load tuning waits for; None if it waits for none."""
        if self.state is not State.COMPARING or self.findings.awaited:
            return None
        contest, then = self.contests.running, self.course.then
        if contest is not None and contest.duel is None:
            return None  # a plan is being built
        if contest is not None or then is Then.MEASURE:
            return self.search.objective
        return None if then is not None else next(iter(self.findings.due), None)

    @property
    def watched(self) -> Plan | None:
        """The plan of a search that has ended, while it is watched."""
        best = self.search.best_runnable
        return best[0] if self.state is State.WATCHING and best is not None else None

    def doing(self, now_s: float) -> str:
        """State of the tuner in a word, for people: `waiting` while it needs frames and none come."""
        if self.state is State.COMPARING and self.course.then is None:
            if self.contests.running is None and self.choice.profiles is Profiles.COMING:
                return State.PROFILING.value
            return WAITING if self.contests.quiet_s(now_s) > QUIET_S else self.state.value
        return WAITING if self.measuring.quiet_s(now_s) > QUIET_S else self.state.value

    @property
    def strategy(self) -> str:
        """Strategy of the tuner, by its name in `--strategy`; `seed` if the daemon has no tuner."""
        return "seed" if self.options is None else self.options.strategy


_OF_EACH_FRAME: Final = frozenset((ev.PartTaken, ev.FrameAlone, ev.FrameAnswered))
"""Events of which most change nothing but what has been counted."""

_APPLY: Final[Mapping[type, Callable[[Tuning, Any], None]]] = {
    Settled: Tuning._settled,
    Replan: Tuning._plan_wanted,
    ev.PartTaken: Tuning._part_taken,
    **dict.fromkeys((ev.FrameAlone, ev.FrameAnswered), Tuning._frame_answered),
    ev.FramesCounted: Tuning._frames_counted,
    ev.PeriodsCounted: lambda tuning, counted: tuning.measuring.periods_passed(counted),
    ev.ProfilerSaid: Tuning._profiler_said,
    ev.PlannedAhead: lambda tuning, planned: tuning.choice.hear_ahead(planned.by_costs),
    ev.HostSeen: Tuning._host_seen,
    ev.CrowdSeen: lambda tuning, seen: tuning.course.crowd_seen(seen.places),
    ev.TunerSaid: Tuning._tuner_said,
    ev.TunerDied: Tuning._tuner_died,
    ev.PauseAsked: Tuning._pause_asked,
    ev.SearchAsked: Tuning._search_asked,
    ev.OptionsSet: Tuning._options_set,
    ev.MachineChanged: Tuning._machine_changed,
    **dict.fromkeys((ev.PlaceReturned, PlaceBack), Tuning._place_returned),
}
