"""What is asked of the placer, what becomes of its answers, and what is done about a device that is not as predicted.

No process runs: the test reads what was asked, and answers as a placer might.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

from shisha_rt.core.lifecycle.events import Owner, PlanNotPlaced, PlanPlaced, PlanProposed
from shisha_rt.core.lifecycle.instructions import Ending, PlaceOperators, Settled
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning.greedy_placement import GreedyPlacement
from shisha_rt.core.tuning.instructions import CountSolve, TellPlacer, Write
from shisha_rt.core.tuning.placing import FRAMES, Placing
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.model.spans import Span
from shisha_rt.outcome import Outcome
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.plan.plan import Plan
from tests.wording import says

PLAN = Plan.of([(0, 1, "left"), (2, 2, "right")])
OPERATORS = (2, 1, 3)
DEVICES = {"left": ("quick", "steady"), "right": ("quick",)}
COSTS_S = {"quick": 1e-3, "steady": 1.5e-3}
"""Of each operator on a device."""


def operators_of(first: int, last: int) -> Span:
    return sum(OPERATORS[:first]), sum(OPERATORS[: last + 1]) - 1


AT_ONCE = GreedyPlacement(
    {
        place: OperatorCosts(
            tuple(Device(name, "test", "onnxruntime", name, "fp32") for name in names),
            np.tile([COSTS_S[name] for name in names], (sum(OPERATORS), 1)),
        )
        for place, names in DEVICES.items()
    },
    operators_of,
)

LEFT = StagePlacement(("quick", "quick", "steady"), 3e-3, (2e-3, 1e-3), 3e-3, Outcome.OPTIMAL)
LEFT_SLOWED = StagePlacement(LEFT.devices, 7e-3, (6e-3, 1e-3), 7e-3, Outcome.OPTIMAL)
LEFT_STEADY = StagePlacement(("steady",) * 3, 4e-3, (4e-3,), 4e-3, Outcome.OPTIMAL)
RIGHT = StagePlacement(("quick",) * 3, 2e-3, (2e-3,), 2e-3, Outcome.OPTIMAL)
ON_LEFT = Plan.of([(0, 2, "left")])
ALL_ON_STEADY = StagePlacement(("steady",) * 6, 5e-3, (5e-3,), 5e-3, Outcome.OPTIMAL)
AS_PREDICTED = LEFT.segments_s, RIGHT.segments_s
QUICK_3_TIMES_SLOWER = LEFT_SLOWED.segments_s, RIGHT.segments_s


class World:
    """A daemon with a plan of two stages; every look finds a window of frames that is new."""

    def __init__(self) -> None:
        self.asked: list[pm.ToPlacer] = []
        self.placed: list[Plan] = []
        self.refused: list[str] = []
        self.proposed: list[PlanProposed] = []
        self.records: list[dict[str, Any]] = []
        self.solves = 0
        self.searching = False
        self.now_s = 0.0
        self.live: tuple[int, Plan] | None = None
        self.changing = False
        self.is_whole = True
        self.beside = None
        self.proposals: tuple[PlanProposed, ...] = ()
        self.available: tuple[str, ...] = ("left", "right")
        self.placing = Placing(self, lambda: self.searching, "exact", AT_ONCE)
        self._proposals = 0

    def post(self, event: ev.Heard) -> None:
        if isinstance(event, Settled):
            self.proposals = tuple(proposed for proposed in self.proposals if proposed != event.proposed)
        for decision in self.placing.handle(event, self.now_s):
            match decision:
                case TellPlacer():
                    self.asked.append(decision.message)
                case PlanPlaced():
                    self.placed.append(decision.plan)
                case PlanNotPlaced():
                    self.refused.append(decision.reason)
                case PlanProposed():
                    self.proposed.append(decision)
                case Write():
                    self.records.append(msgspec.json.decode(msgspec.json.encode(decision.record)))
                case CountSolve():
                    self.solves += 1

    def place(self, plan: Plan = PLAN, owner: Owner = Owner.TUNER) -> None:
        self._proposals += 1
        proposed = PlanProposed(owner, self._proposals, plan)
        self.proposals = (*self.proposals, proposed)
        self.post(PlaceOperators(proposed))

    @property
    def requests(self) -> list[int]:
        return [asked.request for asked in self.asked if isinstance(asked, pm.Solve)]

    @property
    def known_segments(self) -> list[tuple[str, int]]:
        """Of the first stage."""
        assert self.placing.known is not None
        return self.placing.known[1].stages[0].segments

    @property
    def last_asked(self) -> pm.Solve:
        asked = self.asked[-1]
        assert isinstance(asked, pm.Solve)
        return asked

    @property
    def epoch(self) -> int:
        return 0 if self.live is None else self.live[0]

    def say(self, message: pm.FromPlacer) -> None:
        self.post(ev.PlacerSaid(message))

    def answer(self, *stages: StagePlacement) -> None:
        self.answer_to(self.last_asked.request, *stages)

    def answer_to(self, request: int, *stages: StagePlacement) -> None:
        self.say(pm.Solved(request, stages, 0.001))

    def go_live(self, plan: Plan, owner: Owner = Owner.TUNER, proposal: int = 1) -> None:
        self.live = self.epoch + 1, plan
        self.post(Settled(PlanProposed(owner, proposal, plan), plan, self.epoch, Ending.LIVE, ""))

    def look(self, *segments_s: tuple[float, ...], times: int = 1) -> None:
        """So many looks, before each of which every stage has run enough frames that took so long."""
        for _ in range(times):
            for stage, taken_s in enumerate(segments_s):
                for _ in range(FRAMES):
                    self.post(ev.PartTaken(self.epoch, stage, PLAN.stages[stage].place, sum(taken_s), taken_s))
            self.post(ev.Look())

    def settle(self, ending: Ending = Ending.LIVE) -> None:
        made = self.proposed[-1]
        assert (made.owner, made.under) == (Owner.PLACER, self.epoch)
        if ending is Ending.LIVE:
            self.go_live(made.plan, made.owner, made.number)
        else:
            self.post(Settled(made, made.plan, None, ending, "a worker died"))

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.records if event["kind"] == kind]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def live(world: World) -> World:
    """With the plan live as it was placed first, and a first window that was as predicted."""
    world.place()
    world.answer(LEFT, RIGHT)
    world.go_live(world.placed[0])
    world.look(*AS_PREDICTED)
    return world


def test_a_proposal_is_asked_for_and_placed(world: World) -> None:
    world.place()
    assert world.asked == [pm.Solve(1, PLAN, ())]
    assert world.placed == []
    world.answer(LEFT, RIGHT)
    (placed,) = world.placed
    assert placed == PLAN
    assert [stage.placement for stage in placed.stages] == [LEFT.devices, RIGHT.devices]
    assert (world.refused, world.solves) == ([], 1)


def test_the_event_tells_the_segments_of_each_stage(world: World) -> None:
    world.place()
    world.answer(LEFT, RIGHT)
    (event,) = world.events("placement_solved")
    assert (event["plan"], event["solver"], event["seconds"]) == (str(PLAN), "exact", 0.001)
    assert event["reason"] == says("a plan was …")
    assert event["stages"] == [
        {"place": "left", "cost_s": 3e-3, "segments": "quick 2, steady 1"},
        {"place": "right", "cost_s": 2e-3, "segments": "quick 3"},
    ]


def test_a_plan_that_cannot_be_placed_is_refused_with_the_reason(world: World) -> None:
    world.place()
    world.say(pm.NotSolved(1, "operator 4 (Erf) runs on no device of right"))
    assert world.refused == [says("operator 4 (Erf) runs on …")]
    assert (world.placed, world.solves) == ([], 0)


def test_each_request_is_answered_once_whatever_the_order(world: World) -> None:
    world.place()
    world.place()
    world.say(pm.Solved(2, (LEFT, RIGHT), 0.001))
    world.say(pm.Solved(2, (LEFT, RIGHT), 0.001))
    world.say(pm.NotSolved(7, "of a request that nobody made"))
    assert (len(world.placed), world.refused) == (1, [])
    world.say(pm.Solved(1, (LEFT, RIGHT), 0.001))
    assert len(world.placed) == 2


def test_the_successor_of_a_placer_that_died_is_asked_what_is_open(world: World) -> None:
    world.place()
    world.place()
    world.answer(LEFT, RIGHT)
    world.post(ev.PlacerDied("killed by signal 9"))
    assert world.asked[2:] == [pm.Solve(1, PLAN, ())]
    world.answer(LEFT, RIGHT)
    assert len(world.placed) == 2
    assert [event["reason"] for event in world.events("placer_died")] == ["killed by signal 9"]


class TestWhatThePlacerDiesOf:
    def test_it_is_refused_the_second_time_and_others_go_on(self, world: World) -> None:
        for _ in range(3):
            world.place()
        world.answer_to(1, LEFT, RIGHT)
        world.post(ev.PlacerDied("killed by signal 11"))
        assert (world.requests[3:], world.refused) == ([2, 3], [])
        world.post(ev.PlacerDied("killed by signal 11"))
        assert world.refused == [says("… died of it 2 times: killed by signal 11")]
        assert world.requests[5:] == [3]
        for _ in range(2):
            world.place()
        world.answer_to(3, LEFT, RIGHT)
        world.post(ev.PlacerDied("killed by signal 11"))
        assert (len(world.refused), world.requests[-2:]) == (1, [4, 5])

    def test_what_nobody_waits_for_any_more_is_charged_to_nobody_else(self, world: World) -> None:
        for _ in range(2):
            world.place()
        world.post(ev.PlacerDied("killed by signal 11"))
        world.post(Settled(PlanProposed(Owner.TUNER, 1, PLAN), PLAN, None, Ending.DROPPED, "not placed in time"))
        world.post(ev.PlacerDied("killed by signal 11"))
        assert (world.refused, world.requests[4:]) == ([], [2])
        world.post(ev.PlacerDied("killed by signal 11"))
        assert (world.refused, world.requests[5:]) == ([], [2])

    def test_the_live_plan_is_then_not_placed_anew(self, live: World) -> None:
        live.look(*QUICK_3_TIMES_SLOWER, times=2)
        for _ in range(2):
            live.post(ev.PlacerDied("killed by signal 11"))
        live.look(*QUICK_3_TIMES_SLOWER, times=5)
        assert live.requests == [1, 2, 2]
        (event,) = live.events("placement_refused")
        assert event["reason"] == says("… died of it 2 times: killed by signal 11")


class TestAPlanThatIsAwaited:
    """The live one has lost a place."""

    @pytest.fixture
    def awaiting(self, live: World) -> World:
        live.place()  # a trial, which the placer works on
        live.available = ("left",)
        live.place(ON_LEFT, Owner.DAEMON)
        return live

    def test_it_is_placed_at_once(self, awaiting: World) -> None:
        assert awaiting.requests == [1, 2]
        assert awaiting.placed[-1].stages[0].placement == ("quick",) * 6
        assert [event["plan"] for event in awaiting.events("placed_at_once")] == [str(ON_LEFT)]

    def test_it_is_placed_anew_as_soon_as_it_is_live_though_a_search_has_begun(self, awaiting: World) -> None:
        awaiting.searching = True
        awaiting.go_live(awaiting.placed[-1], Owner.DAEMON)
        assert awaiting.placing.describe(awaiting.epoch, 0, ()) is None
        awaiting.look()
        awaiting.look()
        assert awaiting.last_asked == pm.Solve(3, ON_LEFT)
        awaiting.answer(ALL_ON_STEADY)
        awaiting.settle()
        assert awaiting.live is not None
        assert awaiting.live[1].stages[0].placement == ALL_ON_STEADY.devices
        assert awaiting.placing.predicted_s(awaiting.epoch, 0) == ALL_ON_STEADY.cost_s
        assert awaiting.events("placement_solved")[-1]["reason"].startswith("it was placed")
        awaiting.look()
        assert awaiting.requests == [1, 2, 3]

    def test_if_nothing_is_better_that_is_all(self, awaiting: World) -> None:
        awaiting.go_live(awaiting.placed[-1], Owner.DAEMON)
        awaiting.look()
        awaiting.answer(StagePlacement(("quick",) * 6, 6e-3, (6e-3,), 6e-3, Outcome.OPTIMAL))
        awaiting.look()
        assert (awaiting.requests, awaiting.proposed) == ([1, 2, 3], [])
        assert awaiting.placing.predicted_s(awaiting.epoch, 0) == 6e-3

    def test_a_proposal_that_is_dropped_is_made_again_after_a_rest(self, awaiting: World) -> None:
        awaiting.go_live(awaiting.placed[-1], Owner.DAEMON)
        awaiting.look()
        awaiting.answer(ALL_ON_STEADY)
        awaiting.settle(Ending.DROPPED)
        awaiting.look()
        assert awaiting.requests == [1, 2, 3]
        awaiting.now_s += 60
        awaiting.look()
        assert len(awaiting.requests) == 4

    def test_what_cannot_be_placed_anew_is_not_asked_for_again(self, awaiting: World) -> None:
        awaiting.go_live(awaiting.placed[-1], Owner.DAEMON)
        awaiting.look()
        awaiting.say(pm.NotSolved(3, "no"))
        awaiting.now_s += 60
        awaiting.look()
        assert awaiting.requests == [1, 2, 3]

    def test_no_other_plan_is_placed_so(self, live: World) -> None:
        live.place(ON_LEFT, Owner.DAEMON)  # the live one serves
        live.available = ("left",)
        live.place(ON_LEFT, Owner.CLIENT)
        assert live.requests == [1, 2, 3]
        assert live.events("placed_at_once") == []


class TestADeviceThatIsNoLongerUsed:
    """It was slow, and what there is now is without it."""

    @pytest.fixture
    def without(self, live: World) -> World:
        live.look(*QUICK_3_TIMES_SLOWER, times=2)
        live.answer(LEFT_STEADY, RIGHT)
        live.settle()
        live.look(LEFT_STEADY.segments_s, RIGHT.segments_s, times=3)
        assert live.requests == [1, 2]
        return live

    def again(self, world: World) -> int:
        """How many minutes until another chance is given to it; that is taken, and it proves to be slow still."""
        minutes = 0
        while "quick" not in [device for device, _ in world.known_segments]:
            minutes += 1
            world.now_s += 60
            asked = len(world.asked)
            world.look(LEFT_STEADY.segments_s, RIGHT.segments_s)
            if len(world.asked) > asked:
                assert dict.fromkeys(place for place, _, _ in world.last_asked.ratios) == {}
                world.answer(LEFT, RIGHT)
                world.settle()
        world.now_s += 10
        world.look(*QUICK_3_TIMES_SLOWER, times=2)
        world.answer(LEFT_STEADY, RIGHT)
        world.settle()
        return minutes

    def test_it_gets_another_chance_after_ever_longer_times(self, without: World) -> None:
        assert [self.again(without) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert without.events("device_ratio")[-2]["ratio"] == 1.0

    def test_if_it_has_recovered_it_stays_in_use(self, without: World) -> None:
        without.now_s += 60
        without.look(LEFT_STEADY.segments_s, RIGHT.segments_s)
        without.answer(LEFT, RIGHT)
        without.settle()
        without.look(*AS_PREDICTED, times=3)
        without.now_s += 3600
        without.look(*AS_PREDICTED, times=3)
        assert len(without.requests) == 3

    def test_not_while_the_tuner_searches(self, without: World) -> None:
        without.searching = True
        without.now_s += 600
        without.look(LEFT_STEADY.segments_s, RIGHT.segments_s)
        assert without.requests == [1, 2]
        without.searching = False
        without.look(LEFT_STEADY.segments_s, RIGHT.segments_s)
        assert len(without.requests) == 3


def test_a_device_that_is_slow_but_still_the_best_needs_no_chance(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.answer(LEFT_SLOWED, RIGHT)
    for _ in range(5):  # nobody sends frames
        live.now_s += 600
        live.look()
    assert live.requests == [1, 2]


def test_what_goes_as_predicted_changes_nothing(live: World) -> None:
    live.look(*AS_PREDICTED, times=20)
    assert (len(live.asked), live.proposed) == (1, [])


def test_a_device_that_is_slower_twice_leads_to_one_new_placement(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER)
    assert len(live.asked) == 1, "one window may have been spoilt"
    live.look(*QUICK_3_TIMES_SLOWER)
    assert (live.last_asked.request, live.last_asked.plan) == (2, PLAN)
    ratios = {(place, device): ratio for place, device, ratio in live.last_asked.ratios}
    assert ratios["left", "quick"] == pytest.approx(3.0)
    assert ratios.keys() <= {("left", "quick"), ("left", "steady")}, "no other place has changed"
    live.look(*QUICK_3_TIMES_SLOWER, times=3)
    assert len(live.asked) == 2, "it has been asked"
    live.answer(LEFT_STEADY, RIGHT)
    (proposal,) = live.proposed
    assert proposal.plan == PLAN
    assert [stage.placement for stage in proposal.plan.stages] == [LEFT_STEADY.devices, RIGHT.devices]
    live.look(*QUICK_3_TIMES_SLOWER, times=3)
    live.settle()
    live.look(LEFT_STEADY.segments_s, RIGHT.segments_s, times=5)
    assert (len(live.asked), len(live.proposed)) == (2, 1)
    (event,) = live.events("device_ratio")
    assert (event["place"], event["device"], event["ratio"]) == ("left", "quick", pytest.approx(3.0))
    assert "quick on left x3" in live.events("placement_solved")[-1]["reason"]


def test_frames_that_have_been_looked_at_are_not_looked_at_again(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER)
    for _ in range(10):
        live.look()
    assert len(live.asked) == 1


def test_later_proposals_are_placed_with_the_corrected_costs(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.place()
    ratios = {(place, device): ratio for place, device, ratio in live.last_asked.ratios}
    assert ratios["left", "quick"] == pytest.approx(3.0)


def test_a_device_that_recovers_leads_back(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.answer(LEFT_SLOWED, RIGHT)  # there is nothing better
    assert live.proposed == []
    live.look(*AS_PREDICTED, times=2)
    assert live.last_asked == pm.Solve(3, PLAN, ())
    assert [event["ratio"] for event in live.events("device_ratio")] == [pytest.approx(3.0), pytest.approx(1.0)]


@pytest.mark.parametrize("better_by", [0.0, 0.01])
def test_nothing_is_proposed_if_nothing_is_gained(live: World, better_by: float) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    cost_s = (1 - better_by) * 7e-3
    live.answer(StagePlacement(LEFT_STEADY.devices, cost_s, (cost_s,), cost_s, Outcome.OPTIMAL), RIGHT)
    live.look(*QUICK_3_TIMES_SLOWER, times=5)
    assert (len(live.asked), live.proposed) == (2, [])
    # What is live is known as it is now.
    assert live.placing.predicted_s(live.epoch, 0) == pytest.approx(7e-3)


def test_none_while_the_tuner_searches_and_then_at_once(live: World) -> None:
    live.searching = True
    live.look(*QUICK_3_TIMES_SLOWER, times=5)
    assert len(live.asked) == 1
    live.searching = False
    live.look()
    assert len(live.asked) == 2


def test_a_search_that_begins_meanwhile_is_not_disturbed(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.searching = True
    live.answer(LEFT_STEADY, RIGHT)
    live.look(*QUICK_3_TIMES_SLOWER)
    assert (len(live.asked), live.proposed) == (2, [])
    live.searching = False
    live.look()
    live.answer(LEFT_STEADY, RIGHT)
    assert len(live.proposed) == 1


def test_an_answer_for_what_is_no_longer_live_is_not_proposed(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.go_live(live.placed[0])
    live.answer(LEFT_STEADY, RIGHT)
    assert live.proposed == []


def test_a_proposal_that_is_dropped_is_not_made_again(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.answer(LEFT_STEADY, RIGHT)
    live.settle(Ending.DROPPED)
    live.look(*QUICK_3_TIMES_SLOWER, times=5)
    assert (len(live.asked), len(live.proposed)) == (2, 1)


def test_a_refusal_of_the_placer_leaves_the_live_plan_as_it_is(live: World) -> None:
    live.look(*QUICK_3_TIMES_SLOWER, times=2)
    live.say(pm.NotSolved(2, "no device is left"))
    live.look(*QUICK_3_TIMES_SLOWER, times=5)
    assert (len(live.asked), live.proposed) == (2, [])
    assert [event["reason"] for event in live.events("placement_refused")] == [says("no device is …")]


def test_a_stage_is_described_with_what_was_predicted_and_measured(world: World) -> None:
    world.place()
    world.answer(LEFT, RIGHT)
    assert world.placing.describe(1, 0, ()) is None
    world.go_live(world.placed[0])
    fresh = world.placing.describe(1, 0, ())
    assert fresh is not None
    assert [segment["measured_s"] for segment in fresh["segments"]] == [None, None]
    assert world.placing.describe(1, 0, (2.1e-3, 1.1e-3)) == {
        "solver": "exact",
        "reason": says("a plan was …"),
        "predicted_s": 3e-3,
        "lower_bound_s": 3e-3,
        "outcome": "optimal",
        "segments": [
            {"device": "quick", "operators": 2, "predicted_s": 2e-3, "measured_s": 2.1e-3},
            {"device": "steady", "operators": 1, "predicted_s": 1e-3, "measured_s": 1.1e-3},
        ],
    }
    assert world.placing.describe(2, 0, ()) is None
    assert (world.placing.predicted_s(1, 1), world.placing.predicted_s(2, 1)) == (2e-3, None)


def test_a_plan_that_was_never_placed_is_left_alone(world: World) -> None:
    world.go_live(PLAN)
    world.look(*QUICK_3_TIMES_SLOWER, times=3)
    assert (world.asked, world.placing.describe(1, 0, ())) == ([], None)


def test_a_plan_that_is_placed_again_is_remembered_as_the_latest(world: World) -> None:
    whole = Plan.of([(0, 2, "left")])
    mixes = list(product(DEVICES["left"], repeat=sum(OPERATORS)))[:33]  # one more than are remembered
    for devices in (*mixes[:-1], mixes[0], mixes[-1]):
        world.place(whole)
        world.answer(StagePlacement(devices, 1e-3, (1e-3,), None, Outcome.FEASIBLE))
    world.go_live(world.placed[-2])
    assert world.placing.predicted_s(1, 0) == 1e-3
