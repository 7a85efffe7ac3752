"""What is live in the end where a search or a comparison is broken off: the best plan that was measured (R5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import instructions as td
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.cores import CoreEvent
from shisha_rt.core.tuning.profiler_messages import ModelProfiled
from shisha_rt.core.tuning.state import ATTEMPTS, Profiles, State
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, AnyObjective
from tests.core.tuning import contest_world
from tests.core.tuning.contest_world import copies, team
from tests.core.tuning.test_contest import OPENVINO_FASTER, duelling, in_fours, in_runs, truth, unprofiled
from tests.core.tuning.tuned_world import BEST, MACHINE, SEED, World

EVERYWHERE: Final = ("fast", "slow")
WORSE: Final = Plan.of([(0, 1, "fast"), (2, 7, "slow")])
CLIENTS: Final = Plan.of([(0, 1, "core0"), (2, 3, "core1")])
CHAIN: Final = Plan.of([(0, 2, "core0"), (3, 3, "core1")])


@pytest.fixture
def world() -> World:
    return World()


def kill_while_preparing(world: World) -> None:
    """The worker dies that prepares a stage of the plan on its way."""
    dies = world.held[0].incarnation
    world.held = [order for order in world.held if order.incarnation != dies]
    world.post(le.WorkerGone(dies, None, "killed"))


def measure(world: World, plan: Plan) -> None:
    """The tuner has it tried, and frames come until it is measured."""
    trials = world.tuning.searches.trials
    world.say(tm.Try(world.tuning.search.number, plan, "to see"))
    while world.tuning.searches.trials == trials:
        world.frame()


def finish(world: World) -> None:
    world.say(tm.Finished(world.tuning.search.number, world.plan, "enough"))


def searching_with_a_worse_plan_live(world: World) -> None:
    """`BEST` is the best plan measured so far."""
    for plan in (SEED, BEST, WORSE):
        measure(world, plan)
    assert (world.plan, world.best()) == (WORSE, BEST)


def begun_from(world: World) -> Plan:
    return [message for message in world.sent if isinstance(message, tm.Begin)][-1].start


class TestTheBestOfASearch:
    def test_it_goes_live_though_a_worker_dies_in_its_preparation(self, world: World) -> None:
        searching_with_a_worse_plan_live(world)
        world.holds = True
        finish(world)
        kill_while_preparing(world)
        world.release()
        assert (world.plan, world.tuning.state, world.tuning.watched) == (BEST, State.WATCHING, BEST)
        assert len(world.events("tuning_began")) == 1

    def test_what_cannot_go_live_at_all_is_given_up_in_the_end(self, world: World) -> None:
        searching_with_a_worse_plan_live(world)
        world.refuse = lambda plan: plan == BEST
        finish(world)
        assert (world.plan, world.tuning.state) == (WORSE, State.TUNING)
        assert sum(end.plan == BEST and end.ending is do.Ending.DROPPED for end in world.ends) == ATTEMPTS

    @pytest.mark.parametrize("is_measured", [False, True])
    def test_a_trial_that_is_late_is_not_where_a_search_begins_again(self, world: World, is_measured: bool) -> None:
        """The tuner's process died while it was prepared."""
        if is_measured:
            measure(world, BEST)
        start, world.holds = world.plan, True
        world.say(tm.Try(world.tuning.search.number, WORSE, "to see"))
        world.post(ev.TunerDied("killed"))
        world.say(tm.Try(world.tuning.search.number, start, "where it starts"))
        world.release()
        assert world.plan == WORSE
        assert begun_from(world) == start


class TestWhileOtherModelsUseThePlaces:
    def test_the_best_plan_serves_after_the_tuners_death(self, world: World) -> None:
        searching_with_a_worse_plan_live(world)
        world.post(ev.CrowdSeen(EVERYWHERE))
        world.post(ev.TunerDied("killed"))
        assert (world.plan, world.tuning.state) == (BEST, State.WATCHING)
        world.post(ev.CrowdSeen(()))
        assert (world.tuning.state, begun_from(world)) == (State.TUNING, BEST)

    def test_what_was_kept_serves_after_a_late_trial(self, world: World) -> None:
        measure(world, BEST)
        world.holds = True
        world.say(tm.Try(world.tuning.search.number, WORSE, "to see"))
        world.post(ev.SearchAsked("a client asks"))
        measure(world, BEST)
        finish(world)
        assert world.tuning.watched == BEST
        world.post(ev.CrowdSeen(EVERYWHERE))
        world.release()
        assert WORSE in [end.plan for end in world.ends if end.ending is do.Ending.LIVE]
        assert (world.plan, world.tuning.watched) == (BEST, BEST)

    def test_a_plan_that_is_watched_for_want_of_another_is_not_called_the_best(self, world: World) -> None:
        searching_with_a_worse_plan_live(world)
        world.post(ev.CrowdSeen(EVERYWHERE))
        world.post(ev.MachineChanged(MACHINE.with_speed("slow", 0.4), "the speed of slow is 0.4 now"))
        assert (world.plan, world.tuning.state, world.tuning.watched) == (WORSE, State.WATCHING, None)


