"""The states of tuning, and the steps between them: compare plans, search, watch the plan that serves.

`Tuning`, `Comparing` and `LoadResponse` decide when to take a step.
"""

from __future__ import annotations

from enum import Enum

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner, Superseded
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.candidates import Candidate
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.contest import Contests
from shisha_rt.core.tuning.drift import DriftWatch
from shisha_rt.core.tuning.findings import Findings
from shisha_rt.core.tuning.instructions import Keep, PlanningOutbox
from shisha_rt.core.tuning.measuring import Measuring
from shisha_rt.core.tuning.objective_switching import ObjectiveSwitching
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.searches import Searches
from shisha_rt.core.tuning.standby import Standby
from shisha_rt.core.tuning.state import ATTEMPTS, Intent, Profiles, Purpose, Serving, State
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective


class Then(Enum):
    """What is left to do, in the state COMPARING, while no comparison runs."""

    MEASURE = "the winner's stages are to be measured"
    KEEP = "the winner is known, and is to be kept"
    RETURN = "nothing was found out, and the best plan known is to serve"
    SWITCH = "the load asks for another objective, and its best plan is to serve; the objective changes once it is live"


class TuningCourse:
    """`options` None: the daemon has no tuner. `then` None: a comparison runs, or frames do not come as it needs them.
    `rival`: the best plan known before a search, while the search's result is compared with it. `heeds_crowd`: whether
    searches wait while other models compute frames on the live plan's places.
    """

    def __init__(self, serving: Serving, choice: Choice, options: SearchOptions | None, warm_up: int) -> None:
        self.serving, self.choice = serving, choice
        self.outbox = outbox = PlanningOutbox()
        self.options = options
        self.state = State.OFF
        self.then: Then | None = None
        self.rival: BestPlan | None = None
        self.heeds_crowd = True
        self.switching = ObjectiveSwitching(serving, choice)
        self.standby = Standby(serving, choice, self.switching, outbox)
        self.measuring = Measuring(serving, choice, warm_up)
        self.searches = Searches(serving, choice, outbox, self.measuring)
        self.drift = DriftWatch()
        self.findings = Findings(serving, choice, outbox)
        self.contests = Contests(serving, choice, outbox, self.findings, warm_up)
        self._crowded: tuple[str, ...] = ()  # places on which other models compute frames
        self._postponed: tuple[str, Plan | None] | None = None  # a search: why, and where it begins

    @property
    def is_searching(self) -> bool:
        return self.state in (State.TUNING, State.SETTLING)

    @property
    def is_guided(self) -> bool:
        return self.options is not None and self.options.strategy == "guided"

    @property
    def compares(self) -> bool:
        """Whether candidates are to be compared: guided tuning does that, Shisha's Algorithm 2 does not."""
        return self.is_guided and self.findings.is_wanted

    @property
    def is_crowded(self) -> bool:
        """Whether other models compute frames on the live plan's places: no times are comparable meanwhile."""
        live = self.serving.live
        return self.heeds_crowd and live is not None and not {*self._crowded}.isdisjoint(live[1].places)

    def _enter(self, state: State, then: Then | None = None, rival: BestPlan | None = None) -> None:
        self.state, self.then, self.rival = state, then, rival

    def propose(self, plan: Plan, purpose: Purpose, attempts: int = 1) -> None:
        owner, superseded = Owner.DAEMON if purpose is Purpose.SERVE else Owner.TUNER, Superseded.RETIRES
        live, intent = self.serving.live, Intent(purpose, self.searches.present.number, attempts)
        if live is not None and purpose in (Purpose.SWITCH, Purpose.STAY, Purpose.AHEAD):
            superseded = self.standby.superseded(live[1])
        self.outbox.propose(owner, plan, None if live is None else live[0], intent, superseded)

    def are_pending(self, *purposes: Purpose) -> bool:
        """Whether a proposal of tuning's for one of these purposes has not ended."""
        intents = (proposed.ticket for proposed in self.serving.proposals)
        return any(isinstance(intent, Intent) and intent.purpose in purposes for intent in intents)

    def return_to(self, plan: Plan | None) -> None:
        """Have this plan serve, if another one has gone live."""
        live, available = self.serving.live, self.serving.available
        if plan is not None and live is not None and plan != live[1] and self.choice.fits(plan, available):
            self.propose(plan, Purpose.STAY, ATTEMPTS)

    def forget_results(self) -> None:
        """Drop the results of comparisons and searches, as they no longer hold."""
        self.findings.forget()
        self.contests.forget()

    # --- searching --------------------------------------------------------------------------------------------

    def begin(self, why: str, start: Plan | None = None) -> None:
        """End any search in progress, and begin anew: compare candidates if that is due, else search.

        `start`: where to search from, and what serves while load is awaited. None: from the best candidate that can be
        cut, if that is worth searching, else the best plan serves; from the live plan, if no candidates were compared.
        """
        if self.serving.live is None or self.options is None:
            return
        self.contests.abort()
        if self.compares:
            if self.is_searching:
                self.searches.break_off()
            self.begin_comparing(self.choice.objective, start)
            self.return_to(start)
            return
        winner = self.findings.winner(self.choice.objective)
        if start is None and winner is not None:
            start = winner.worth_cutting
            if start is None:
                self.return_to_best()
                return
        self.search(why, start)

    def search(self, why: str, start: Plan | None = None) -> None:
        """Have the tuner search, from the live plan if `start` is None, once costs are known and places not crowded."""
        live, options, choice, available = self.serving.live, self.options, self.choice, self.serving.available
        if live is None or options is None:
            return
        if self.is_crowded:
            self._postpone(why, start)
            return
        self._postponed = None
        self.findings.search_begins()
        self.measuring.end()
        if options.strategy == "guided" and choice.profiles is not Profiles.KNOWN:
            self._enter(State.PROFILING if choice.profiles is Profiles.COMING else State.NO_COSTS)
            return
        plan = choice.start(start or live[1], available)
        if options.strategy == "shisha" and not plan.is_plain:  # which handles only chains
            plan = choice.seed(available)
        self._enter(State.TUNING)
        self.searches.begin(options, plan, why)

    def finish(self, finished: tm.Finished) -> None:
        """End the search: what it has found goes live, unless a better plan is known already."""
        search, live = self.searches.present, self.serving.live
        assert live is not None
        plan = self.searches.finish(finished, self.findings.others.mean)
        self._enter(State.SETTLING)
        winner, best = self.findings.winner(search.objective), self.choice.best(search.over, search.objective)
        if winner is not None and plan == winner.cuttable and best is not None and best.plan != plan:
            self.return_to_best()
        elif plan == live[1]:
            self.stay()
        else:
            self.propose(plan, Purpose.STAY, ATTEMPTS)

    def stay(self) -> None:
        """Compare the search's best plan, which is live, with the best plan known, if that is another one."""
        search, live = self.searches.present, self.serving.live
        rival = self.choice.best(search.over, search.objective)
        compared = self.findings.winner(search.objective) is not None and search.best_runnable is not None
        if compared and rival is not None and live is not None and rival.plan != live[1]:
            self._enter(State.COMPARING, rival=rival)
            rivals = [Candidate(rival.plan, "the best candidate")]
            self.contests.begin_with(search.objective, rivals, "the best of the search")
        else:
            self.watch(self.keep_best())

    def _postpone(self, why: str, start: Plan | None) -> None:
        """Watch until no other model computes frames on the live plan's places. `start`: where to search from then, and
        the plan to be live meanwhile; None: the live one.
        """
        self.break_off()
        self._postponed = why, start
        self.watch_live()
        self.return_to(start)

    def crowd_seen(self, places: tuple[str, ...]) -> None:
        """Note the crowded places; begin a postponed search once none of them is the live plan's."""
        self._crowded = places
        if self._postponed is not None and self.state is State.WATCHING and not self.is_crowded:
            (why, start), self._postponed = self._postponed, None
            self.begin(why, start)

    def break_off(self) -> None:
        if self.state is State.TUNING:
            self.searches.break_off()

    def pause(self, why: str) -> None:
        """Neither search nor compare nor watch until a client asks for it."""
        if self.state is State.PAUSED or self.options is None or self.serving.live is None:
            return
        self._enter(State.PAUSED)
        self.measuring.end()
        self.contests.abort()
        self.outbox.write(event_log.TuningPaused(run=self.searches.present.number, reason=why))
        self.searches.break_off()

    # --- comparing --------------------------------------------------------------------------------------------

    def begin_comparing(self, objective: Objective, start: Plan | None = None) -> None:
        """Compare plans, or wait for the load it needs. `start`: the plan to serve until then; None: the live one."""
        self._enter(State.COMPARING)
        self.measuring.end()
        self.searches.begin_without_tuner(objective, start)

    def return_to_best(self) -> None:
        """Have the best plan serve and be watched, as there is nothing to search for."""
        self.break_off()
        self._enter(State.COMPARING, Then.RETURN)
        self.measuring.end()

    def keep_best(self) -> Measurement | None:
        """Keep the best plan found, which is live, as the best over its places; return its measurement, if any ran."""
        search, best = self.searches.present, self.searches.present.best_runnable
        self.switching.corrected()
        if best is None:
            self.switching.rest(self.outbox.now_s)  # no plan could run: the same search would end the same way
            return None
        others_ratio = self.findings.decided(search.objective, search.over, search.others_ratio)
        kept = BestPlan(*best, search.order, others_ratio)
        self.outbox.decide(Keep(self.choice.keep(kept, search.over, search.objective, search.scheme), kept))
        self.searches.note_result()
        return kept.measurement

    # --- watching ---------------------------------------------------------------------------------------------

    def watch(self, baseline: Measurement | None) -> None:
        """Watch the live plan. `baseline`: its measurement when it was chosen; None: measure it now."""
        assert self.serving.live is not None
        self._enter(State.WATCHING)
        self.heeds_crowd = True
        self.drift.begin(self.serving.live[1], baseline, self.outbox.now_s)
        self.measuring.begin(self.outbox.now_s, baseline)

    def watch_best(self, best: BestPlan, objective: Objective) -> None:
        self.searches.recall(objective, best)
        self.watch(best.measurement)

    def watch_live(self) -> None:
        """Watch the live plan, with the measurement of the best plan known if it is that."""
        live, best = self.serving.live, self.choice.best(self.serving.available)
        if best is not None and live is not None and best.plan == live[1]:
            self.watch_best(best, self.choice.objective)
        else:
            self.searches.disown()
            self.watch(None)

    def go_to_best(self) -> None:
        """Go on from `Then.RETURN`: watch the best plan known if it is live, else propose it."""
        live, best = self.serving.live, self.choice.best(self.serving.available)
        if best is None:
            self.search("the best plan is not known any more")
        elif live is not None and live[1] == best.plan:
            self.watch_live()
        elif live is not None and not self.are_pending(Purpose.STAY):
            self.propose(best.plan, Purpose.STAY, ATTEMPTS)
