"""Online tuning in the daemon: plans are made live, measured on clients' frames, and judged.

The search itself runs in a process of its own, the tuner, and proposes plans (R4). Here each of them becomes an epoch
like any other, is measured in a window of its frames, and the measurement goes back to the tuner. Without frames tuning
waits. When the search has ended, the best plan measured is made live (R5), kept on disk, and watched: if a stage's time
is outside its band for several windows, the machine has changed, and the search begins again from the live plan.

Before a search, candidates are compared live whatever costs say of them (`contest`): the whole network on each engine,
as copies and as teams. The search begins from the best candidate that can be cut, if that is nearly as fast as the best
of all; its result is compared with the best candidate in the end.

If no live plan can serve, the plan to fall back on is proposed here, too. Which plan is live, only the lifecycle knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner, Superseded
from shisha_rt.core.lifecycle.instructions import Ending, PlaceBack, Replan, Settled
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.candidates import Candidate
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.contest import Contest, Contests
from shisha_rt.core.tuning.drift import DriftWatch
from shisha_rt.core.tuning.findings import Findings
from shisha_rt.core.tuning.instructions import CountTrial, Decided, Keep, TellProfiler, TellTuner, TuningOutbox
from shisha_rt.core.tuning.measuring import Measuring
from shisha_rt.core.tuning.objective_switching import ObjectiveSwitching, Wish
from shisha_rt.core.tuning.profiler_messages import EnginesCompared, MeasureLayers, ModelProfiled
from shisha_rt.core.tuning.profiling_turn import ProfilingTurn
from shisha_rt.core.tuning.run import SearchOptions, SearchRun, beginning, never_ran, walk_order
from shisha_rt.core.tuning.standby import Standby
from shisha_rt.core.tuning.state import ATTEMPTS, WAITING, Intent, Profiles, Purpose, Serving, State
from shisha_rt.core.tuning.telling import (
    drift_in_words,
    drift_record,
    engines_record,
    profiled_record,
)
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective

QUIET_S: Final = 2.0
AFTER_LOSER_S: Final = 0.5
"""From the end of a comparison until its winner is measured: the loser and its spinning threads end meanwhile."""
FLOWING_LOOKS: Final = 12
"""Frames must have come in so many looks in a row before cuts are searched, or plans with batches compared: by then the
objective has followed the load."""


class _Then(Enum):
    """What is left to do when candidates have been compared."""

    MEASURE = "the winner's stages are to be measured"
    KEEP = "the winner is known, and is to be kept"
    RETURN = "nothing was found out, and the best plan known is to serve"
    SWITCH = "the load asks for another objective, and its best plan is to serve; the objective changes once it is live"


class Tuning:
    """Follows the tuner's process and watches the live plan. `options` None: the daemon has no tuner."""

    def __init__(self, serving: Serving, choice: Choice, options: SearchOptions | None, warm_up: int) -> None:
        self.choice = choice
        self.options = options
        self.state = State.OFF
        self.search = SearchRun(0)
        self.trials = self.moves = 0
        self.fault: Settled | None = None
        self.following = ObjectiveSwitching(serving, choice)
        self._serving = serving
        self._outbox = TuningOutbox()
        self.standby = Standby(serving, choice, self.following, self._outbox)
        self.measuring = Measuring(serving, choice, warm_up)
        self.drift = DriftWatch()
        self.findings = Findings(serving, choice, self._outbox)
        self.contests = Contests(serving, choice, self._outbox, self.findings, warm_up)
        self._then: _Then | None = None
        self._rival: BestPlan | None = None
        self._judged: Contest | None = None  # the last comparison that was decided
        self._flowing = 0
        self._in_flight: tuple[int, ...] = ()  # at the last looks
        self._crowded: tuple[str, ...] = ()
        self._heeds_crowd = True
        self._put_off: tuple[str, Plan | None] | None = None
        self._profiling = ProfilingTurn()

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        """Apply one event; the decisions are to be carried out in their order before the next event."""
        self._outbox.now_s = now_s
        _APPLY[type(event)](self, event)
        return self._outbox.take()

    @property
    def hears(self) -> Collection[type]:
        """The types of events that `handle` takes."""
        return _APPLY.keys()

    # --- what is settled --------------------------------------------------------------------------------------

    def _settled(self, end: Settled) -> None:
        """Handle the end of any proposal, whoever made it: if its plan is live, the one being measured is not."""
        intent = end.proposed.ticket
        if not isinstance(intent, Intent):
            intent = None
        if intent is not None and intent.purpose is Purpose.AHEAD and self.standby.loaded_ahead(end):
            return
        if intent is not None and intent.purpose is Purpose.SWITCH and self._switched(end):
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
                    self._contest_went_on()
            case Purpose.TRIAL if current and self.state is State.TUNING:
                self._trial_settled(end, intent.attempts)
            case Purpose.STAY if again and current and self.state is not State.PAUSED:
                self._propose(Owner.TUNER, end.plan, Purpose.STAY, intent.attempts - 1)
            case Purpose.STAY if self._then is _Then.RETURN and end.ending is not Ending.LIVE:
                self._search(f"the best plan could not go live: {end.reason}")
            case Purpose.STAY if current and self.state is State.SETTLING:
                self._stay_settled(end)
            case Purpose.TRIAL | Purpose.PAUSE | Purpose.SWITCH if self.state is State.PAUSED and self.choice.automatic:
                if end.ending is not Ending.REFUSED:
                    self._leave_best(ATTEMPTS if end.ending is Ending.LIVE else intent.attempts - 1)

    def _plan_live(self, owner: Owner, intent: Intent | None) -> None:
        stays = intent is not None and intent.purpose is Purpose.STAY and intent.run == self.search.number
        is_late = intent is not None and intent.purpose is Purpose.TRIAL  # read only where no trial is awaited
        measuring = self.measuring.epoch is not None
        self.measuring.end()
        if owner is Owner.CLIENT:
            self.choice.of_client = None if self._serving.live is None else self._serving.live[1]
            self._pause("a client sets the plan")
        elif self.state is State.TUNING and measuring:
            goes_on = is_late or owner is Owner.PLACER  # the same stages on other devices
            self._begin("another plan has gone live", self._search_from if goes_on else None)
        elif self.state is State.WATCHING and stays:
            self._watch_live()
        elif self.state is State.WATCHING and owner is Owner.TUNER:
            self._begin("another plan has gone live", self.watched)
        elif self.state is State.WATCHING:  # the same stages on other devices
            self._watch(None)
        elif self.state is State.COMPARING and is_late and self._then in (None, _Then.MEASURE):
            contest = self.contests.running if self._then is None else self._judged
            self._return_to(self.search.start if contest is None else contest.serving)

    def _serves(self, end: Settled) -> None:
        """Begin tuning from a plan of the daemon's own, at the start or after a place has gone or come.

        If it is the best plan of an earlier search over the same places, only watch it: a place that several models
        share comes and goes.
        """
        self.fault = None if end.ending is Ending.LIVE or end.transient else end
        live, best = self._serving.live, self.choice.best(self._serving.available)
        if self.options is None or self.state is State.PAUSED or live is None:
            return
        if end.ending is not Ending.LIVE:
            serves = set(live[1].places) <= set(self._serving.available)
            if serves and self.state is not State.COMPARING and self.search.objective != self.choice.objective:
                self._begin(f"the objective is {self.choice.objective} now")
            return
        if self.choice.is_clients(live):
            self._pause("the daemon was started with a plan")
        elif best is not None and best.plan == live[1] and (self.state is State.OFF or self.findings.is_decided):
            when = "of an earlier run" if self.state is State.OFF else "by an earlier search over these places"
            if self.state is State.TUNING:
                self._tell(tm.Break(self.search.number))
            self._outbox.write(event_log.TuningResumed(plan=str(best.plan), reason=f"the best plan {when}"))
            self.search = self.following.search_of(self.choice.objective, best, self.search)
            self._watch(best.measurement)
        elif self.state is not State.TUNING or self.search.epoch != live[0]:
            self._begin("a new plan of the daemon's own")

    # --- plans of the daemon's own ----------------------------------------------------------------------------

    def _plan_wanted(self, wanted: Replan, attempts: int = 1) -> None:
        """Propose a plan of the daemon's own.

        One attempt is enough: as long as no live plan can serve, the lifecycle asks again by itself.
        """
        plan = self.choice.plan(self._serving.available)
        self._outbox.write(event_log.Replanned(reason=wanted.reason, plan=str(plan)))
        self._propose(Owner.DAEMON, plan, Purpose.SERVE, attempts)

    def _place_returned(self, returned: ev.PlaceReturned | PlaceBack) -> None:
        """Propose a plan with the place. A client's plan stays live, unless one without the place is on its way."""
        if self._has_proposed(Purpose.SERVE) or not self.choice.is_clients(self._serving.live):
            self._plan_wanted(Replan(f"place {returned.place} is up again"), ATTEMPTS)

    def _propose(self, owner: Owner, plan: Plan, purpose: Purpose, attempts: int = 1) -> int:
        live, intent = self._serving.live, Intent(purpose, self.search.number, attempts)
        if live is None:
            return self._outbox.propose(owner, plan, None, intent)
        stays = purpose in (Purpose.SWITCH, Purpose.STAY, Purpose.AHEAD)
        superseded = self.standby.superseded(live[1]) if stays else Superseded.RETIRES
        return self._outbox.propose(owner, plan, live[0], intent, superseded)

    def _has_proposed(self, *purposes: Purpose) -> bool:
        """Whether a proposal of tuning's for one of these purposes has not ended."""
        intents = (proposed.ticket for proposed in self._serving.proposals)
        return any(isinstance(intent, Intent) and intent.purpose in purposes for intent in intents)

    # --- beginning and ending a search ------------------------------------------------------------------------

    def _begin(self, why: str, start: Plan | None = None) -> None:
        """End any search in progress, and begin anew: compare candidates if that is due, else search.

        `start`: where to search from, and what serves while load is awaited. None: from the best candidate that can be
        cut, if that is worth searching, else the best plan serves; from the live plan, if no candidates were compared.
        """
        if self._serving.live is None or self.options is None:
            return
        self.contests.abort()
        winner = self.findings.winner(self.choice.objective)
        if self._compares:
            self._await_load(start)
        elif start is not None or winner is None:
            self._search(why, start)
        elif winner.worth_cutting is not None:
            self._search(why, winner.worth_cutting)
        else:
            self._return_to_best()

    def _search(self, why: str, start: Plan | None = None) -> None:
        live, options, available = self._serving.live, self.options, self._serving.available
        if live is None or options is None:
            return
        if self._is_crowded:
            self._postpone(why, start)
            return
        self._put_off = self._then = None
        self.findings.search_begins()
        if options.strategy == "guided" and self.choice.profiles is not Profiles.KNOWN:
            self.state = State.PROFILING if self.choice.profiles is Profiles.COMING else State.NO_COSTS
            self.measuring.end()
            return
        plan = self.choice.start(start or live[1], available)
        if options.strategy == "shisha" and not plan.is_plain:  # which handles only chains
            plan = self.choice.seed(available)
        order, objective = walk_order(self.search, plan, available), self.choice.objective
        begun = live[0], objective, self._outbox.now_s
        self.search = SearchRun(self.search.number + 1, *begun, plan, order, available, options.scheme)
        self.state = State.TUNING
        self.measuring.end()
        self._outbox.write(self.search.began_record(options, plan, why))
        self._tell(beginning(self.search, options, plan, self.choice))

    def _postpone(self, why: str, start: Plan | None) -> None:
        """Watch until no other model computes frames on the live plan's places. `start`: where to search from then, and
        the plan to be live meanwhile; None: the live one.
        """
        if self.state is State.TUNING:
            self._tell(tm.Break(self.search.number))
        self._put_off = why, start
        self._watch_live()
        self._return_to(start)

    def _return_to(self, plan: Plan | None) -> None:
        """Have this plan serve, if another one has gone live."""
        live, available = self._serving.live, self._serving.available
        if plan is not None and live is not None and plan != live[1] and self.choice.fits(plan, available):
            self._propose(Owner.TUNER, plan, Purpose.STAY, ATTEMPTS)

    @property
    def _search_from(self) -> Plan | None:
        """Where a search that was cut short begins again: from the best plan it has measured, else where it began."""
        best = self.search.best_runnable
        return self.search.start if best is None else best[0]

    def _pause_asked(self, asked: ev.PauseAsked) -> None:
        searching = self.searching
        self._pause(asked.why)
        if searching:
            self._leave_best(ATTEMPTS)

    def _leave_best(self, attempts: int) -> None:
        """Make the best plan of a paused search live, also if a trial that was on its way went live after the pause."""
        best, live = self.search.best_runnable, self._serving.live
        on_its_way = self._has_proposed(Purpose.PAUSE)
        on_its_way |= self.search.objective != self.choice.objective  # the best plan for the new one
        if best is None or live is None or best[0] == live[1] or on_its_way or not attempts:
            return
        self._propose(Owner.TUNER, best[0], Purpose.PAUSE, attempts)

    def _pause(self, why: str) -> None:
        if self.state is State.PAUSED or self.options is None or self._serving.live is None:
            return
        self.state, self._then = State.PAUSED, None
        self.measuring.end()
        self.contests.abort()
        self._outbox.write(event_log.TuningPaused(run=self.search.number, reason=why))
        self._tell(tm.Break(self.search.number))

    def _search_asked(self, asked: ev.SearchAsked) -> None:
        self.choice.of_client = None
        self._heeds_crowd = False  # a search that a client asks for is not postponed
        self._look_anew()
        self._begin(asked.why)

    def _options_set(self, wanted: ev.OptionsSet) -> None:
        assert self.options is not None  # else there is nothing to set
        strategy, alpha = wanted.strategy or self.options.strategy, wanted.alpha or self.options.alpha
        self.options = replace(self.options, strategy=strategy, alpha=alpha)
        self.choice.scheme = self.options.scheme
        others = wanted.objective is not None and self.choice.aim_at(wanted.objective)
        if others and self.choice.automatic and self._serving.live is not None:
            self._plan_wanted(Replan(f"the objective is {wanted.objective} now"), ATTEMPTS)

    def _machine_changed(self, changed: ev.MachineChanged) -> None:
        self.choice.machine = changed.machine
        self.measuring.repeatability.machine_changed()
        if (live := self._serving.live) is not None and not self.choice.fits(live[1], self._serving.available):
            self._plan_wanted(Replan(changed.why), ATTEMPTS)
        self._look_anew()
        if self.searching or self.state in (State.WATCHING, State.COMPARING):
            self._begin(changed.why)

    # --- candidates -------------------------------------------------------------------------------------------

    def _look_anew(self) -> None:
        """Drop the results of comparisons and searches, as they no longer hold."""
        self.findings.forget()
        self.contests.forget()

    def _await_load(self, start: Plan | None) -> None:
        if self.searching:
            self._tell(tm.Break(self.search.number))
        self._new_run(self.choice.objective, start)
        self._return_to(start)

    def _new_run(self, objective: Objective, start: Plan | None = None) -> None:
        """Begin to compare under a new run number, so that messages of an earlier search are ignored. `start`: the plan
        that is to serve until then, None: the live one.
        """
        live = self._serving.live
        assert live is not None
        self.state, self._then, self._rival = State.COMPARING, None, None
        self.measuring.end()
        begun = live[0], objective, self._outbox.now_s, start or live[1]
        self.search = SearchRun(self.search.number + 1, *begun, live[1].places, self._serving.available)

    def _frame_answered(self, event: ev.FrameAnswered | ev.FrameAlone) -> None:
        if isinstance(event, ev.FrameAlone):
            self.measuring.frame_alone(event)
        contests = self.contests
        if contests.running is not None:
            contests.answered(event)
            self._contest_went_on()
        elif self.awaits_load and self._then is None and not self._has_proposed(Purpose.STAY):
            objective = contests.load_seen(event, self._outbox.now_s)
            if objective == "latency" and self._profiling.goes_on:
                return
            if objective is not None:
                self._new_run(objective)
                contests.begin(objective)
                self._contest_went_on()
            elif self.state is State.COMPARING and contests.missed(self._outbox.now_s):
                self._search("frames do not come in a way to compare plans by")

    def _contest_went_on(self) -> None:
        if self.contests.is_decided:
            self._compared()
        elif self.contests.running is not None:
            return
        elif self._rival is not None:  # no result, for want of load
            best, rival = self.search.best_runnable, self._rival
            better = best is not None and best[1].is_better_than(rival.measurement, self.search.objective)
            self._rival, self._then = None, _Then.KEEP if better else _Then.RETURN
        elif self.state is State.COMPARING and (self.contests.of_batches or not self._compares):
            self._return_to_best()

    def _compared(self) -> None:
        """End the comparison, and have its winner, which is live, kept: after it is measured, unless it is known."""
        self._judged, rival = self.contests.end(), self._rival
        self._rival, self._then = None, _Then.MEASURE if rival is None else _Then.KEEP
        if rival is not None and self._judged is not None:
            self.findings.note(self._judged)
            if self._judged.serving == rival.plan:
                self.search.best = rival.plan, rival.measurement

    @property
    def _best(self) -> BestPlan | None:
        return self.choice.best(self._serving.available)

    def _return_to_best(self) -> None:
        """Have the best plan serve and be watched, as there is nothing to search for."""
        if self.state is State.TUNING:
            self._tell(tm.Break(self.search.number))
        self.state, self._then, self._rival = State.COMPARING, _Then.RETURN, None
        self.measuring.end()

    def _watch_best(self, live: tuple[int, Plan]) -> None:
        best = self._best
        if best is None:
            self._search("the best plan is not known any more")
        elif live[1] == best.plan:
            self._watch_live()
        elif not self._has_proposed(Purpose.STAY):
            self._propose(Owner.TUNER, best.plan, Purpose.STAY, ATTEMPTS)

    def _switch_to_wish(self, live: tuple[int, Plan]) -> None:
        wish = self.following.wish
        best = None if wish is None else self.choice.best(self._serving.available, wish.objective)
        if wish is None or best is None or best != wish.best:
            self._return_to_best()
        elif live[1] == best.plan:
            self._follow(wish, best)
        elif not self._has_proposed(Purpose.SWITCH):
            self._propose(Owner.TUNER, best.plan, Purpose.SWITCH)

    def _after_contest(self) -> None:
        live, best = self._serving.live, self.search.best_runnable
        if self._then is _Then.RETURN and live is not None:
            self._watch_best(live)
            return
        if self._then is _Then.SWITCH and live is not None:
            self._switch_to_wish(live)
            return
        settled = self._profiling.since_compared_s(self._outbox.now_s) >= AFTER_LOSER_S
        if self._then is _Then.MEASURE and self.measuring.epoch is None and settled:
            if live is not None and self._judged is not None and live[1] == self._judged.serving:
                self.measuring.begin(self._outbox.now_s, None)
            elif not self._has_proposed(Purpose.STAY):
                self._begin("another plan has gone live")
        elif self._then is _Then.KEEP and live is not None and best is not None and live[1] == best[0]:
            self._keep_best()
        elif self._then is _Then.KEEP:
            self._begin("another plan has gone live")

    def _candidate_measured(self, measurement: Measurement) -> None:
        live, search = self._serving.live, self.search
        assert live is not None and self._judged is not None  # noqa: PT018 (its winner is live)
        self._then = None
        self.findings.note(self._judged)
        self.measuring.repeatability.observe(live[1], measurement)
        measurement = self.measuring.repeatability.widen(measurement)
        search.best = live[1], measurement
        if self.choice.auto:
            self.choice.objective = search.objective
        self._keep(BestPlan(live[1], measurement, search.order))
        self.following.search_ended(search, self._outbox.now_s)
        if self.contests.of_batches or not self._compares:
            self._watch(measurement)

    @property
    def _cuts_to_search(self) -> Plan | None:
        """The candidate whose cuts are to be searched; None if they have been, cannot help, or have to wait."""
        return None if self._is_crowded else self.findings.cuts_due

    # --- what the profiler says -------------------------------------------------------------------------------

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
            self._tell(said.message.costs)
        if self.state is State.PROFILING:
            self._begin("what layers cost has been measured")
        elif again and (self.searching or self.state is State.WATCHING):
            self._begin("what layers take, or links to other hosts, has been measured again")

    def _engines_tried(self, tried: EnginesTried) -> None:
        self.choice.tried, self.findings.awaited = tried, False
        self._outbox.write(engines_record(tried))
        self._profiling.wait(self._outbox.now_s)

    def _let_profile(self) -> None:
        """Have layers measured once plans have been compared."""
        if self.contests.running is not None:
            self._profiling.comparing(self._outbox.now_s)
        elif self._profiling.begins(
            self._outbox.now_s, measures_winner=self._then is _Then.MEASURE, compares=self._compares
        ):
            self._outbox.decide(TellProfiler(MeasureLayers()))

    # --- what the tuner says ----------------------------------------------------------------------------------

    def _tuner_said(self, said: ev.TunerSaid) -> None:
        message = said.message
        if message.run != self.search.number or self.state is not State.TUNING or self.search.trying is not None:
            return  # the search is over, or its last trial has not been judged yet
        self.search.lower_bound_s = message.lower_bound_s
        match message:
            case tm.Try():
                self._try(message)
            case tm.Finished():
                self._finish(message.plan, message.reason)

    def _tuner_died(self, died: ev.TunerDied) -> None:
        """Begin the search again, from the best plan that it had found (R5)."""
        self._outbox.write(event_log.TunerEnded(reason=died.reason))
        if self.state is State.TUNING:
            self._begin(f"the tuner's process died ({died.reason})", self._search_from)

    def _try(self, wanted: tm.Try) -> None:
        live = self._serving.live
        assert live is not None  # no search begins without
        self.search.trying, self.search.proposal = wanted, None
        plan = wanted.plan
        if plan == live[1] and not self.search.trials and self.search.at_start is not None:
            self._trial_done(self.search.at_start)
        elif plan == live[1]:
            self._measure_trial()
        else:
            self.search.proposal = self._propose(Owner.TUNER, plan, Purpose.TRIAL, ATTEMPTS)

    def _trial_settled(self, end: Settled, attempts: int) -> None:
        """Measure a plan that has gone live. One that was dropped, as when a worker died, is proposed again."""
        if end.ending is Ending.LIVE:
            self._measure_trial()
        elif end.ending is Ending.DROPPED and attempts > 1:
            self.search.proposal = self._propose(Owner.TUNER, end.plan, Purpose.TRIAL, attempts - 1)
        else:
            self._trial_done(never_ran(end), f"{end.ending.value}: {end.reason}")

    def _measure_trial(self) -> None:
        best = self.search.best_runnable
        self.measuring.begin(self._outbox.now_s, None if best is None else best[1])

    def _trial_done(self, measurement: Measurement, trouble: str = "") -> None:
        search, live = self.search, self._serving.live
        assert search.trying is not None
        plan = search.trying.plan
        self.measuring.repeatability.observe(plan, measurement)
        measurement = self.measuring.repeatability.widen(measurement)
        moves = search.moves_to(plan)
        verdict = search.judge(plan, measurement)
        self.trials, self.moves = self.trials + 1, self.moves + moves
        self._outbox.write(search.trial_record(live[0] if live else None, verdict, measurement, trouble))
        self._outbox.decide(CountTrial(verdict, moves))
        search.trying = None
        self._tell(tm.Measured(search.number, measurement))

    def _finish(self, plan_found: Plan, reason: str) -> None:
        """End the search: the best plan measured goes live, even if noise has made the tuner prefer another."""
        search, live = self.search, self._serving.live
        assert live is not None
        search.others_ratio = self.findings.others.mean
        plan = search.leaves(plan_found, live[1])
        self._outbox.write(search.ended_record(plan, reason, self._outbox.now_s))
        self.state = State.SETTLING
        winner, best = self.findings.winner(search.objective), self.choice.best(search.over, search.objective)
        if winner is not None and plan == winner.cuttable and best is not None and best.plan != plan:
            self._return_to_best()  # a better plan is known already
        elif plan == live[1]:
            self._stay()
        else:
            self._propose(Owner.TUNER, plan, Purpose.STAY, ATTEMPTS)

    def _stay_settled(self, end: Settled) -> None:
        if end.ending is Ending.LIVE:
            self._stay()
        else:
            self._begin(f"the best plan could not go live: {end.reason}")

    def _stay(self) -> None:
        """Compare the search's best plan, which is live, with the best candidate, if that is another plan."""
        search, live = self.search, self._serving.live
        rival = self.choice.best(search.over, search.objective)
        known = self.findings.winner(search.objective) is not None and search.best_runnable is not None
        if known and rival is not None and live is not None and rival.plan != live[1]:
            self.state, self._rival, self._then = State.COMPARING, rival, None
            self.contests.begin_with(
                search.objective, [Candidate(rival.plan, "the best candidate")], "the best of the search"
            )
        else:
            self._keep_best()

    def _keep_best(self) -> None:
        """Keep a search's best plan, which is live, as the best over the places searched, and watch it."""
        search, best = self.search, self.search.best_runnable
        if best is not None:
            self._keep(BestPlan(*best, search.order))
        self.following.search_ended(search, self._outbox.now_s)
        self._watch(None if best is None else best[1])

    def _keep(self, kept: BestPlan) -> None:
        search = self.search
        others_ratio = self.findings.decided(search.objective, search.over, search.others_ratio)
        kept = replace(kept, others_ratio=others_ratio)
        self._outbox.decide(Keep(self.choice.keep(kept, search.over, search.objective, search.scheme), kept))

    # --- watching ---------------------------------------------------------------------------------------------

    def _watch(self, baseline: Measurement | None) -> None:
        """Watch the live plan. `baseline`: its measurement when it was chosen; None: measure it now."""
        self.state, self._then, self._heeds_crowd = State.WATCHING, None, True
        self.drift.begin(baseline)
        self.measuring.begin(self._outbox.now_s, baseline)

    def _watch_live(self) -> None:
        """Watch the live plan, which may be the best one known."""
        live, best = self._serving.live, self._best
        if best is not None and live is not None and best.plan == live[1]:
            self.search = self.following.search_of(self.choice.objective, best, self.search)
            self._watch(best.measurement)
        else:
            self.search = replace(self.search, best=None, trying=None, proposal=None)
            self._watch(None)

    def _part_taken(self, part: ev.PartTaken) -> None:
        if self.state is State.WATCHING and not part.full:
            return  # slower for each frame than a full batch, so no sign of drift
        measurement = self.measuring.part_taken(part, self._outbox.now_s)
        if measurement is not None and self.state is State.TUNING:
            self._trial_done(measurement)
        elif measurement is not None and self.state is State.COMPARING:
            self._candidate_measured(measurement)
        elif measurement is not None:
            self._compare(measurement)

    def _compare(self, measurement: Measurement) -> None:
        """Compare a window of the live plan with its baseline; search again if a stage has drifted."""
        live = self._serving.live
        assert live is not None
        self.measuring.begin(self._outbox.now_s, self.drift.baseline.measured, is_warm=True)
        measurement = self.measuring.repeatability.widen(measurement)
        if self._is_crowded or self._profiling.goes_on:
            return
        self.following.watched(live[1], measurement)
        drift = self.drift.judge(measurement, self._outbox.now_s)
        if drift is not None:
            self.measuring.repeatability.machine_changed()
            record = drift_record(live[1], drift)
            self._outbox.write(record)
            self.choice.correct(live[1], drift.plan_now, drift.stage, drift.ratio, self._serving.available)
            self.following.corrected()
            self._look_anew()
            self._begin(drift_in_words(record))
            self.search.at_start = measurement

    @property
    def _is_crowded(self) -> bool:
        """Whether other models compute frames on the live plan's places: its times then say nothing about the machine,
        nor about other plans.
        """
        live = self._serving.live
        return self._heeds_crowd and live is not None and not {*self._crowded}.isdisjoint(live[1].places)

    def _crowd_seen(self, seen: ev.CrowdSeen) -> None:
        """Note the crowded places; begin a postponed search once none of them is the live plan's."""
        self._crowded = seen.places
        if self._put_off is not None and self.state is State.WATCHING and not self._is_crowded:
            (why, start), self._put_off = self._put_off, None
            self._begin(why, start)

    def _host_seen(self, seen: ev.HostSeen) -> None:
        self.standby.memory_seen(seen.free_ratio, compares=self.contests.running is not None)
        self.drift.others_seen(seen.others_ratio, self._outbox.now_s)
        self.findings.others.seen(seen.others_ratio)
        if self.state is State.WATCHING:
            self.findings.drop_disturbed()

    # --- as the load asks -------------------------------------------------------------------------------------

    def _frames_counted(self, counted: ev.FramesCounted) -> None:
        """Make the best plan for the present load live; search for one if none is known."""
        self._let_profile()
        live = self._serving.live
        if self.state is State.WATCHING and live is not None and live[0] != self.measuring.epoch:
            self._watch_live()  # the plan before leads again, as a comparison was broken off
        self._in_flight = (*self._in_flight, counted.in_flight)[-FLOWING_LOOKS:]
        if self.contests.running is not None:
            self.contests.look()
            self._contest_went_on()
        elif self.state is State.COMPARING:
            self._after_contest()
        free = self.state is State.WATCHING and self.choice.automatic and not self._has_proposed(*Purpose)
        tried_for = self._tried_for
        wish = self.following.look(counted, self._outbox.now_s, free=free, tried_for=tried_for)
        self._flowing = self._flowing + 1 if self.following.frames_came else 0
        if wish is not None and tried_for is not None:
            self._give_way(wish, tried_for)
        elif wish is not None and wish.best is not None:
            self._switch(wish, wish.best.plan)
        elif wish is not None:
            has_given_way = self.findings.pauses.is_on(wish.objective, self._outbox.now_s)  # what was tried for it
            if not has_given_way:
                self._outbox.write(self.following.follow(wish))
                self._begin(wish.reason)
        elif free and self._flowing >= FLOWING_LOOKS and (start := self._cuts_to_search) is not None:
            self._search("the network may be cut to more use", start)
        elif free and (due := self._batches_due):
            self._new_run("throughput")
            self.contests.begin_batches(due)
        elif free and self._flowing >= FLOWING_LOOKS and not self._compares:
            ahead = self.standby.to_load_ahead()
            if ahead is not None:
                self._propose(Owner.TUNER, ahead, Purpose.AHEAD)

    @property
    def _batches_due(self) -> list[Candidate]:
        """Plans with batches to be compared, as at each of the last looks enough frames were in flight to fill them."""
        compares = self._is_guided and self.choice.compares and self.choice.objective == "throughput"
        few = not compares or len(self._in_flight) < FLOWING_LOOKS
        return [] if few else self.findings.batches_due(min(self._in_flight))

    @property
    def _tried_for(self) -> Objective | None:
        """The objective that plans are tried for, if the load may break that off: of searches, only those for latency,
        as their plans cannot take many frames.
        """
        contest = self.contests.running
        if contest is None and self.state is State.TUNING and self.search.objective == "latency":
            return "latency" if self.choice.automatic else None
        return contest.objective if contest is not None and self.choice.automatic else None

    def _give_way(self, wish: Wish, tried_for: Objective) -> None:
        """Break off what tries plans, and have the best plan known for the present load serve."""
        if self.contests.running is not None:
            self.contests.give_way()
        else:
            self.findings.pauses.begin(tried_for, self._outbox.now_s)
        if self._rival is not None:
            self._contest_went_on()
            return
        self._return_to_best()
        if wish.objective != self.choice.objective:
            self._then = _Then.SWITCH

    def _switch(self, wish: Wish, plan: Plan) -> None:
        if self.standby.lead_to(plan):
            self._outbox.write(self.following.follow(wish))
            self._return_to_best()  # from the next look on it is watched
        else:
            self._propose(Owner.TUNER, plan, Purpose.SWITCH)

    def _switched(self, end: Settled) -> bool:
        """Handle the end of a switch; False: the caller has to, as something else was asked for or places changed."""
        if end.ending is not Ending.LIVE:
            self.following.failed(end, self._outbox.now_s)
            if self._then is _Then.SWITCH and not end.transient:
                self._return_to_best()
            return True
        wish = self.following.wish
        awaited = self.state is State.WATCHING or self._then is _Then.SWITCH
        if not awaited or not self.choice.auto or wish is None or wish.best is None:
            return False
        if self.choice.best(self._serving.available, wish.objective) != wish.best:
            return False  # the plan is the best for other places than are there now
        self._follow(wish, wish.best)
        return True

    def _follow(self, wish: Wish, best: BestPlan) -> None:
        """Watch the plan that the load asks for, which is live."""
        self._outbox.write(self.following.follow(wish))
        self.search = self.following.search_of(wish.objective, best, self.search)
        self._watch(best.measurement)

    # --- what others ask --------------------------------------------------------------------------------------

    @property
    def searching(self) -> bool:
        return self.state in (State.TUNING, State.SETTLING)

    @property
    def _compares(self) -> bool:
        """Whether candidates are to be compared: guided tuning does that, Shisha's Algorithm 2 does not."""
        return self._is_guided and self.findings.is_wanted

    @property
    def _is_guided(self) -> bool:
        return self.options is not None and self.options.strategy == "guided"

    @property
    def awaits_load(self) -> bool:
        """Whether candidates are to be compared as soon as enough frames come."""
        idle = State.COMPARING, State.WATCHING, State.PROFILING, State.NO_COSTS
        return self.state in idle and self._compares

    @property
    def wants_answers(self) -> bool:
        """Whether tuning needs an event for each frame that is computed."""
        return self.contests.running is not None or self.awaits_load

    @property
    def wants_load(self) -> Objective | None:
        """The objective whose load tuning waits for; None if it waits for none."""
        if self.state is not State.COMPARING or self.findings.awaited:
            return None
        contest = self.contests.running
        if contest is not None and contest.duel is None:
            return None  # a plan is being built
        if contest is not None or self._then is _Then.MEASURE:
            return self.search.objective
        if self._then is not None:
            return None
        return next(iter(self.findings.due), None)

    @property
    def watched(self) -> Plan | None:
        """The plan of a search that has ended, while it is watched."""
        best = self.search.best_runnable
        return best[0] if self.state is State.WATCHING and best is not None else None

    def doing(self, now_s: float) -> str:
        """State of the tuner in a word, for people: `waiting` while it needs frames and none come."""
        if self.state is State.COMPARING and self._then is None:
            if self.contests.running is None and self.choice.profiles is Profiles.COMING:
                return State.PROFILING.value
            return WAITING if self.contests.quiet_s(now_s) > QUIET_S else self.state.value
        return WAITING if self.measuring.quiet_s(now_s) > QUIET_S else self.state.value

    @property
    def strategy(self) -> str:
        """Strategy of the tuner, by its name in `--strategy`; `seed` if the daemon has no tuner."""
        return "seed" if self.options is None else self.options.strategy

    def _tell(self, message: tm.ToTuner) -> None:
        self._outbox.decide(TellTuner(message))


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
    ev.CrowdSeen: Tuning._crowd_seen,
    ev.TunerSaid: Tuning._tuner_said,
    ev.TunerDied: Tuning._tuner_died,
    ev.PauseAsked: Tuning._pause_asked,
    ev.SearchAsked: Tuning._search_asked,
    ev.OptionsSet: Tuning._options_set,
    ev.MachineChanged: Tuning._machine_changed,
    **dict.fromkeys((ev.PlaceReturned, PlaceBack), Tuning._place_returned),
}