def test_an_objective_is_searched_for_though_its_plan_cannot_go_live(world: World) -> None:
    world.serve_until(State.WATCHING)
    world.refuse = lambda plan: plan == SEED
    world.post(ev.OptionsSet(objective="latency"))
    assert (world.plan, world.tuning.state) == (BEST, State.TUNING)
    assert world.events("tuning_began")[-1]["objective"] == "latency"


class TestComparisons:
    def test_a_clients_plan_that_fails_leaves_the_plan_that_served(self) -> None:
        """It is proposed while the challenger has its turn."""
        world = duelling()
        contest = world.tuning.contests.running
        assert contest is not None
        world.serve(10, until=lambda: world.plan != contest.serving)
        served = contest.serving
        world.refuse = lambda plan: plan == CLIENTS
        world.post(le.PlanProposed(le.Owner.CLIENT, 1, CLIENTS, None))
        assert world.plan == served

    def test_a_challenger_gives_way_to_what_is_proposed_while_it_is_prepared(self) -> None:
        """And is compared afterwards, if that cannot go live."""
        world = unprofiled(contest_world.World(OPENVINO_FASTER))
        ends, carry_out = list[do.Ending](), world._carry_out

        def meanwhile(instruction: Any) -> list[CoreEvent]:
            if isinstance(instruction, do.Settled):
                ends.append(instruction.ending)
            events = carry_out(instruction)
            if isinstance(instruction, do.EpochStarted) and not ends:
                return [le.PlanProposed(le.Owner.CLIENT, 1, CLIENTS)]
            return events

        world._carry_out = meanwhile  # type: ignore[method-assign]
        world.refuse = lambda plan: plan == CLIENTS
        world.serve(60)
        assert ends[:3] == [do.Ending.DROPPED, do.Ending.DROPPED, do.Ending.LIVE]
        assert world.plan == copies("openvino")

    def test_a_challenger_whose_worker_dies_is_tried_again(self) -> None:
        world = unprofiled(contest_world.World(OPENVINO_FASTER))
        deaths = list[int]()
        carry_out = world._carry_out

        def dies_once(instruction: Any) -> list[CoreEvent]:
            if isinstance(instruction, do.PrepareStage) and instruction.plan == copies("openvino") and not deaths:
                deaths.append(instruction.incarnation)
                return [le.WorkerGone(instruction.incarnation, None, "killed")]
            return carry_out(instruction)

        world._carry_out = dies_once  # type: ignore[method-assign]
        world.serve(60)
        assert deaths
        assert world.plan == copies("openvino")
        assert "cannot_run" not in [record["verdict"] for record in world.events("plans_compared")]


