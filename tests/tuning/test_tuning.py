"""Online tuning with a daemon and a machine that the test makes: proposals go live at once, frames take what costs say.

The search is the real one, stepped here instead of in a process of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.daemon.journal import Journal
from shisha_rt.lifecycle.events import Settled
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.pipeline.tune import ShishaTuner, shisha
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.ready.best_plans import BestPlan, BestPlans
from shisha_rt.tuning import tuner_messages as tm
from shisha_rt.tuning.drift import WINDOWS_TO_LEAVE, leaving_stage
from shisha_rt.tuning.search_run import Options
from shisha_rt.tuning.tuning import State, Tuning
from shisha_rt.tuning.window import FRAMES, MAX_FRAMES

SEED = Plan.of([(0, 3, "fast"), (4, 7, "slow")])
WARM_UP = 3
NOISE = 0.002


@dataclass(frozen=True)
class Ranked:
    name: str
    rank: int
    speed: float = 0.5


class World:
    """A daemon of eight equal layers on a fast place and a slow one, three times slower."""

    def __init__(
        self, folder: Path, *, noise: float = 0.002, refuse: Callable[[Plan], bool] = lambda plan: False
    ) -> None:
        self.layer_s = {"fast": 0.001, "slow": 0.003}
        self.rng = random.Random(3)
        self.refuse = refuse
        self.epoch = 0
        self.plan = SEED
        self.sent: list[tm.ToTuner] = []
        self.journal = Journal()
        self.verdicts: list[str] = []
        self.best_plans = BestPlans(folder / "plans.sqlite", "model", Machine("m", "m", (), ()))
        self.tuning = Tuning(
            places=[Ranked("fast", 1), Ranked("slow", 2)],
            available=lambda: ("fast", "slow"),
            legal_cuts=range(7),
            knows_costs=True,
            options=Options("shisha", alpha=10, balance="nlfep"),
            warm_up=WARM_UP,
            best_plans=self.best_plans,
            journal=self.journal,
            send=self.sent.append,
            propose=self.propose,
            on_trial=self.verdicts.append,
        )
        self.search: tuple[ShishaTuner, Any] | None = None
        self.go_live(SEED)

    def go_live(self, plan: Plan) -> None:
        self.epoch += 1
        self.plan = plan
        self.tuning.plan_live(self.epoch, plan)

    def propose(self, plan: Plan, settled: Callable[[Settled], None]) -> None:
        if self.refuse(plan):
            settled(Settled(0, None, "dropped", "a worker died"))
            return
        self.go_live(plan)
        settled(Settled(0, self.epoch, "live", ""))

    def frame(self) -> None:
        for i, stage in enumerate(self.plan.stages):
            service_s = stage.layer_count * self.layer_s[stage.place] * self.rng.lognormvariate(0, NOISE)
            self.tuning.frame_done(self.epoch, i, service_s)

    def step_search(self) -> None:
        """What the tuner's process does with the messages that have come."""
        while self.sent:
            message = self.sent.pop(0)
            match message:
                case tm.Begin():
                    places = [Ranked(place.name, place.rank) for place in message.places]
                    tuner = shisha(Plan.of(message.start), places, alpha=message.alpha, order=message.order)
                    state, proposal = tuner.init()
                case tm.Measured() if self.search is not None:
                    tuner, state = self.search
                    state, proposal = tuner.step(state, message.measurement)
                case _:
                    self.search = None
                    continue
            self.search = (tuner, state)
            run = self.tuning.run.number
            if proposal.final:
                self.tuning.said(tm.Finished(run, tm.stages_of(proposal.plan), proposal.reason, "feasible"))
            else:
                self.tuning.said(tm.Try(run, tm.stages_of(proposal.plan), proposal.reason))

    def serve(self, frames: int) -> None:
        for _ in range(frames):
            self.step_search()
            self.frame()
        self.step_search()

    def serve_until(self, state: State) -> None:
        self.serve_until_true(lambda: self.tuning.state is state)

    def serve_until_true(self, done: Callable[[], bool], limit: int = 20_000) -> int:
        """How many frames it took."""
        for frames in range(limit):
            if done():
                return frames
            self.serve(1)
        raise AssertionError(f"{self.tuning.state} and not done after {limit} frames")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.journal.since(0, 10_000)["events"] if event["kind"] == kind]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_it_finds_the_best_plan_makes_it_live_and_keeps_it(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    assert world.plan == Plan.of([(0, 5, "fast"), (6, 7, "slow")])
    kept = world.best_plans.load()
    assert kept is not None
    assert kept.plan == world.plan
    assert kept.measurement.throughput_fps == pytest.approx(1000 / 6, rel=0.02)


def test_the_events_tell_each_trial_and_agree_with_the_counts(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    trials = world.events("trial")
    assert [trial["trial"] for trial in trials] == list(range(len(trials)))
    assert [trial["verdict"] for trial in trials] == world.verdicts
    assert world.verdicts[:3] == ["first", "better", "better"]
    assert trials[1]["reason"] == "layer 4 from stage 1 (slow) to stage 0 (fast)"
    assert world.tuning.trials == len(trials)
    assert world.tuning.moves == len(trials) - 1
    (end,) = world.events("tuning_ended")
    assert end["plan"] == str(world.plan)
    assert end["trials"] == len(trials)


def test_without_frames_it_waits(world: World) -> None:
    world.tuning.begin("test")
    for _ in range(100):
        world.step_search()
    assert world.tuning.trials == 0
    assert world.tuning.state is State.TUNING


def test_a_trial_takes_the_warm_up_and_one_window(world: World) -> None:
    world.tuning.begin("test")
    world.serve(WARM_UP + FRAMES - 1)
    assert world.tuning.trials == 0
    world.serve(1)
    assert world.tuning.trials == 1


def test_frames_of_another_epoch_count_for_nothing(world: World) -> None:
    world.tuning.begin("test")
    world.step_search()
    for _ in range(MAX_FRAMES):
        world.tuning.frame_done(world.epoch - 1, 0, 9.0)
    assert world.tuning.trials == 0


def test_a_plan_that_cannot_go_live_is_a_trial_that_lost(tmp_path: Path) -> None:
    world = World(tmp_path, refuse=lambda plan: plan == Plan.of([(0, 4, "fast"), (5, 7, "slow")]))
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    assert "cannot_run" in world.verdicts
    lost = next(trial for trial in world.events("trial") if trial["verdict"] == "cannot_run")
    assert lost["trouble"] == "dropped: a worker died"
    assert lost["throughput_fps"] is None


def test_a_plan_that_is_dropped_once_is_tried_again(tmp_path: Path) -> None:
    refusals = [True]
    world = World(tmp_path, refuse=lambda plan: bool(refusals and refusals.pop()))
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    assert "cannot_run" not in world.verdicts
    assert world.plan == Plan.of([(0, 5, "fast"), (6, 7, "slow")])


def test_pausing_leaves_the_best_plan_live(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until_true(lambda: world.tuning.trials == 3)
    best = world.tuning.run.best
    assert best is not None
    world.tuning.pause("test", keep_best=True)
    assert world.plan == best[0]
    world.serve(500)
    assert world.tuning.state is State.PAUSED
    assert world.plan == best[0]


def test_a_clients_plan_stays_while_paused(world: World) -> None:
    world.tuning.begin("test")
    world.serve(100)
    world.tuning.pause("a client sets the plan", keep_best=False)
    world.go_live(SEED)
    world.serve(500)
    assert world.plan == SEED


def test_while_nothing_changes_it_only_watches(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    trials = world.tuning.trials
    world.serve(50 * FRAMES)
    assert world.tuning.state is State.WATCHING
    assert world.tuning.trials == trials
    assert world.events("drift") == []


def test_a_place_that_slows_down_makes_it_tune_again(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    world.serve(5 * FRAMES)
    world.layer_s["fast"] *= 3
    frames = world.serve_until_true(lambda: bool(world.events("drift")))
    assert frames <= (WINDOWS_TO_LEAVE + 2) * MAX_FRAMES
    world.serve_until(State.WATCHING)
    assert world.plan == Plan.of([(0, 3, "fast"), (4, 7, "slow")])


def test_one_bad_window_is_not_a_drift(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    world.serve(5 * FRAMES)
    world.layer_s["slow"] *= 2
    world.serve(FRAMES)
    world.layer_s["slow"] /= 2
    world.serve(20 * MAX_FRAMES)
    assert world.events("drift") == []


def test_a_place_that_was_emptied_may_be_given_layers_again(world: World) -> None:
    world.layer_s["slow"] = 1.0
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    assert world.plan == Plan.of([(0, 7, "fast")])
    world.layer_s["slow"] = 0.001
    world.tuning.machine_changed("the speed of slow is 1 now")
    world.serve_until(State.WATCHING)
    assert world.plan.places == ("fast", "slow")


def test_a_known_change_makes_it_tune_again_at_once(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until(State.WATCHING)
    world.tuning.machine_changed("the speed of fast is 0.5 now")
    assert world.tuning.run.number == 2
    world.tuning.pause("test", keep_best=True)
    world.tuning.machine_changed("again")
    assert world.tuning.state is State.PAUSED


def test_what_an_old_run_says_is_ignored(world: World) -> None:
    world.tuning.begin("test")
    old = world.tuning.run.number
    world.tuning.begin("again")
    world.sent.clear()
    world.tuning.said(tm.Finished(old, tm.stages_of(SEED), "late", "feasible"))
    assert world.tuning.state is State.TUNING


@pytest.mark.parametrize(
    ("before_s", "now_s", "stage"),
    [
        ((1.0, 2.0), (1.0, 2.0), None),
        ((1.0, 2.0), (1.0, 2.05), None),
        ((1.0, 2.0), (1.0, 2.3), 1),
        ((1.0, 2.0), (1.5, 2.0), 0),
        ((1.0, 2.0), (0.5, 2.0), 0),
        ((1.0, 2.0), (1.3, 3.0), 1),
    ],
)
def test_the_stage_that_left_its_band(before_s: tuple[float, ...], now_s: tuple[float, ...], stage: int | None) -> None:
    assert leaving_stage(Measurement(before_s, 0.01, 32, 1.0), Measurement(now_s, 0.01, 32, 1.0)) == stage


class TestPlansThatWaitForTheirTurn:
    """Proposals go live in their order, so one may be live later than the search that begins meanwhile."""

    @pytest.mark.parametrize("meanwhile", ["paused and resumed", "another speed"])
    def test_a_search_does_not_stand_still(self, world: World, meanwhile: str) -> None:
        world.tuning.begin("test")
        world.serve_until_true(lambda: world.tuning.trials == 3)
        waiting: list[tuple[Plan, Callable[[Settled], None]]] = []
        at_once, world.tuning._propose = world.tuning._propose, lambda plan, settled: waiting.append((plan, settled))
        world.serve_until_true(lambda: bool(waiting))
        if meanwhile == "another speed":
            world.tuning.machine_changed("the speed of slow is 0.5 now")
        else:
            world.tuning.pause("test", keep_best=True)
            world.tuning.begin("test")
        world.serve(2)  # the new search measures what is live still
        world.tuning._propose = at_once
        for plan, settled in waiting:
            at_once(plan, settled)
        world.serve_until(State.WATCHING)
        assert world.events("tuning_began")[-1]["reason"] == "another plan has gone live"


def test_a_search_that_lost_its_process_goes_on_from_its_best_plan(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until_true(lambda: world.tuning.trials == 3)
    best = world.tuning.run.best
    assert best is not None
    world.search = None
    world.tuning.tuner_died("killed")
    assert world.events("tuning_began")[-1]["plan"] == str(best[0])
    world.serve_until(State.WATCHING)
    runs = world.tuning.run.number
    world.tuning.tuner_died("killed")  # nothing was lost
    assert (world.tuning.state, world.tuning.run.number) == (State.WATCHING, runs)


def test_moves_are_those_that_were_measured(world: World) -> None:
    world.tuning.begin("test")
    world.serve_until_true(lambda: world.tuning.trials == 3)
    world.step_search()
    world.tuning.pause("in the middle of the third move", keep_best=True)
    assert world.tuning.moves == 2


def test_a_place_that_the_best_plan_leaves_out_may_be_given_layers_after_a_restart(world: World) -> None:
    only_fast = Plan.of([(0, 7, "fast")])
    world.go_live(only_fast)
    world.tuning.resume_watching(BestPlan(only_fast, Measurement((8e-3,), 0.01, 32, 1.0), ("fast", "slow")))
    assert world.events("tuning_resumed")[0]["plan"] == str(only_fast)
    world.tuning.begin("test")
    began = [message for message in world.sent if isinstance(message, tm.Begin)][-1]
    assert began.order == ("fast", "slow")


def test_without_a_path_no_best_plan_is_kept() -> None:
    plans = BestPlans(None, "model", Machine("m", "m", (), ()))
    plans.save(BestPlan(SEED, Measurement((1.0, 2.0), 0.01, 32, 1.0), SEED.places))
    assert plans.load() is None


def test_best_plans_are_those_of_the_speeds_that_they_were_measured_at(tmp_path: Path) -> None:
    place = Place("fast", (0,), core_count=1, threads=1, speed=0.5, rank=1, memory="ram")
    machine = Machine("m", "m", (Memory("ram", None),), (place,))
    plans = BestPlans(tmp_path / "plans.sqlite", "model", machine)
    plans.save(BestPlan(SEED, Measurement((1.0, 2.0), 0.01, 32, 1.0), SEED.places))
    plans.machine = machine.with_speed("fast", 0.1)
    assert plans.load() is None
    plans.machine = machine
    assert plans.load() is not None
