"""Plans compared live, in virtual time: what wins, what it takes, and what may come in between."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.awaited_load import Pauses
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.candidates import candidates
from shisha_rt.core.tuning.cores import CoreEvent
from shisha_rt.core.tuning.duel import Duel, Verdict
from shisha_rt.core.tuning.profiler_messages import EnginesCompared, NotProfiled
from shisha_rt.core.tuning.profiling_turn import PROFILER_WAITS_S
from shisha_rt.core.tuning.state import WAITING, State
from shisha_rt.core.tuning.telling import description
from shisha_rt.costs.engine_trials import BatchTime, EnginesTried, EngineTime, EngineTrial
from shisha_rt.plan.engine import STAGE_ENGINES, is_exact
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.rate import AnyObjective
from tests.core.tuning.contest_world import NAMES, TRIED, World, copies, team, whole
from tests.core.tuning.load_world import poisson


def truth(**seconds: float) -> Callable[[Stage], float]:
    """Seconds of a frame by engine and size of a team: `openvino_1`, `onnxruntime_spin_2`."""

    def of(stage: Stage) -> float:
        return seconds.get(f"{stage.engine.replace('-', '_')}_{len(stage.teams[0])}", 0.01)

    return of


def unprofiled(world: World) -> World:
    """What layers cost is never known."""
    world.post(ev.ProfilerSaid(NotProfiled("it cannot be")))
    return world


# Frames as slow as a comparison's shortest windows allow: what they cost here is by the frame.
OPENVINO_FASTER = truth(onnxruntime_1=0.030, openvino_1=0.018, onnxruntime_2=0.021, openvino_2=0.012)
SPINNING_FASTER = truth(
    onnxruntime_1=0.010, openvino_1=0.011, onnxruntime_2=0.009, openvino_2=0.007, onnxruntime_spin_2=0.005
)


def test_the_faster_engine_serves_after_some_seconds_and_is_kept() -> None:
    world = World(OPENVINO_FASTER)
    assert world.plan == copies()
    world.serve(30, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")
    assert world.now_s < 20
    assert [keep.best.plan for keep in world.kept] == [copies("openvino")]
    assert world.kept[0].best.measurement.service_s == pytest.approx((0.018,), rel=0.05)
    (won,) = [record for record in world.events("plans_compared") if record["verdict"] == "better"]
    assert (won["name"], won["against"]) == ("openvino, 2 copies", "onnxruntime, 2 copies")
    assert won["ratio"] == pytest.approx(10 / 6, rel=0.05)
    assert won["seconds"] == pytest.approx(0.009, rel=0.05)
    world.serve(5)
    assert (world.failed, world.plan) == (0, copies("openvino"))


def test_one_frame_at_a_time_is_the_load_of_latency() -> None:
    world = World(SPINNING_FASTER, objective="latency")
    world.serve(60, in_flight=1, until=lambda: world.state is State.WATCHING)
    assert world.plan == team("onnxruntime-spin")
    assert world.kept[0].best.measurement.alone_s == pytest.approx(0.005, rel=0.05)


def test_what_is_as_good_does_not_replace_what_serves() -> None:
    for seed in range(4):
        world = World(truth(onnxruntime_2=0.02, openvino_2=0.02), noise=0.03, seed=seed)
        world.serve(60, until=lambda: world.state is State.WATCHING)  # noqa: B023 (it is called at once)
        assert world.plan == copies()
        assert {record["verdict"] for record in world.events("plans_compared")} == {"not_better"}


def test_each_objective_waits_for_its_load() -> None:
    """A client that sends one frame at a time says nothing of throughput; both are found as they come."""
    world = World(
        truth(openvino_1=0.006, openvino_2=0.008, onnxruntime_2=0.007, onnxruntime_spin_2=0.004), objective="auto"
    )
    world.serve(60, in_flight=1, until=lambda: len(world.kept) == 1)
    assert (world.plan, world.state) == (team("onnxruntime-spin"), State.COMPARING)
    assert world.tuning.wants_load == "throughput"
    world.serve(60, in_flight=8, until=lambda: len(world.kept) == 2)
    assert (world.plan, world.state) == (copies("openvino"), State.WATCHING)
    assert world.tuning.wants_load is None


@pytest.mark.parametrize("seed", range(3))
def test_frames_that_come_at_random_are_no_backlog(seed: int) -> None:
    """At 60% of what the team can do some always meet, but no window of the copies would have any that wait."""
    world = unprofiled(World(SPINNING_FASTER, objective="auto"))
    world.serve(60, in_flight=1, until=lambda: len(world.kept) == 1)
    assert world.plan == team("onnxruntime-spin")
    began = len(world.events("comparison_began"))
    at_random(world, 0.6 / 0.005, 120, seed)
    assert len(world.events("comparison_began")) <= began + 1


@pytest.mark.parametrize("seed", range(3))
def test_frames_that_come_at_random_tell_of_latency_while_copies_are_busy_half_of_the_time(seed: int) -> None:
    """Only a tenth of them meets no other."""
    world = unprofiled(World(SPINNING_FASTER, objective="auto"))
    at_random(world, 90, 60, seed)
    assert world.plan == team("onnxruntime-spin")
    assert "no_load" not in {record["verdict"] for record in world.events("plans_compared")}


def at_random(world: World, rate: float, seconds: float, seed: int) -> None:
    since_s = world.now_s
    for at_s in itertools.takewhile(lambda at_s: at_s < seconds, poisson(lambda _: rate, seed)):
        while world.now_s < since_s + at_s:
            world.step(since_s + at_s)
        world.send()


def test_a_burst_after_a_pause_is_no_backlog() -> None:
    world = unprofiled(World(OPENVINO_FASTER))
    world.serve(3, in_flight=1)
    for _ in range(10):
        world.serve(60, in_flight=0)
        for _ in range(12):
            world.send()
    assert world.answered > 100
    assert not world.events("comparison_began")


def test_without_frames_nothing_is_tried() -> None:
    world = unprofiled(World(OPENVINO_FASTER))
    world.serve(30, in_flight=0)
    assert (world.lives, world.state) == ([copies()], State.COMPARING)
    assert world.tuning.doing(world.now_s) == WAITING
    assert world.tuning.wants_load == "throughput"


def test_without_the_load_the_search_begins_in_the_end() -> None:
    world = unprofiled(World(OPENVINO_FASTER))
    world.serve(60, in_flight=2, until=lambda: world.state is not State.COMPARING)  # each team has a frame, none waits
    assert (world.state, world.lives) == (State.NO_COSTS, [copies()])
    assert 5 <= world.now_s < 10
    world.serve(60, in_flight=6, until=lambda: world.state is State.WATCHING)  # and later it comes
    assert world.plan == copies("openvino")


@pytest.mark.parametrize("target_s", [0.036, 0.06, 0.15])
def test_frames_that_a_target_keeps_out_are_the_load_of_throughput(target_s: float) -> None:
    """The plan that passes more in time serves in the end, though few frames may wait, or none."""
    world = World(OPENVINO_FASTER, target_s=target_s)
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")
    assert "no_load" not in {record["verdict"] for record in world.events("plans_compared")}
    assert world.refused or target_s > 0.06


def test_a_plan_that_passes_all_that_come_beats_one_under_which_a_target_keeps_some_out() -> None:
    """Of 25 frames a second one plan is in time with 20, the other with all; two are under way at once."""
    duel, now_s, kept_out, outcome = Duel("throughput", 2, 0, 0.0), 0.0, 0, None
    while outcome is None:
        number, now_s = int(25 * now_s + 0.5) + 1, now_s + 1 / 25
        if duel.turn == 0 and number % 5 == 0:
            kept_out += 1
        else:
            outcome = duel.answered(ev.FrameAnswered(duel.turn, 2, kept_out=kept_out), now_s)
        assert now_s < 60
    assert outcome.verdict is Verdict.BETTER
    assert outcome.ratio == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "waits", "verdict"),
    [
        ((0.02, 0.01), (True, False), Verdict.BETTER),
        ((0.01, 0.02), (False, True), Verdict.NOT_BETTER),
        ((0.0104, 0.01), (True, False), Verdict.NO_LOAD),
        ((0.01, 0.02), (True, False), Verdict.NO_LOAD),
        ((0.02, 0.01), (False, False), Verdict.NO_LOAD),
    ],
)
def test_a_plan_that_a_client_cannot_keep_busy_wins_if_it_is_far_ahead(
    seconds: tuple[float, float], waits: tuple[bool, bool], verdict: Verdict
) -> None:
    """Such a client is the load of the slower plan alone; what the faster one does is the least that it can do."""
    duel, now_s, outcome = Duel("throughput", 2, 0, 0.0), 0.0, None
    while outcome is None:
        now_s += seconds[duel.turn]
        outcome = duel.answered(ev.FrameAnswered(duel.turn, 6 if waits[duel.turn] else 2), now_s)
        assert now_s < 60
    assert outcome.verdict is verdict


def test_what_comes_by_chance_decides_nothing_without_the_load() -> None:
    """Of two plans that are alike one is far ahead in a pair of windows, and the other in the next."""
    duel, now_s, outcome, windows = Duel("throughput", 2, 0, 0.0), 0.0, None, 0
    while outcome is None:
        turn, ahead = duel.turn, windows // 2 % 2
        now_s += 0.008 if turn == ahead else 0.01
        outcome = duel.answered(ev.FrameAnswered(turn, 2 if turn == ahead else 6), now_s)
        windows += duel.turn != turn
        assert now_s < 60
    assert outcome.verdict is Verdict.NO_LOAD


def test_plans_are_not_compared_by_single_frames_while_all_meet_others() -> None:
    """Else a challenger that is worse serves on for as long as frames wait."""
    duel, outcome = Duel("latency", 2, 0, 0.0), None
    for number in range(1, 301):
        outcome = duel.answered(ev.FrameAnswered(duel.turn, 6), number / 100)
        if outcome is not None:
            break
    assert outcome is not None
    assert outcome.verdict is Verdict.NO_LOAD
    assert number / 100 < 1.5


def test_frames_that_stop_coming_end_the_comparison_with_what_served() -> None:
    world = World(OPENVINO_FASTER)
    world.serve(30, until=lambda: world.lifecycle.beside is not None)
    world.serve(30, in_flight=0)
    assert (world.plan, world.lifecycle.beside, world.state) == (copies(), None, State.PROFILING)  # a search waits
    assert [record["verdict"] for record in world.events("plans_compared")] == ["no_load"]
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")


def test_what_served_is_watched_once_frames_stop_coming_while_other_models_use_its_places() -> None:
    """The challenger led when they stopped, and its plan was measured from then on, though it had ended."""
    world = unprofiled(World(OPENVINO_FASTER))
    world.post(ev.CrowdSeen(NAMES))
    world.serve(10, until=lambda: world.lifecycle.beside is not None)
    world.serve(30, in_flight=0)
    assert (world.state, world.plan) == (State.WATCHING, copies())
    assert world.lifecycle.live is not None
    assert world.tuning.measuring.epoch == world.lifecycle.live[0]


def test_a_load_that_comes_and_goes_does_not_begin_comparisons_over_and_over() -> None:
    world = World(OPENVINO_FASTER)
    for _ in range(100):  # bursts of less than a second
        world.serve(0.8, in_flight=6)
        world.serve(0.5, in_flight=1)
    assert 1 <= len(world.events("comparison_began")) <= 6
    assert world.lifecycle.beside is None or world.state is State.COMPARING


@pytest.mark.parametrize("objective", ["throughput", "auto"])
def test_a_load_that_comes_for_seconds_at_a_time_is_enough_in_the_end(objective: AnyObjective) -> None:
    """What was judged before the load went away is not judged again; which plan is live meanwhile matters not."""
    world = unprofiled(World(OPENVINO_FASTER, objective=objective, seed=5))
    for _ in range(20):
        world.serve(2.7, in_flight=6)
        world.serve(30, in_flight=0)
    compared = [record for record in world.events("plans_compared") if record["objective"] == "throughput"]
    judged = Counter(record["plan"] for record in compared if record["verdict"] in ("better", "not_better"))
    assert judged == Counter(map(str, (copies("openvino"), team(), team("openvino"))))
    assert [keep.best.plan for keep in world.kept][:1] == [copies("openvino")]
    assert (world.plan, world.lifecycle.beside, world.failed) == (copies("openvino"), None, 0)


def test_a_candidate_that_becomes_known_while_the_load_is_away_is_compared_as_well() -> None:
    world = unprofiled(World(OPENVINO_FASTER))
    world.serve(60, until=lambda: world.lifecycle.beside is not None)
    world.serve(30, in_flight=0)
    assert world.lifecycle.beside is None
    cut = Plan((Stage(((0, 1),), (("core0",),)), Stage(((2, 3),), (("core1",),))))
    world.post(ev.PlannedAhead({"throughput": cut}))
    world.serve(60, until=lambda: bool(world.kept))
    compared = {record["plan"] for record in world.events("plans_compared") if record["verdict"] != "no_load"}
    assert compared == set(map(str, (copies("openvino"), team(), team("openvino"), cut)))


def test_pauses_double_until_a_plan_has_been_judged() -> None:
    pauses, now_s, lasted = Pauses(), 0.0, []
    for went_on in (True, False, False, True, False, *[False] * 9):
        if went_on:
            pauses.shorten("latency")
        pauses.begin("latency", now_s)
        lasted.append(next(s for s in range(5, 1000, 5) if not pauses.is_on("latency", now_s + s)))
        assert not pauses.is_on("throughput", now_s)
        now_s += lasted[-1]
    assert lasted[:5] == [10, 20, 40, 10, 20]
    assert lasted[-1] == lasted[-2] == 600
    pauses.forget()
    assert not pauses.is_on("latency", now_s)


def test_a_load_that_goes_away_leaves_the_best_plan_that_is_known() -> None:
    """Throughput is known, and latency could not be compared to its end: nothing is searched, the winner serves on."""
    world = unprofiled(World(OPENVINO_FASTER, objective="auto"))
    world.serve(60, until=lambda: len(world.kept) == 1)
    world.serve(60, in_flight=1, until=lambda: world.lifecycle.beside is not None)
    world.serve(30, in_flight=0)
    assert (world.plan, world.lifecycle.beside, world.state) == (copies("openvino"), None, State.WATCHING)


def test_a_comparison_gives_way_as_soon_as_frames_come_as_for_the_other_objective() -> None:
    """The plans compared for latency cannot take what comes; that for throughput can, and serves at once."""
    team_is_slow = truth(openvino_1=0.005, onnxruntime_2=0.02, openvino_2=0.02)
    world = unprofiled(World(team_is_slow, objective="auto"))
    world.serve(60, until=lambda: len(world.kept) == 1)
    assert world.plan == copies("openvino")
    world.serve(60, in_flight=1, until=lambda: world.plan == team())
    begun_s = world.now_s
    world.serve(10, in_flight=8, until=lambda: world.tuning.contests.running is None)
    world.serve(10, in_flight=8, until=lambda: world.state is State.WATCHING)
    assert world.now_s - begun_s < 1.5
    assert (world.plan, world.failed) == (copies("openvino"), 0)
    assert not [compared for compared in world.events("plans_compared") if compared["verdict"] == "no_load"]
    world.serve(60, in_flight=1)
    assert world.tuning.switching.plans()["latency"] is not None, "it is compared again when its load comes again"


TEAM_FASTER = truth(openvino_1=0.012, onnxruntime_2=0.006, openvino_2=0.012)


def beside_others(kept: dict[str, BestPlan] | None = None) -> World:
    """A team waits for the core that a neighbour uses; one of the copies does not."""

    def seen(stage: Stage) -> float:
        return 0.02 if world.others_ratio and len(stage.teams[0]) > 1 else TEAM_FASTER(stage)

    world = unprofiled(World(seen, objective="latency", kept=kept))
    return world


def test_plans_compared_beside_a_neighbour_are_compared_again_once_it_is_gone() -> None:
    world = beside_others()
    world.others_ratio = 0.4
    world.serve(40, in_flight=1)
    assert (world.plan, len(world.events("comparison_began"))) == (copies(), 1), "as long as it is there"
    assert world.kept[-1].best.others_ratio == pytest.approx(0.4)
    world.others_ratio = 0.0
    world.serve(30, in_flight=1)
    first, again = world.events("comparison_began")
    assert first["reason"] is None
    assert "40%" in again["reason"]
    assert (world.plan, world.state, world.failed) == (team(), State.WATCHING, 0)
    assert world.kept[-1].best.others_ratio == 0.0
    world.serve(30, in_flight=1)
    assert len(world.events("comparison_began")) == 2


def test_plans_compared_beside_a_neighbour_are_not_compared_again_if_it_is_back_when_frames_come() -> None:
    world = beside_others()
    world.others_ratio = 0.4
    world.serve(40, in_flight=1, until=lambda: world.state is State.WATCHING)
    world.others_ratio = 0.0
    world.serve(20, in_flight=0)
    world.others_ratio = 0.4
    world.serve(20, in_flight=1)
    assert (world.plan, world.state, len(world.events("comparison_began"))) == (copies(), State.WATCHING, 1)
    world.others_ratio = 0.0
    world.serve(30, in_flight=1)
    assert (world.plan, world.state, len(world.events("comparison_began"))) == (team(), State.WATCHING, 2)


@pytest.mark.long
def test_the_start_of_another_program_is_no_reason_to_compare_again() -> None:
    world = unprofiled(World(TEAM_FASTER, objective="latency"))
    world.serve(40, in_flight=1, until=lambda: world.tuning.contests.running is not None)
    world.serve(40, in_flight=1, until=lambda: world.lifecycle.beside is not None)
    world.serve(0.3, in_flight=1)
    world.others_ratio = 0.2
    world.serve(0.3, in_flight=1)
    world.others_ratio = 0.0
    world.serve(200, in_flight=1)
    assert (world.plan, world.state, len(world.events("comparison_began"))) == (team(), State.WATCHING, 1)
    assert 0 < world.kept[-1].best.others_ratio < 0.1


def test_a_plan_that_an_earlier_run_found_beside_a_neighbour_is_compared_again() -> None:
    earlier = beside_others()
    earlier.others_ratio = 0.4
    earlier.serve(60, in_flight=1, until=lambda: bool(earlier.kept))
    world = beside_others(kept={earlier.kept[-1].key: earlier.kept[-1].best})
    world.serve(60, in_flight=1)
    assert (world.plan, world.state, world.failed) == (team(), State.WATCHING, 0)


@pytest.mark.long
def test_a_neighbour_that_comes_back_for_every_comparison_is_not_waited_for_often() -> None:
    world = beside_others()
    for _ in range(40):
        world.others_ratio = 0.4
        world.serve(20, in_flight=1, until=lambda: world.state is State.WATCHING)
        world.others_ratio = 0.0
        world.serve(20, in_flight=0)
        world.serve(6, in_flight=1, until=lambda: world.state is not State.WATCHING)
    assert 3 <= len(world.events("comparison_began")) <= 6
    assert (world.plan, world.failed) == (copies(), 0)


def test_what_cannot_be_built_is_told_and_the_next_is_tried() -> None:
    world = World(OPENVINO_FASTER, refuse=lambda plan: plan == copies("openvino"))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == team("openvino")
    (failed,) = [record for record in world.events("plans_compared") if record["verdict"] == "cannot_run"]
    assert failed["name"] == "openvino, 2 copies"
    assert "the engine raised" in failed["reason"]
    assert world.failed == 0


def test_an_engine_that_computes_otherwise_or_is_far_slower_is_not_tried() -> None:
    default, other = TRIED.engines
    wrong = EnginesTried((default, replace_trial(other, difference=0.5, over_rounding=500.0)))
    slow = EnginesTried((default, replace_trial(other, times=(EngineTime(1, 0.1, 0.1, 9), EngineTime(2, 0.1, 0.1, 9)))))
    for tried in (wrong, slow, EnginesTried((default,))):
        world = World(OPENVINO_FASTER, tried=tried)
        world.serve(60, until=lambda: world.state is State.WATCHING)  # noqa: B023 (it is called at once)
        assert not any(stage.engine == "openvino" for plan in world.lives for stage in plan.stages)


def in_bfloat16(stage: Stage) -> float:
    return 0.005 if stage.engine == "openvino_bf16" else OPENVINO_FASTER(stage)


@pytest.mark.parametrize("permitted", [True, False])
def test_bfloat16_serves_where_it_is_permitted_and_rules_out_nobody_where_it_is_not(permitted: bool) -> None:
    """It was tried in either case, and takes less than a third of the time."""
    default, other = TRIED.engines
    times = (EngineTime(1, 0.005, 0.005, 9), EngineTime(2, 0.004, 0.008, 9))
    coarse = replace_trial(other, engine="openvino_bf16", difference=0.1, over_rounding=100.0, times=times)
    engines = STAGE_ENGINES if permitted else tuple(engine for engine in STAGE_ENGINES if is_exact(engine))
    world = World(in_bfloat16, tried=None, engines=engines)
    world.serve(5)
    world.post(ev.ProfilerSaid(EnginesCompared(EnginesTried((default, other, coarse)))))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino_bf16" if permitted else "openvino")
    (engines_found,) = world.events("engines_found")
    assert ("openvino_bf16" in engines_found["usable"]) is permitted
    assert ("openvino_bf16" in engines_found["left_out"]) is not permitted


def replace_trial(trial: EngineTrial, **fields: object) -> EngineTrial:
    return EngineTrial(**{**{name: getattr(trial, name) for name in trial.__struct_fields__}, **fields})


def in_runs(gain: float) -> EnginesTried:
    """Trials by which runs of several frames take so many times less for each."""
    default, other = TRIED.engines
    return EnginesTried((replace_trial(default, batch_times=(BatchTime(4, 0.01 / gain, 0.01),)), other))


def in_fours(stage: Stage) -> float:
    """Runs of four frames pay most, on ONNX Runtime, which is faster anyway."""
    if stage.engine != "onnxruntime":
        return 0.035
    return 0.03 if stage.batch < 4 else 0.018 if stage.batch < 8 else 0.024


def test_runs_of_several_frames_serve_where_they_are_faster() -> None:
    """As many of them as pay: four here."""
    world = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=40, until=lambda: world.state is State.WATCHING)
    assert str(world.plan) == "core0, core1: 0-3 x4"
    ratios = {record["name"]: record["ratio"] for record in world.events("plans_compared")}
    assert ratios["onnxruntime, 2 copies, batches of 4"] == pytest.approx(1 / 0.6, rel=0.06)
    world.serve(20, in_flight=1)
    assert world.state is State.WATCHING, "runs of one frame take longer for each, and say nothing of a drift"
    assert world.tuning.doing(world.now_s) == State.WATCHING.value, "frames come"
    assert world.failed == 0


@pytest.mark.parametrize(("spare_bytes", "frames"), [(199, []), (499, [1]), (500, [1, 4]), (800, [1, 4, 8])])
def test_runs_of_several_frames_are_tried_on_an_engine_that_there_is_memory_for(
    spare_bytes: int, frames: list[int]
) -> None:
    default, other = TRIED.engines
    runs = (BatchTime(4, 0.005, 0.01, private_bytes=250),)
    tried = EnginesTried((default, replace_trial(other, private_bytes=100, batch_times=runs)))
    choice = World(truth(), tried=tried, most_batch=8).tuning.choice
    choice.spare_bytes = spare_bytes
    tried_live = [candidate.plan for candidate in candidates(choice, NAMES, "throughput")]
    stages = [plan.stages[0] for plan in tried_live if plan.stages[0].engine == "openvino"]
    assert sorted(stage.batch for stage in stages if len(stage.teams) > 1) == frames


def tried_times(part: float) -> EnginesTried:
    """Trials that took this part of the time."""
    return EnginesTried(
        tuple(
            replace_trial(
                trial,
                times=tuple(EngineTime(t.threads, part * t.wall_s, part * t.cpu_s, t.runs) for t in trial.times),
            )
            for trial in TRIED.engines
        )
    )


@pytest.mark.parametrize(("part", "is_tried"), [(0.04, True), (0.09, False)])
def test_short_frames_are_tried_with_a_core_left_to_the_daemon(part: float, is_tried: bool) -> None:
    """Two copies share both cores with the daemon's own work here, which takes as long as a frame."""

    def beside_the_daemon(stage: Stage) -> float:
        return 0.0012 if len(stage.teams) == len(stage.teams[0]) == 1 else 0.003

    world = unprofiled(World(beside_the_daemon, tried=tried_times(part)))
    world.serve(60, in_flight=8, until=lambda: world.state is State.WATCHING)
    alone = "onnxruntime, 1 place"
    assert (alone in {record["name"] for record in world.events("plans_compared")}) is is_tried
    assert (world.plan == whole(("core0",))) is is_tried
    assert world.failed == 0


