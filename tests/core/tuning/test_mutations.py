"""Break one rule of planning on purpose: the random interleavings find it, with the invariants and from outside alone.

A checker that never fails proves nothing. Each class below is the real one with one rule broken.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Final, NamedTuple

import pytest
from msgspec.structs import replace

from shisha_rt.core.lifecycle.epochs import Epochs
from shisha_rt.core.lifecycle.events import Owner, PlanProposed
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.course import TuningCourse
from shisha_rt.core.tuning.instructions import Decided
from shisha_rt.core.tuning.placing import Placing
from shisha_rt.core.tuning.profiler_messages import FromProfiler
from shisha_rt.core.tuning.run import SearchRun
from shisha_rt.core.tuning.searches import Searches
from shisha_rt.core.tuning.state import Intent, Profiles, State
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.simulated_world import BrokenPromise
from tests.core.tuning.planning_world import run

# It tests the tests: what they would find is for `make test-long` to show.
pytestmark = pytest.mark.long

MOST_SEEDS: Final = 600


class KeepsWhatTheTunerNames(TuningCourse):
    """R5: the best plan is the best beyond noise, whatever the tuner has made of that."""

    def finish(self, finished: tm.Finished) -> None:
        search = self.searches.present
        if search.best is not None:
            search.best = finished.plan, search.best[1]
        super().finish(finished)


class KeepsWhatIsNotLive(TuningCourse):
    """R5: what is kept is live."""

    def finish(self, finished: tm.Finished) -> None:
        super().finish(finished)
        if self.state is State.SETTLING:
            self.stay()


class SearchesWithoutCosts(TuningCourse):
    """A search that goes by costs waits for them."""

    def begin(self, why: str, start: Plan | None = None) -> None:
        before, self.choice.profiles = self.choice.profiles, Profiles.KNOWN
        super().begin(why, start)
        self.choice.profiles = before


class HearsNoCosts(Choice):
    """And it begins with them."""

    def hear(self, profiled: FromProfiler) -> None:
        pass


class TakesPlansOutOfDate(Epochs):
    """A plan of the daemon's own holds for the epoch under which it was made: else it undoes a client's."""

    def advance(self, now: float) -> None:
        for proposal in filter(attrgetter("placed"), self.proposals):
            proposal.proposed = replace(proposal.proposed, under=self.newest.number if self.newest else None)
        super().advance(now)


class SearchesOnFromAClientsPlan(Tuning):
    """A client's plan pauses tuning."""

    def _plan_live(self, owner: Owner, intent: Intent | None) -> None:
        super()._plan_live(Owner.DAEMON if owner is Owner.CLIENT else owner, intent)


class LosesThePlacersRefusal(Placing):
    """Each proposal is settled; what cannot be placed at once."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        if isinstance(event, ev.PlacerSaid) and isinstance(event.message, pm.NotSolved):
            self._requests.pop(event.message.request, None)
            return []
        return super().handle(event, now_s)


class WaitsForThePlacer(Placing):
    """While the live plan cannot serve, the one that is to take its place waits for no solver."""

    def _is_awaited(self, proposed: PlanProposed) -> bool:
        return False


class JudgesTwice(Searches):
    """A trial is judged once: its window closes then."""

    def judge(self, measurement: Measurement, trouble: str = "") -> None:
        trying = self.present.trying
        super().judge(measurement, trouble)
        if not trouble:
            self.present.trying = trying
            self._measuring.begin(self._outbox.now_s, None)


class NeverChanging(NamedTuple):
    live: tuple[int, Plan]
    available: tuple[str, ...]
    changing: bool = False
    is_whole: bool = True
    beside: tuple[int, Plan] | None = None
    proposals: tuple[PlanProposed, ...] = ()


class MeasuresAnyFrame(Tuning):
    """A trial is measured on frames of its own epoch."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        measuring, live = self.measuring, self._serving.live
        serving, epoch = measuring._serving, measuring.epoch
        if isinstance(event, ev.PartTaken) and live is not None and epoch is not None:
            stages = live[1].stages
            if event.stage < len(stages):
                event = replace(event, epoch=epoch, place=stages[event.stage].place)
            measuring._serving = NeverChanging(live, serving.available)
        try:
            return super().handle(event, now_s)
        finally:
            measuring._serving = serving


class PlacesAnewWhileTheTunerSearches(Placing):
    """A new placement would spoil its measurements."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        self._is_tuned = lambda: False
        return super().handle(event, now_s)


class ForgetsTheTunersDeath(Tuning):
    """A search that has lost its process begins again."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        return [] if isinstance(event, ev.TunerDied) else super().handle(event, now_s)


class HearsOldSearches(Tuning):
    """What belongs to a search that is over is not heard."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        if isinstance(event, ev.TunerSaid):
            event = ev.TunerSaid(replace(event.message, run=self.search.number))
        return super().handle(event, now_s)


class HearsWhatItDidNotAskFor(Tuning):
    """One plan is tried at a time."""

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        if isinstance(event, ev.TunerSaid) and event.message.run == self.search.number:
            self.search.trying = None
        return super().handle(event, now_s)


class ForgetsTheBestInAPause(Tuning):
    """R5: a paused search leaves the best plan that it has measured."""

    def _leave_best(self, attempts: int) -> None:
        pass


class ChoosesForTheFiledMachine(Choice):
    """What the daemon chooses by itself is for the machine as it is now."""

    def plan(self, available: Collection[str]) -> Plan:
        machine, self.machine = self.machine, self.filed
        chosen = super().plan(available)
        self.machine = machine
        return chosen


class TakesTheLatestForTheBest(SearchRun):
    """Better is better beyond noise."""

    def judge(self, plan: Plan, measurement: Measurement) -> str:
        verdict = super().judge(plan, measurement)
        if measurement.can_run:
            self.best = plan, measurement
        return verdict


class AsksForAPlanOnce(Epochs):
    """As long as no plan can serve, one is asked for again."""

    def _ask_for_plan(self, now: float) -> None:
        if not self._replan_at_s:
            super()._ask_for_plan(now)


MUTANTS: Final = (
    SearchesWithoutCosts,
    HearsNoCosts,
    KeepsWhatTheTunerNames,
    KeepsWhatIsNotLive,
    TakesPlansOutOfDate,
    SearchesOnFromAClientsPlan,
    LosesThePlacersRefusal,
    WaitsForThePlacer,
    JudgesTwice,
    MeasuresAnyFrame,
    PlacesAnewWhileTheTunerSearches,
    ForgetsTheTunersDeath,
    HearsOldSearches,
    HearsWhatItDidNotAskFor,
    ForgetsTheBestInAPause,
    ChoosesForTheFiledMachine,
    TakesTheLatestForTheBest,
    AsksForAPlanOnce,
)


def first_break(mutant: type, *, validate: bool) -> BrokenPromise | None:
    for seed in range(MOST_SEEDS):
        try:
            run(seed, mutant, validate=validate)
        except BrokenPromise as failure:
            return failure
    return None


@pytest.mark.parametrize("validate", [True, False], ids=["with invariants", "from outside"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: type, validate: bool) -> None:
    failure = first_break(mutant, validate=validate)
    assert failure is not None, f"not found in {MOST_SEEDS} interleavings"
    assert str(failure).startswith("seed "), "the seed comes first, to be played again"
    assert type(failure.__cause__) is AssertionError, "a check said so, it did not merely crash"
