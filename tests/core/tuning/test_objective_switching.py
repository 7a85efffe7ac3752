"""The objective follows the load, in a daemon with real cores (`tuned_world`): what goes live, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.best import BestPlan, key_of
from shisha_rt.core.tuning.state import State
from shisha_rt.core.tuning.telling import description
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from tests.core.tuning.invariants import check_cores
from tests.core.tuning.tuned_world import BEST, MACHINE, ONLY_FAST, SEED, World

QUICK = BestPlan(ONLY_FAST, Measurement((0.008,), 0.01, 32, 1.0), ("fast", "slow"))
MOST = BestPlan(BEST, Measurement((0.006, 0.006), 0.01, 32, 1.0), ("fast", "slow"))
KEPT = {
    key_of(MACHINE, "throughput, plain chains"): MOST,
    key_of(MACHINE, "latency, plain chains"): QUICK,
}


def busy(world: World, looks: int = 4) -> None:
    world.look(looks, frames_per_s=160, in_flight=20)


def calm(world: World, looks: int = 10) -> None:
    world.look(looks, frames_per_s=20, in_flight=1)


def described(world: World) -> dict[str, Any]:
    check_cores(world.cores)
    return description(world.tuning, world.now_s)


@pytest.fixture
def world() -> World:
    """It knows both plans from an earlier run, and nothing has come yet."""
    return World(KEPT, objective="auto")


def test_a_start_with_both_plans_known_is_with_the_quick_one(world: World) -> None:
    assert (world.plan, world.tuning.state) == (ONLY_FAST, State.WATCHING)
    assert [described(world)[name] for name in ("objective", "serves", "utilisation")] == ["auto", "latency", None]
    assert described(world)["plans"]["throughput"] == {
        "plan": str(BEST),
        "throughput_fps": 1 / 0.006,
        "latency_s": 0.012,
    }
    busy(world, looks=1)
    assert world.plan == ONLY_FAST


def test_a_start_that_knows_one_of_them_is_with_the_one_for_throughput() -> None:
    for kept in ({}, {key: best for key, best in KEPT.items() if best is QUICK}):
        world = World(kept, objective="auto")
        assert (world.plan, world.tuning.state, described(world)["serves"]) == (SEED, State.TUNING, "throughput")


def test_the_plan_changes_with_the_load_and_nothing_is_measured_for_it(world: World) -> None:
    busy(world)
    assert (world.plan, world.tuning.state, described(world)["serves"]) == (BEST, State.WATCHING, "throughput")
    assert described(world)["best_plan"] == str(BEST) == str(world.tuning.watched)
    assert world.tuning.drift.baseline.measured == MOST.measurement
    calm(world)
    assert (world.plan, world.tuning.state, described(world)["serves"]) == (ONLY_FAST, State.WATCHING, "latency")
    busy(world)
    assert world.plan == BEST
    changes = world.events("objective_changed")
    assert [change["objective"] for change in changes] == ["throughput", "latency", "throughput"]
    assert [change["plan"] for change in changes] == [str(BEST), str(ONLY_FAST), str(BEST)]
    assert changes[0]["utilisation"] > 0.7
    assert "(from 70%) and frames wait" in changes[0]["reason"]
    assert "< 50%" in changes[1]["reason"]
    assert (world.tuning.searches.trials, world.kept, world.events("tuning_began")) == (0, [], [])


def test_the_plan_that_the_load_leaves_is_kept_as_long_as_memory_is_free(world: World) -> None:
    def epochs() -> list[int | None]:
        live, beside = world.lifecycle.live, world.lifecycle.beside
        return [known and known[0] for known in (live, beside)]

    assert epochs() == [1, None]
    world.post(ev.HostSeen(0.0, free_ratio=0.5))
    busy(world)
    assert epochs() == [2, 1]
    for load, led in ((calm, [1, 2]), (busy, [2, 1])):
        load(world)
        assert epochs() == led, "nothing is built again"
    assert [change["plan"] for change in world.events("objective_changed")] == [str(BEST), str(ONLY_FAST), str(BEST)]
    assert described(world)["best_plan"] == str(BEST) == str(world.tuning.watched)
    world.post(ev.HostSeen(0.0, free_ratio=0.25))
    assert epochs() == [2, 1]
    world.post(ev.HostSeen(0.0, free_ratio=0.24))
    assert epochs() == [2, None]
    calm(world)
    assert (world.plan, epochs()) == (ONLY_FAST, [3, None])


def test_a_kept_plan_is_let_go_when_a_user_sets_the_objective(world: World) -> None:
    world.post(ev.HostSeen(0.0, free_ratio=0.9))
    busy(world)
    kept = [world.lifecycle.beside]
    world.post(ev.OptionsSet(objective="throughput"))
    world.post(ev.HostSeen(0.0, free_ratio=0.9))
    kept.append(world.lifecycle.beside)
    assert (world.plan, kept) == (BEST, [(1, ONLY_FAST), None])


def test_the_other_plan_is_loaded_ahead_once_frames_have_come_for_a_while(world: World) -> None:
    world.post(ev.HostSeen(0.0, free_ratio=0.5))
    calm(world, looks=11)
    assert world.lifecycle.beside is None
    calm(world, looks=2)
    assert (world.plan, world.tuning.state) == (ONLY_FAST, State.WATCHING)
    assert world.lifecycle.beside == (2, BEST)
    assert [(live["epoch"], live["plan"]) for live in world.events("plan_live")] == [(1, str(ONLY_FAST))]
    world.post(ev.HostSeen(0.0, free_ratio=0.2))
    world.post(ev.HostSeen(0.0, free_ratio=0.9))
    calm(world, looks=20)
    assert world.lifecycle.beside is None, "not again, as memory has run short"


def test_with_a_target_most_frames_within_it_count_whatever_the_load_is(world: World) -> None:
    world.tuning.choice.target_s = 0.1
    for load in (calm, busy, calm):
        load(world)
        assert (world.plan, described(world)["serves"]) == (BEST, "throughput")
    world.tuning.choice.target_s = 0.011  # the plan for throughput takes 12 ms for a frame by itself
    for load in (calm, busy):
        load(world)
        assert (world.plan, described(world)["serves"]) == (ONLY_FAST, "latency")


def test_with_a_target_the_same_plan_for_both_is_not_changed() -> None:
    world = World(dict.fromkeys(KEPT, QUICK), objective="auto")
    world.tuning.choice.target_s = 0.1
    calm(world)
    busy(world)
    assert (world.plan, world.events("objective_changed")) == (ONLY_FAST, [])


def test_with_a_target_nothing_is_searched_for_without_frames() -> None:
    world = World({key: best for key, best in KEPT.items() if best is QUICK}, objective="latency")
    world.serve_until(State.WATCHING)
    world.tuning.choice.auto, world.tuning.choice.target_s = True, 0.1
    world.look(10, frames_per_s=0, in_flight=0)
    assert world.tuning.state is State.WATCHING
    busy(world)
    assert world.events("objective_changed")[-1]["objective"] == "throughput", "its plan is searched for as frames come"


def test_it_is_watched_on(world: World) -> None:
    """A drift is found in either plan, and searched upon for the objective that serves."""
    busy(world)
    world.layer_s["slow"] = 0.006
    world.serve_until(State.TUNING)
    (began,) = world.events("tuning_began")
    assert (began["objective"], began["plan"]) == ("throughput", str(BEST))
    calm(world)  # what is live is the search's business
    assert world.events("objective_changed")[1:] == []
    world.serve_until(State.WATCHING)
    calm(world)
    assert (world.plan, described(world)["serves"]) == (ONLY_FAST, "latency")


def test_what_is_not_known_is_searched_for_when_the_load_asks_for_it_and_frames_come() -> None:
    world = World(objective="auto")
    world.layer_s["slow"] = 0.0034  # so that its walk for throughput meets a plan that is quicker
    world.serve_until(State.WATCHING)
    assert (world.plan, described(world)["serves"]) == (BEST, "throughput")
    world.look(40, frames_per_s=0, in_flight=0)
    assert world.tuning.state is State.WATCHING
    busy(world, looks=40)
    assert world.tuning.state is State.WATCHING
    calm(world)
    assert (world.tuning.state, described(world)["serves"]) == (State.TUNING, "latency")
    world.serve_until(State.WATCHING)
    began = world.events("tuning_began")
    assert [event["objective"] for event in began] == ["throughput", "latency"]
    assert "< 50%" in began[1]["reason"]
    quick = world.plan
    assert quick.stages[0].layer_count > BEST.stages[0].layer_count
    assert set(described(world)["plans"]) == {"throughput", "latency"}

    def search(kind: str) -> list[tuple[int, str | None, int]]:
        return [(event["run"], event["plan"], event["trials"]) for event in world.events(kind)]

    def reported() -> tuple[int, str | None, int]:
        """The search that `status` reports: its number, what it has found, and how many plans it has measured."""
        tuner = described(world)
        return tuner["run"], tuner["best_plan"], tuner["trials"]

    ended = search("tuning_ended")
    assert reported() == ended[1]
    busy(world)
    assert (world.plan, reported()) == (BEST, ended[0])
    calm(world)
    assert (world.plan, reported()) == (quick, ended[1])


def test_a_search_for_latency_gives_way_to_many_frames_and_is_begun_again_later() -> None:
    world = World(objective="auto")
    world.layer_s["slow"] = 0.0034
    world.serve_until(State.WATCHING)
    calm(world)
    assert (world.tuning.state, world.tuning.search.objective) == (State.TUNING, "latency")
    busy(world, looks=6)
    assert (world.plan, world.tuning.state, described(world)["serves"]) == (BEST, State.WATCHING, "throughput")
    calm(world, looks=12)
    assert world.tuning.state is State.WATCHING, "not again at once"
    calm(world, looks=40)
    assert (world.tuning.state, described(world)["serves"]) == (State.TUNING, "latency")
    world.serve_until(State.WATCHING)
    assert [began["objective"] for began in world.events("tuning_began")] == ["throughput", "latency", "latency"]
    assert len(world.events("tuning_ended")) == 2


def test_the_same_plan_for_both_is_not_changed() -> None:
    same = {key: replace(QUICK, measurement=best.measurement) for key, best in KEPT.items()}
    world = World(same, objective="auto")
    busy(world, looks=20)
    assert (world.plan, world.events("objective_changed"), len(world.ends)) == (ONLY_FAST, [], 1)


@pytest.mark.parametrize("band", [0.01, 0.6])
def test_a_plan_that_is_worse_at_both_never_serves_unless_noise_may_have_made_it_so(band: float) -> None:
    slow = replace(MOST, measurement=Measurement((0.009, 0.009), band, 32, 1.0))
    world = World({**KEPT, key_of(MACHINE, "throughput, plain chains"): slow}, objective="auto")
    busy(world, looks=20)
    assert (world.plan == BEST) is (band == 0.6)


def test_a_plan_measured_beside_other_programs_is_not_taken_for_worse_at_both() -> None:
    slow = replace(MOST, measurement=Measurement((0.009, 0.009), 0.01, 32, 1.0), others_ratio=0.4)
    world = World({**KEPT, key_of(MACHINE, "throughput, plain chains"): slow}, objective="auto")
    busy(world, looks=20)
    assert world.plan == BEST


def test_what_the_plan_takes_now_counts_and_not_what_it_took_once() -> None:
    """Half as much as it was known to take: not enough for a drift, as the band is wide, and half of the load."""
    kept = {key: replace(best, measurement=replace(best.measurement, band=2.0)) for key, best in KEPT.items()}
    for layer_s, plan in ((0.001, BEST), (0.0005, ONLY_FAST)):
        world = World(kept, objective="auto")
        world.layer_s["fast"] = layer_s
        world.serve(300)
        world.look(8, frames_per_s=110, in_flight=20)
        assert world.plan == plan


def test_on_a_host_that_has_become_quicker_the_other_plan_is_quicker_too() -> None:
    """Both were chosen while it was busy. By what the other took then, it would not pay yet."""
    kept = {key: replace(best, measurement=replace(best.measurement, band=2.0)) for key, best in KEPT.items()}
    world = World(kept, objective="auto")
    world.layer_s |= {name: seconds / 2 for name, seconds in world.layer_s.items()}
    world.serve(300)
    world.look(8, frames_per_s=190, in_flight=20)
    assert world.plan == BEST


def test_a_clients_plan_stays(world: World) -> None:
    world.propose(SEED, le.Owner.CLIENT)
    busy(world, looks=20)
    assert (world.plan, world.tuning.state) == (SEED, State.PAUSED)


def test_a_clients_plan_stays_that_comes_while_the_other_is_prepared(world: World) -> None:
    world.holds = True
    busy(world)
    assert world.held
    world.propose(SEED, le.Owner.CLIENT)
    world.release()
    busy(world, looks=20)
    assert (world.plan, world.tuning.state) == (SEED, State.PAUSED)


def test_paused_it_changes_nothing(world: World) -> None:
    world.post(ev.PauseAsked("test"))
    busy(world, looks=20)
    assert world.plan == ONLY_FAST


def test_a_pause_while_the_other_plan_is_prepared(world: World) -> None:
    world.holds = True
    busy(world)
    world.post(ev.PauseAsked("test"))
    world.release()
    check_cores(world.cores)
    assert world.tuning.state is State.PAUSED
    world.post(ev.SearchAsked("test"))
    world.serve_until(State.WATCHING)
    check_cores(world.cores)


def test_an_objective_that_is_set_stays_whatever_comes(world: World) -> None:
    world.post(ev.OptionsSet(objective="latency"))
    busy(world, looks=20)
    assert (world.plan, world.events("objective_changed")) == (ONLY_FAST, [])
    assert [described(world)[name] for name in ("objective", "serves", "utilisation")] == ["latency", "latency", None]
    world.post(ev.OptionsSet(objective="auto"))
    busy(world)
    assert world.plan == BEST


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_an_objective_that_is_set_while_the_other_plan_is_prepared(world: World, objective: Any) -> None:
    world.holds = True
    busy(world)
    world.post(ev.OptionsSet(objective=objective))
    world.release()
    world.serve_until(State.WATCHING)
    assert described(world)["objective"] == described(world)["serves"] == objective
    assert (world.plan == BEST) is (objective == "throughput")


def test_a_plan_that_cannot_go_live_is_left_alone_for_a_while() -> None:
    world = World(KEPT, refuse=lambda plan: plan == BEST, objective="auto")
    busy(world, looks=40)
    assert (world.plan, world.tuning.state) == (ONLY_FAST, State.WATCHING)
    assert len(world.ends) == 2
    busy(world, looks=300)
    assert 2 < len(world.ends) < 6
    check_cores(world.cores)


def test_without_a_place_the_plans_of_those_that_are_left_count(world: World) -> None:
    world.post(le.PlaceDown("slow"))
    busy(world, looks=20)
    world.serve_until(State.WATCHING)
    busy(world, looks=20)
    assert world.plan == ONLY_FAST
    world.post(le.PlaceUp("slow"))
    world.post(ev.PlaceReturned("slow"))
    world.serve_until(State.WATCHING)
    busy(world)
    assert (world.plan, described(world)["serves"]) == (BEST, "throughput")


def test_a_machine_that_has_changed_is_searched_before_the_load_is_followed(world: World) -> None:
    world.layer_s["fast"] = 0.002
    world.post(ev.MachineChanged(MACHINE.with_speed("fast", 0.25), "test"))
    assert world.tuning.state is State.TUNING
    busy(world, looks=20)
    world.serve_until(State.WATCHING)
    check_cores(world.cores)
    assert isinstance(world.plan, Plan)