@pytest.mark.parametrize(("objective", "kind"), [("throughput", ev.PartTaken), ("auto", ev.FrameAnswered)])
def test_what_needs_no_more_frames_is_told_of_few(
    objective: AnyObjective, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is only watched, and load that is awaited: what is told costs time, which short frames would feel."""
    world = unprofiled(World(lambda stage: 0.001, objective=objective))
    world.serve(60, in_flight=4, until=lambda: bool(world.kept))
    heard, handle = Counter[type](), world.cores.handle

    def counted(event: CoreEvent, now_s: float) -> list[Any]:
        heard[type(event)] += 1
        return handle(event, now_s)

    monkeypatch.setattr(world.cores, "handle", counted)
    world.serve(1, in_flight=4)
    assert heard[le.PartDone] > 1800
    assert 0 < heard[kind] < heard[le.PartDone] / 3


def test_plans_with_a_spare_place_are_tried_while_it_is_up() -> None:
    """Beside other models a place that a daemon began without was left out: what was tried had half of the cores."""
    choice = World(OPENVINO_FASTER).tuning.choice
    plans = [candidate.plan for candidate in candidates(choice, NAMES, "throughput")]
    assert copies("openvino") in plans
    choice.machine = replace(choice.machine, spare=frozenset(NAMES[1:]))
    assert [candidate.plan for candidate in candidates(choice, NAMES, "throughput")] == plans
    of_others = [candidate.plan for candidate in candidates(choice, NAMES[:1], "throughput")]
    assert {plan.places for plan in of_others} == {NAMES[:1]}


def test_frames_too_few_for_runs_of_several_still_tell_of_other_plans() -> None:
    """Of four in flight none waits while both copies have two: runs of four are passed over, and those of eight."""
    world = unprofiled(World(OPENVINO_FASTER, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")
    assert {stage.batch for plan in world.lives for stage in plan.stages} == {1, 4}
    assert world.failed == 0


def test_runs_that_were_tried_with_few_frames_are_tried_once_more_with_many() -> None:
    """Each once, and nothing else: not with so few, not a second time, not without pause."""
    world = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    world.serve(20, in_flight=15)
    assert (world.plan, len(world.events("comparison_began"))) == (copies(), 1)
    world.serve(20, in_flight=16)
    assert str(world.plan) == "core0, core1: 0-3 x4"
    assert world.state is State.WATCHING
    world.serve(60, in_flight=40)
    assert [len(record["candidates"]) for record in world.events("comparison_began")[1:]] == [1, 1]
    assert [record["stages"][0]["batch"] for record in world.events("plans_compared")[-2:]] == [4, 8]
    assert str(world.plan) == "core0, core1: 0-3 x4"
    assert (world.failed, world.kept[-1].best.plan) == (0, world.plan)


@pytest.mark.parametrize("is_faster", [True, False])
def test_runs_are_tried_with_many_frames_beside_the_plan_of_an_earlier_run(is_faster: bool) -> None:
    few = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    few.serve(60, in_flight=4, until=lambda: few.state is State.WATCHING)
    kept = {keep.key: keep.best for keep in few.kept}
    took = in_fours if is_faster else lambda stage: 0.03 if stage.batch == 1 else 0.06
    world = World(took, tried=in_runs(1.6), most_batch=8, kept=kept)
    world.serve(20, in_flight=4)
    assert (world.plan, world.state, world.events("comparison_began")) == (copies(), State.WATCHING, [])
    world.serve(60, in_flight=40)
    assert str(world.plan) == ("core0, core1: 0-3 x4" if is_faster else str(copies()))
    assert (world.state, world.failed, world.events("search_began")) == (State.WATCHING, 0, [])
    assert len(world.events("comparison_began")) == 1


def test_many_frames_that_go_away_amid_the_comparison_of_runs_leave_what_served() -> None:
    world = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    world.serve(60, in_flight=40, until=lambda: world.lifecycle.beside is not None)
    world.serve(60, in_flight=1)
    assert (world.plan, world.lifecycle.beside, world.state) == (copies(), None, State.WATCHING)


def test_plans_compared_beside_a_neighbour_are_compared_again_though_a_later_comparison_was_broken_off() -> None:
    world = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.others_ratio = 0.4
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    world.serve(60, in_flight=40, until=lambda: world.lifecycle.beside is not None)
    world.serve(30, in_flight=0)
    assert (world.plan, world.state) == (copies(), State.WATCHING)
    world.others_ratio = 0.0
    world.serve(60, in_flight=4)
    assert "40%" in str(world.events("comparison_began")[-1]["reason"])
    assert world.kept[-1].best.others_ratio == 0.0


@pytest.mark.parametrize(("gain", "target_s"), [(1.0, 1.0), (0.7, 1.0), (1.6, 0.03)])
def test_runs_that_do_not_pay_or_take_too_long_are_not_tried(gain: float, target_s: float) -> None:
    world = unprofiled(World(truth(), tried=in_runs(gain), most_batch=8))
    world.tuning.choice.target_s = target_s
    world.serve(60, in_flight=40, until=lambda: world.state is State.WATCHING)
    assert all(stage.batch == 1 for plan in world.lives for stage in plan.stages)


def test_under_plans_without_runs_of_several_frames_as_few_slots_are_used_as_ever() -> None:
    world = World(truth(), tried=None, most_batch=8)
    world.serve(1, in_flight=100)
    frames = world.lifecycle.frames
    assert frames.slot_count == 8 * 6
    assert max(frame.slot for frame in frames.by_number.values() if frame.slot is not None) < 6


def test_engines_that_are_told_later_are_waited_for() -> None:
    world = World(OPENVINO_FASTER, tried=None)
    world.serve(5)
    assert (world.lives, world.tuning.wants_load) == ([copies()], None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")
    (engines,) = world.events("engines_found")
    assert engines["usable"] == ["onnxruntime", "openvino"]


def test_layers_are_measured_once_plans_have_been_compared() -> None:
    world = World(OPENVINO_FASTER, tried=None)
    world.serve(5)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(60, until=lambda: bool(world.layers_s))
    assert world.events("comparison_ended")
    assert world.plan == copies("openvino")
    world.serve(5)
    assert len(world.layers_s) == 1


def test_layers_are_measured_soon_where_no_frames_come_to_compare_plans_by() -> None:
    world = World(OPENVINO_FASTER, tried=None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    told_s = world.now_s
    world.serve(PROFILER_WAITS_S - 0.5, in_flight=0)
    assert not world.layers_s
    world.serve(1, in_flight=0)
    assert world.layers_s[0] == pytest.approx(told_s + PROFILER_WAITS_S, abs=0.3)


def test_layers_are_not_measured_while_the_tuner_is_paused() -> None:
    """A pause that ends a comparison had them measured next, which is what whoever pauses wants least."""
    world = World(OPENVINO_FASTER, tried=None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(2)
    world.post(ev.PauseAsked("a client has paused it"))
    world.serve(30, in_flight=0)
    assert not world.layers_s
    world.post(ev.SearchAsked("a client has resumed it"))
    world.serve(30, in_flight=0)
    assert len(world.layers_s) == len(world.events("measuring_layers")) == 1


def test_layers_wait_until_the_winner_is_measured_and_the_other_load_may_come() -> None:
    """However long that takes: single frames that come then compare plans at once."""
    world = World(lambda stage: 0.12 if stage.engine == "openvino" else 0.24, objective="auto", tried=None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(120, until=lambda: bool(world.events("comparison_ended")))
    ended_s = world.now_s
    world.serve(60, until=lambda: len(world.kept) == 1)
    assert world.now_s > ended_s + PROFILER_WAITS_S
    world.serve(120, in_flight=1, until=lambda: len(world.kept) == 2)
    assert [record["objective"] for record in world.events("comparison_began")] == ["throughput", "latency"]
    assert not world.layers_s
    world.serve(5, in_flight=0)
    assert len(world.layers_s) == 1


def test_single_frames_compare_nothing_while_layers_are_measured() -> None:
    """A team of two waits for the core that is measured: it looks slower than it is."""
    world = World(SPINNING_FASTER, objective="latency", tried=None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(3, in_flight=0)
    assert world.layers_s
    world.serve(20, in_flight=1)
    assert not world.events("comparison_began")
    world.post(ev.ProfilerSaid(NotProfiled("it cannot be")))
    world.serve(60, in_flight=1, until=lambda: bool(world.events("comparison_ended")))
    assert world.plan == team("onnxruntime-spin")


def test_what_a_plan_takes_while_layers_are_measured_is_no_drift() -> None:
    slow = truth(onnxruntime_1=0.015, openvino_1=0.009, onnxruntime_2=0.011, openvino_2=0.006)
    world = World(OPENVINO_FASTER, tried=None)
    world.post(ev.ProfilerSaid(EnginesCompared(TRIED)))
    world.serve(60, until=lambda: bool(world.layers_s) and world.state is State.WATCHING)
    world.serve(3)
    world.truth = slow
    world.serve(10)
    assert not world.events("drift")
    world.post(ev.ProfilerSaid(NotProfiled("it cannot be")))
    world.serve(20, until=lambda: bool(world.events("drift")))
    assert world.events("drift")


def duelling() -> World:
    world = World(OPENVINO_FASTER)
    world.serve(30, until=lambda: world.lifecycle.beside is not None)
    world.serve(1)
    assert world.lifecycle.beside is not None
    return world


def test_a_clients_plan_ends_the_comparison() -> None:
    world, wanted = duelling(), team()
    world.post(le.PlanProposed(le.Owner.CLIENT, 1, wanted))
    world.serve(5)
    assert (world.plan, world.state, world.lifecycle.beside) == (wanted, State.PAUSED, None)
    assert world.failed == 0


def test_a_pause_leaves_what_led_so_far() -> None:
    world = duelling()
    world.post(ev.PauseAsked("asked"))
    world.serve(5)
    assert (world.plan, world.state, world.lifecycle.beside) == (copies(), State.PAUSED, None)
    world.post(ev.SearchAsked("asked"))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino")


def test_a_pause_while_a_challenger_is_built_does_not_let_it_serve() -> None:
    world = World(OPENVINO_FASTER)
    world.serve(30, until=lambda: bool(world.events("comparison_began")))
    challenger = world.lives[-1]
    world.post(ev.PauseAsked("asked"))
    world.serve(5)
    assert world.lifecycle.beside is None
    assert (world.state, world.plan) == (State.PAUSED, copies()), challenger


def test_a_place_that_is_lost_ends_the_comparison_and_others_are_tried() -> None:
    world = duelling()
    world.post(le.PlaceDown("core1"))
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert world.plan == copies("openvino", names=("core0",))
    world.post(le.PlaceUp("core1"))
    world.post(ev.PlaceReturned("core1"))
    world.serve(60, until=lambda: world.state is State.WATCHING and len(world.plan.places) == 2)
    assert world.plan == copies("openvino")
    assert world.failed == 0


def test_on_many_places_half_size_teams_and_fewer_copies_are_tried_too() -> None:
    names = tuple(f"core{i}" for i in range(8))

    def crowded(stage: Stage) -> float:
        return 0.01 * len(stage.teams) ** 2 / len(stage.teams[0])  # copies get into each other's way

    world = World(crowded, names=names, tried=EnginesTried(TRIED.engines[:1]))
    world.serve(60, in_flight=16, until=lambda: world.state is State.WATCHING)
    (began,) = world.events("comparison_began")
    assert set(began["candidates"]) == {
        "onnxruntime, a team of 8",
        "onnxruntime, 2 teams of 4",
        "onnxruntime, a team of 4",
        "onnxruntime, 4 copies",
    }
    assert world.plan == team(names=names)


def test_status_tells_how_far_it_is() -> None:
    world = duelling()
    comparing = description(world.tuning, world.now_s)["comparing"]
    assert comparing["candidates"] == 4
    assert comparing["tried"] in (1, 2)
    assert comparing["ahead"] in ("onnxruntime, 2 copies", "openvino, 2 copies")
    world.serve(60, until=lambda: world.state is State.WATCHING)
    assert description(world.tuning, world.now_s)["comparing"] is None


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 100))])
def test_whatever_comes_in_between_no_frame_is_lost_and_the_best_serves_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    world = World(OPENVINO_FASTER, seed=seed, noise=rng.choice((0.01, 0.05)))
    seen: Counter[str] = Counter()
    proposals = 0
    for _ in range(12):
        world.serve(rng.random() * 2, in_flight=rng.choice((0, 1, 6, 6, 6)))
        act = rng.choice(("kill", "kill", "down", "up", "client", "restart", "pause", "nothing"))
        place = rng.choice(NAMES)
        seen[act] += 1
        if act == "kill":
            world.kill(place)
        elif act == "down":
            world.post(le.PlaceDown(place))
        elif act == "up" and place not in world.lifecycle.available:
            world.post(le.PlaceUp(place))
            world.post(ev.PlaceReturned(place))
        elif act == "client":
            proposals += 1
            plan: Plan = rng.choice((copies(), team(), copies("openvino"), team("onnxruntime-spin")))
            world.post(le.PlanProposed(le.Owner.CLIENT, proposals, plan))
        elif act == "restart":
            world.post(ev.SearchAsked("asked"))
        elif act == "pause":
            world.post(ev.PauseAsked("asked"))
    for name in NAMES:
        if name not in world.lifecycle.available:
            world.post(le.PlaceUp(name))
            world.post(ev.PlaceReturned(name))
    world.serve(2)
    world.post(ev.SearchAsked("asked"))
    world.serve(120, until=lambda: world.state is State.WATCHING and len(world.plan.places) == 2)
    assert world.plan == copies("openvino"), (world.state, seen)
    world.serve(5, in_flight=0)
    assert world.answered == world.sent
    assert world.failed <= seen["kill"] + seen["down"]


@pytest.mark.parametrize("in_flight", [16, 40])
@pytest.mark.parametrize("runs", [True, False])
def test_plans_with_batches_that_lose_or_cannot_run_are_tried_once(in_flight: int, runs: bool) -> None:
    world = unprofiled(
        World(
            lambda stage: 0.06 if stage.batch == 1 else 0.12,
            tried=in_runs(1.6),
            most_batch=8,
            refuse=lambda plan: not runs and plan.stages[0].batch > 1,
        )
    )
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)
    world.serve(50, in_flight=in_flight)
    assert (world.plan, world.state, world.failed) == (copies(), State.WATCHING, 0)
    assert len(world.events("comparison_began")) <= 3


def test_what_was_better_before_the_load_went_away_is_found_again() -> None:
    world = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    world.serve(60, in_flight=4, until=lambda: world.state is State.WATCHING)

    def won() -> int:
        return sum(record["verdict"] == "better" for record in world.events("plans_compared"))

    before = won()
    world.serve(60, in_flight=40, until=lambda: won() > before)
    world.serve(60, in_flight=0)
    assert world.lifecycle.beside is None
    world.serve(60, in_flight=40)
    assert str(world.plan) == "core0, core1: 0-3 x4"
    assert (world.state, world.failed) == (State.WATCHING, 0)


def test_a_comparison_of_batches_begins_no_search_where_the_other_load_never_comes() -> None:
    few = unprofiled(World(in_fours, tried=in_runs(1.6), most_batch=8))
    few.serve(60, in_flight=4, until=lambda: few.state is State.WATCHING)
    world = World(in_fours, objective="auto", tried=in_runs(1.6), most_batch=8, kept={k.key: k.best for k in few.kept})
    world.serve(50, in_flight=40)
    assert str(world.plan) == "core0, core1: 0-3 x4"
    assert world.state is State.WATCHING


def test_a_worker_that_dies_amid_a_window_does_not_decide_a_comparison() -> None:
    """The challenger is half as fast until it is back."""
    world, starting = World(OPENVINO_FASTER), list[le.WorkerReady]()
    carry_out, challenger = world._carry_out, copies("openvino")

    def slowly(instruction: Any) -> list[CoreEvent]:
        if isinstance(instruction, do.Start):
            starting.append(le.WorkerReady(instruction.incarnation))
            return []
        return carry_out(instruction)

    world._carry_out = slowly  # type: ignore[method-assign]
    while not world.events("plans_compared"):
        world.serve(5, until=lambda: world.plan == challenger)
        world.kill("core0")
        world.serve(1.0, until=lambda: world.plan != challenger)
        while starting:
            world.post(starting.pop())
        world.serve(5, until=lambda: world.plan != challenger)
    assert world.events("plans_compared")[0]["verdict"] == "better"
