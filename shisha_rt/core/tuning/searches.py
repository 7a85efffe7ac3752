"""Searches by the tuner's process, one at a time: each plan that it names is made live, measured and judged."""

from __future__ import annotations

from dataclasses import replace

from shisha_rt.core.lifecycle.events import Owner
from shisha_rt.core.lifecycle.instructions import Ending, Settled
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.instructions import CountTrial, PlanningOutbox, TellTuner
from shisha_rt.core.tuning.measuring import Measuring
from shisha_rt.core.tuning.run import SearchOptions, SearchRun, never_ran, walk_order
from shisha_rt.core.tuning.state import ATTEMPTS, Intent, Purpose, Serving
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.strategies import SchemeName


class Searches:
    """`present`: the running search, or the search that found the plan that serves; during a comparison, the record of
    its winner. `trials`, `moves`: counts since the daemon's start.
    """

    def __init__(self, serving: Serving, choice: Choice, outbox: PlanningOutbox, measuring: Measuring) -> None:
        self.present = SearchRun(0)
        self.trials = self.moves = 0
        self._serving, self._choice, self._outbox = serving, choice, outbox
        self._measuring = measuring
        self._ended: dict[Objective, SearchRun] = {}  # the last one that has found a plan

    def tell(self, message: tm.ToTuner) -> None:
        self._outbox.decide(TellTuner(message))

    # --- beginning and ending ---------------------------------------------------------------------------------

    def begin(self, options: SearchOptions, start: Plan, why: str) -> None:
        """Have the tuner search from `start` for the present objective, over the available places."""
        choice, available = self._choice, self._serving.available
        order = walk_order(self.present, start, available)
        self.present = search = self._new(choice.objective, start, order, options.scheme)
        self._outbox.write(search.began_record(options, start, why))
        legal_cuts = choice.rules.legal_cuts
        self.tell(
            tm.Begin(
                run=search.number,
                strategy=options.strategy,
                start=start,
                places=choice.places_now(available),
                order=order,
                legal_cuts=None if legal_cuts is None else tuple(sorted(legal_cuts)),
                alpha=options.alpha,
                balance=options.balance,
                replicate=choice.replicate,
                objective=search.objective,
                latency_s=choice.latency_s,
            )
        )

    def begin_without_tuner(self, objective: Objective, start: Plan | None) -> None:
        """Take a new number, so that messages of an earlier search are ignored. `start`: as in `begin_comparing`."""
        live = self._serving.live
        assert live is not None
        self.present = self._new(objective, start or live[1], live[1].places)

    def _new(
        self, objective: Objective, start: Plan, order: tuple[str, ...], scheme: SchemeName | None = None
    ) -> SearchRun:
        live, over = self._serving.live, self._serving.available
        assert live is not None
        number, now_s = self.present.number + 1, self._outbox.now_s
        return SearchRun(number, live[0], objective, now_s, start, order, over, scheme)

    def break_off(self) -> None:
        """Have the tuner stop."""
        self.tell(tm.Break(self.present.number))

    def finish(self, finished: tm.Finished, others_ratio: float) -> Plan:
        """Return the plan that is to be live after the search: the best measured, even if noise has made the tuner
        prefer another. `others_ratio`: the share of the cores that other programs used during the search.
        """
        search, live = self.present, self._serving.live
        assert live is not None
        search.others_ratio = others_ratio
        plan = search.leaves(finished.plan, live[1])
        self._outbox.write(search.ended_record(plan, finished.reason, self._outbox.now_s))
        return plan

    @property
    def again_from(self) -> Plan | None:
        """Where a search that was cut short begins again: from the best plan it has measured, else where it began."""
        best = self.present.best_runnable
        return self.present.start if best is None else best[0]

    # --- whose result serves ----------------------------------------------------------------------------------

    def note_result(self) -> None:
        self._ended[self.present.objective] = self.present

    def recall(self, objective: Objective, best: BestPlan) -> None:
        """Make the search that found this plan the present one; a new record stands for a search of an earlier daemon.

        The record gets the present number, as numbers only grow, and keeps its own as `found_by`.
        """
        known = best.plan, best.measurement
        ended = self._ended.get(objective)
        if ended is None or ended.best != known:
            ended = SearchRun(0, objective=objective, order=best.order, best=known)
        number, over = self.present.number, self._serving.available
        self.present = replace(ended, number=number, found_by=ended.number, over=over, trying=None, proposal=None)

    def disown(self) -> None:
        """Forget what the present search has found, as another plan is live."""
        self.present = replace(self.present, best=None, trying=None, proposal=None)

    # --- trials -----------------------------------------------------------------------------------------------

    def hear(self, message: tm.FromTuner) -> tm.Finished | None:
        """Try the plan that the tuner names, or return its last message."""
        search, live = self.present, self._serving.live
        assert live is not None  # a search begins from a live plan
        if message.run != search.number or search.trying is not None:
            return None  # that search is over, or its last trial has not been judged yet
        search.lower_bound_s = message.lower_bound_s
        if isinstance(message, tm.Finished):
            return message
        search.trying, search.proposal = message, None
        plan = message.plan
        if plan == live[1] and not search.trials and search.at_start is not None:
            self.judge(search.at_start)
        elif plan == live[1]:
            self._measure()
        else:
            self._propose(plan, ATTEMPTS)
        return None

    def settled(self, end: Settled, attempts: int) -> None:
        """Measure a plan that has gone live. One that was dropped, as when a worker died, is proposed again."""
        if end.ending is Ending.LIVE:
            self._measure()
        elif end.ending is Ending.DROPPED and attempts > 1:
            self._propose(end.plan, attempts - 1)
        else:
            self.judge(never_ran(end), f"{end.ending.value}: {end.reason}")

    def _propose(self, plan: Plan, attempts: int) -> None:
        live, intent = self._serving.live, Intent(Purpose.TRIAL, self.present.number, attempts)
        under = None if live is None else live[0]
        self.present.proposal = self._outbox.propose(Owner.TUNER, plan, under, intent)

    def _measure(self) -> None:
        best = self.present.best_runnable
        self._measuring.begin(self._outbox.now_s, None if best is None else best[1])

    def judge(self, measurement: Measurement, trouble: str = "") -> None:
        """Judge the plan that is tried. `trouble`: why it could not go live."""
        search, live = self.present, self._serving.live
        assert search.trying is not None
        plan = search.trying.plan
        self._measuring.repeatability.observe(plan, measurement)
        measurement = self._measuring.repeatability.widen(measurement)
        moves = search.moves_to(plan)
        verdict = search.judge(plan, measurement)
        self.trials, self.moves = self.trials + 1, self.moves + moves
        self._outbox.write(search.trial_record(live[0] if live else None, verdict, measurement, trouble))
        self._outbox.decide(CountTrial(verdict, moves))
        search.trying = None
        self.tell(tm.Measured(search.number, measurement))
