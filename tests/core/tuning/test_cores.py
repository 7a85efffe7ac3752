"""What one core says to another: a plan for places with devices is placed, and passes the gate, before it starts."""

from __future__ import annotations

from typing import TypeVar

import pytest

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning.best import BestPlans
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.cores import CoreEvent, Cores, Outward
from shisha_rt.core.tuning.instructions import CountSolve, TellPlacer
from shisha_rt.core.tuning.placing import Placing
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.outcome import Outcome
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.core.tuning.test_placing import AT_ONCE, DEVICES, LEFT, OPERATORS, PLAN, RIGHT
from tests.wording import says

MACHINE = Machine(
    "m", "m", (Memory("ram"),), tuple(Place(name, (core,), 1, 1, 1.0, 1, "ram") for core, name in enumerate(DEVICES))
)

SaidT = TypeVar("SaidT")


class Daemon:
    """Its workers are up; it has asked for its first plan, which a placer is to place."""

    def __init__(self) -> None:
        rules = PlanRules(3, tuple(DEVICES), None, OPERATORS, DEVICES)
        lifecycle = Lifecycle(rules, 2, Policy())
        tuning = Tuning(lifecycle, Choice(MACHINE, rules, [2.0, 1.0, 3.0], BestPlans({})), None, 0)
        self.cores = Cores(lifecycle, tuning, Placing(lifecycle, lambda: tuning.searching, "exact", AT_ONCE))
        self.said: list[Outward] = []
        self.now_s = 0.0
        self.post(le.Tick())
        for start in self.all(do.Start):
            self.post(le.WorkerReady(start.incarnation))

    def post(self, event: CoreEvent, cause: str = "") -> None:
        self.said += self.cores.handle(event, self.now_s, cause)

    def prepare(self) -> None:
        """Workers prepare what they have been asked to."""
        for order in self.all(do.PrepareStage):
            self.post(le.StagePrepared(order.epoch, order.stage, order.incarnation))

    def all(self, kind: type[SaidT]) -> list[SaidT]:
        return [outward for outward in self.said if isinstance(outward, kind)]


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def test_the_first_plan_is_asked_for_placed_prepared_and_live(daemon: Daemon) -> None:
    (asked,) = daemon.all(TellPlacer)
    assert asked.message == pm.Solve(1, Plan.of([(0, 1, "left"), (2, 2, "right")]))
    assert daemon.all(do.PrepareStage) == []
    daemon.post(ev.PlacerSaid(pm.Solved(1, (LEFT, RIGHT), 0.001)))
    orders = daemon.all(do.PrepareStage)
    assert [order.plan.stages[order.stage].placement for order in orders] == [LEFT.devices, RIGHT.devices]
    daemon.prepare()
    assert daemon.cores.lifecycle.live == (1, PLAN)
    assert daemon.cores.placing is not None
    assert daemon.cores.placing.predicted_s(1, 0) == LEFT.cost_s
    assert (daemon.cores.tuning.fault, len(daemon.all(CountSolve))) == (None, 1)


def test_when_a_place_is_lost_nobody_waits_for_the_placer(daemon: Daemon) -> None:
    """It is at work on a plan of a client's, which has its turn later."""
    daemon.post(ev.PlacerSaid(pm.Solved(1, (LEFT, RIGHT), 0.001)))
    daemon.prepare()
    daemon.post(le.PlanProposed(le.Owner.CLIENT, 7, PLAN))
    daemon.now_s = 1.0
    daemon.post(le.PlaceDown("left"))
    daemon.prepare()
    assert daemon.cores.lifecycle.live == (2, Plan.of([(0, 2, "right")]))
    assert len(daemon.all(TellPlacer)) == 2
    assert not [end for end in daemon.all(do.Settled) if end.proposed.owner is le.Owner.CLIENT]
    daemon.post(ev.PlacerSaid(pm.Solved(2, (LEFT, RIGHT), 0.001)))
    (end,) = [end for end in daemon.all(do.Settled) if end.proposed.owner is le.Owner.CLIENT]
    assert (end.ending, end.reason) == (do.Ending.REFUSED, says("place left is …"))


@pytest.mark.parametrize(
    ("right", "fault"),
    [
        (("quick",) * 2, "stage 1 (layers 2-2) places 2 operators, expected 3"),
        (("quick", "steady", "quick"), "stage 1 (layers 2-2) uses device 'steady', …"),
    ],
)
def test_an_answer_of_the_placer_that_does_not_fit_is_refused(
    daemon: Daemon, right: tuple[str, ...], fault: str
) -> None:
    daemon.post(
        ev.PlacerSaid(pm.Solved(1, (LEFT, StagePlacement(right, 2e-3, (2e-3,), None, Outcome.FEASIBLE)), 0.001))
    )
    (end,) = daemon.all(do.Settled)
    assert (end.ending, end.reason) == (do.Ending.REFUSED, says(fault))
    assert daemon.cores.tuning.fault == end


def test_a_plan_that_cannot_be_placed_is_refused_with_the_reason(daemon: Daemon) -> None:
    daemon.post(le.PlanProposed(le.Owner.CLIENT, 7, Plan.of([(0, 2, "right")])))
    daemon.post(ev.PlacerSaid(pm.NotSolved(2, "operator 4 (Erf) runs on no device of right")))
    (end,) = daemon.all(do.Settled)
    assert (end.proposed.owner, end.proposed.number, end.ending) == (le.Owner.CLIENT, 7, do.Ending.REFUSED)
    assert end.reason == says("operator 4 (Erf) runs on …")


def test_what_a_proposal_carries_comes_back_with_its_end(daemon: Daemon) -> None:
    """A client's ticket, unread; and on what the daemon's own plans were proposed."""
    ticket = object()
    daemon.post(le.PlanProposed(le.Owner.CLIENT, 7, Plan.of([(0, 2, "left"), (2, 2, "right")]), ticket=ticket))
    (end,) = daemon.all(do.Settled)
    assert (end.proposed.ticket, end.ending) == (ticket, do.Ending.REFUSED)
    daemon.post(ev.PlacerSaid(pm.Solved(1, (LEFT, RIGHT), 0.001)))
    daemon.prepare()
    daemon.now_s = 1.0
    daemon.post(le.PlaceDown("left"), "an operator")
    (proposed,) = [event for event in daemon.all(le.PlanProposed) if event.under == 1]
    (started,) = [instruction for instruction in daemon.all(do.EpochStarted) if instruction.epoch == 2]
    assert (proposed.cause, started.proposed) == ("an operator", proposed)


def test_what_is_placed_is_what_was_proposed(daemon: Daemon) -> None:
    """It has been verified: a placer that puts layers elsewhere would go by the gate."""
    (wanted,) = daemon.cores.lifecycle.proposals
    daemon.post(le.PlanPlaced(wanted, Plan.of([(0, 2, "right")])))
    (end,) = daemon.all(do.Settled)
    assert (end.ending, end.proposed) == (do.Ending.REFUSED, wanted)
    assert daemon.cores.lifecycle.proposals == []


def test_a_plan_that_is_proposed_is_listed_until_it_has_ended(daemon: Daemon) -> None:
    daemon.post(ev.PlacerSaid(pm.Solved(1, (LEFT, RIGHT), 0.001)))
    assert [proposed.number for proposed in daemon.cores.lifecycle.proposals] == [1]
    daemon.prepare()
    assert daemon.cores.lifecycle.proposals == []