def test_a_pause_stays_one_though_the_best_plan_cannot_go_live() -> None:
    """The daemon was about to return to it, as the load of a comparison had gone away."""
    world = unprofiled(contest_world.World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    world.serve(60, in_flight=40, until=lambda: world.lifecycle.beside is not None)
    world.refuse = lambda plan: True
    world.post(le.PlanProposed(le.Owner.CLIENT, 1, copies("openvino")))
    world.serve(1, in_flight=1)
    world.post(ev.PauseAsked("asked"))
    world.serve(60, in_flight=1)
    assert (world.plan, world.state) == (copies(), State.PAUSED)


def test_an_objective_that_is_asked_for_in_a_pause_has_its_best_plan_serve() -> None:
    """Also if it is the present one: a comparison for another was broken off when its challenger had won."""
    world = unprofiled(contest_world.World(truth(onnxruntime_2=0.006), objective="auto"))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    best = world.tuning.choice.best(world.lifecycle.available)
    assert best is not None
    assert (best.plan, world.tuning.choice.objective) == (world.plan, "throughput")

    def is_led_by_a_team() -> bool:
        contest = world.tuning.contests.running
        return contest is not None and contest.serving == team() == world.plan

    world.serve(60, in_flight=1, until=is_led_by_a_team)
    assert is_led_by_a_team()
    world.post(ev.PauseAsked("asked"))
    assert (world.plan, world.tuning.choice.objective) == (team(), "throughput")
    world.post(ev.OptionsSet(objective="throughput"))
    world.serve(1, in_flight=1)
    assert (world.plan, world.state) == (best.plan, State.PAUSED)


class Restless(contest_world.World):
    """Layers are profiled at some time, and then a tuner searches: it has its start measured, and is content.

    While it `dies`, a worker dies in the next preparation. Plans of clients cannot be prepared.
    """

    def __init__(self, seed: int, objective: AnyObjective) -> None:
        self.random = random.Random(seed)
        self.dies = False
        self.to_tuner: list[tm.ToTuner] = []
        self.proposed = 0
        noise = self.random.choice((0.01, 0.05))
        super().__init__(
            OPENVINO_FASTER, seed=seed, objective=objective, noise=noise, refuse=lambda plan: plan == CLIENTS
        )

    def _carry_out(self, instruction: Any) -> list[CoreEvent]:
        match instruction:
            case do.PrepareStage(incarnation=incarnation) if self.dies:
                self.dies = False
                return [le.WorkerGone(incarnation, None, "killed")]
            case td.TellTuner():
                self.to_tuner.append(instruction.message)
        return super()._carry_out(instruction)

    def tune(self) -> None:
        """What the tuner's process does with the messages that have come."""
        messages, self.to_tuner = self.to_tuner, []
        for message in messages:
            run = self.tuning.search.number
            if isinstance(message, tm.Begin):
                self.start = message.start
                self.post(ev.TunerSaid(tm.Try(message.run, message.start, "where it starts")))
            elif isinstance(message, tm.Measured) and message.run == run:
                if self.random.random() < 0.5:
                    self.post(ev.TunerSaid(tm.Try(run, self.random.choice((CHAIN, self.start)), "another")))
                else:
                    self.post(ev.TunerSaid(tm.Finished(run, self.start, "it will do")))

    def act(self) -> None:
        place = self.random.choice(contest_world.NAMES)
        faults = "kill", "die", "down", "up", "client", "tuner", "crowd", "calm", "neighbour", "profile", "ask"
        match self.random.choice(faults):
            case "kill":
                self.kill(place)
            case "die":
                self.dies = True
            case "down":
                self.post(le.PlaceDown(place))
            case "up":
                self.up(place)
            case "client":
                self.proposed += 1
                self.post(le.PlanProposed(le.Owner.CLIENT, self.proposed, CLIENTS))
            case "tuner":
                self.to_tuner.clear()
                self.post(ev.TunerDied("killed"))
            case "crowd":
                self.post(ev.CrowdSeen((place,)))
            case "calm":
                self.post(ev.CrowdSeen(()))
            case "neighbour":
                self.others_ratio = self.random.choice((0.0, 0.4))
            case "profile":
                self.profile()
            case "ask" if self.random.random() < 0.3:
                self.post(ev.SearchAsked("a client asks"))

    def up(self, place: str) -> None:
        if place not in self.lifecycle.available:
            self.post(le.PlaceUp(place))
            self.post(ev.PlaceReturned(place))

    def profile(self) -> None:
        if self.tuning.choice.profiles is Profiles.COMING:
            by_costs = tuple((objective, CHAIN) for objective in OBJECTIVES)
            self.post(ev.ProfilerSaid(ModelProfiled(tm.StoredCosts(b"{}"), by_costs, 1.0)))


def test_what_was_searched_beside_another_program_is_compared_and_searched_again_once_it_is_gone() -> None:
    world = Restless(0, objective="throughput")
    world.truth = truth()
    world.profile()

    def play(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end_s = world.now_s + seconds
        while world.now_s < end_s and not until():
            world.serve(0.25)
            world.tune()

    play(120, lambda: world.state is State.TUNING)
    assert len(world.events("comparison_began")) == 1
    world.others_ratio = 0.4
    play(120, lambda: world.state is State.WATCHING)
    play(15)
    assert len(world.events("comparison_began")) == 1, "as long as it is there"
    searched = len(world.events("tuning_began"))
    world.others_ratio = 0.0
    play(60, lambda: len(world.events("tuning_began")) > searched and world.state is State.WATCHING)
    play(15)
    assert len(world.events("comparison_began")) == 2


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 200))])
def test_whatever_comes_in_between_it_comes_to_rest_with_the_best_plan_live(seed: int) -> None:
    """No client has paused it, or has a plan of its own."""
    world = Restless(seed, objective=random.Random(seed).choice(("throughput", "auto")))
    for _ in range(world.random.randint(5, 25)):
        in_flight, end_s = world.random.choice((0, 1, 6, 6, 6)), world.now_s + 2 * world.random.random()
        while world.now_s < end_s:
            world.serve(0.25, in_flight=in_flight)
            world.tune()
        world.act()
    world.dies, world.others_ratio = False, 0.0
    for name in contest_world.NAMES:
        world.up(name)
    world.profile()
    world.post(ev.CrowdSeen(()))
    best = copies("openvino")
    for _ in range(400):  # a comparison whose load went away is resumed after a pause
        world.serve(0.5)
        world.tune()
        if world.plan == best == world.tuning.watched:
            break
    kept = world.tuning.choice.best(world.lifecycle.available)
    assert kept is not None
    assert world.plan == best == world.tuning.watched == kept.plan
    world.serve(5, in_flight=0)
    assert world.answered == world.sent
