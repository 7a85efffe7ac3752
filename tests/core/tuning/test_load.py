"""Which plan the load wants, in a daemon of two plans in virtual time: soon, without flutter, and never far from the
better of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.core.tuning.load import Load, PlanTimes, busy_from
from shisha_rt.plan.rate import OBJECTIVES, Objective
from tests.core.tuning.load_world import LOOK_S, Arrivals, LoadWorld, Servers, bursts, camera, of_places, poisson

SMALL_S, LARGE_S = 0.0035, 0.3
TWO = of_places(SMALL_S, 2, 1.1)
EIGHT = of_places(SMALL_S, 8, 1.25)


def steady(load: float, frame_s: float = SMALL_S) -> Arrivals:
    return poisson(lambda _: load / frame_s)


def a_day(
    arrivals: Callable[[], Arrivals], plans: dict[Objective, Servers], seconds: float
) -> dict[Objective | None, LoadWorld]:
    """The same frames with either plan fixed, and (None) with the one that the load wants."""
    worlds = {}
    for fixed in (*OBJECTIVES, None):
        worlds[fixed] = LoadWorld(plans, fixed)
        worlds[fixed].run(seconds, arrivals())
    return worlds


@pytest.mark.parametrize("utilisation", [0.05, 0.3, 0.5, 0.6, 0.75, 0.9, 1.2])
def test_no_load_is_served_much_slower_than_by_the_better_plan(utilisation: float) -> None:
    days = a_day(lambda: steady(utilisation), TWO, 40.0)
    auto, better_s = days[None], min(days[objective].mean_s() for objective in OBJECTIVES)
    assert len(auto.changes) <= 1
    assert auto.mean_s(since_s=3.0) <= 1.1 * better_s
    assert auto.refused <= days["throughput"].refused + 256


@pytest.mark.parametrize(("frame_s", "within_s"), [(SMALL_S, 1.3), (0.02, 3.0)])
def test_a_step_is_followed_and_nothing_else_changes(frame_s: float, within_s: float) -> None:
    world = LoadWorld(of_places(frame_s, 2, 1.1))
    world.run(200.0, poisson(lambda now_s: (0.99 if now_s % 20 >= 10 else 0.11) / frame_s))
    after_s = [at_s % 10 for at_s, _ in world.changes]
    assert len(after_s) == 19
    assert max(after_s[::2]) <= within_s, "until the plan for throughput serves"
    assert max(after_s[1::2]) <= 2.5, "until that for latency does: a lull is no calm"


def test_a_step_of_a_large_network_is_followed_once_frames_tell() -> None:
    world = LoadWorld(of_places(LARGE_S, 2, 1.1))
    world.run(4000.0, poisson(lambda now_s: (1.05 if now_s % 400 >= 200 else 0.1) / LARGE_S))
    assert len(world.changes) == 19
    assert max(at_s % 200 for at_s, _ in world.changes) <= 40.0


@pytest.mark.parametrize("frame_s", [SMALL_S, LARGE_S])
@pytest.mark.parametrize("serves", OBJECTIVES)
@pytest.mark.parametrize("think", [0.0, 0.5, 3.0])
def test_one_client_that_waits_for_each_answer_has_the_plan_for_latency(
    frame_s: float, serves: Objective, think: float
) -> None:
    """However busy it keeps it: on the other plan as well, whose rate may be above half of what this one can do."""
    world = LoadWorld(of_places(frame_s, 2, 1.1), serves=serves)
    world.run(40 * max(1.0, 10 * frame_s), clients=1, think_s=think * frame_s)
    assert (world.serves, len(world.changes)) == ("latency", serves == "throughput")


@pytest.mark.parametrize(("clients", "plans"), [(2, TWO), (4, TWO), (64, TWO), (8, EIGHT), (64, EIGHT)])
def test_clients_that_keep_every_place_busy_have_the_plan_for_throughput(
    clients: int, plans: dict[Objective, Servers]
) -> None:
    world = LoadWorld(plans)
    world.run(20.0, clients=clients)
    ((at_s, now),) = world.changes
    assert now == "throughput"
    assert at_s <= 2.5


@pytest.mark.parametrize("clients", [8, 64])
@pytest.mark.parametrize("slower", [1.5, 3.0])
def test_on_a_host_that_is_slower_than_it_was_clients_that_wait_are_no_sign_of_calm(
    clients: int, slower: float
) -> None:
    """So few frames come as that would be calm; but they come as soon as others are answered."""
    world = LoadWorld(TWO, slower=slower)
    world.run(60.0, clients=clients)
    assert len(world.changes) <= 1


@pytest.mark.parametrize("serves", OBJECTIVES)
@pytest.mark.parametrize("clients", [2, 3])
def test_a_few_on_many_places_are_done_sooner_one_after_the_other(clients: int, serves: Objective) -> None:
    """They keep the plan for latency busy all the time, and half of the copies of the other idle."""
    world = LoadWorld(EIGHT, serves=serves)
    world.run(40.0, clients=clients)
    assert (world.serves, len(world.changes)) == ("latency", serves == "throughput")


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("serves", OBJECTIVES)
def test_frames_of_a_camera_that_never_meet_have_the_plan_for_latency(utilisation: float, serves: Objective) -> None:
    """But for those on which the other plan makes them meet: that one is left when they are few enough."""
    world = LoadWorld(of_places(0.02, 2, 1.1), serves=serves)
    world.run(40.0, camera(utilisation / 0.02, jitter=0.04))
    assert len(world.changes) <= 1
    assert serves == "throughput" or world.serves == "latency"


@pytest.mark.parametrize("frame_s", [0.002, SMALL_S, 0.01, 0.02])
def test_bursts_change_nothing(frame_s: float) -> None:
    world = LoadWorld(of_places(frame_s, 2, 1.1))
    world.run(60.0, bursts(100, 5.0))
    assert world.changes == []


@pytest.mark.parametrize("plans", [TWO, EIGHT], ids=["two places", "eight places"])
@pytest.mark.parametrize("lull_s", [0.3, 1.0])
def test_lulls_change_nothing(plans: dict[Objective, Servers], lull_s: float) -> None:
    world = LoadWorld(plans, serves="throughput")
    world.run(60.0, poisson(lambda now_s: 0.0 if now_s % 7 < lull_s else 1.1 / SMALL_S))
    assert world.changes == []


def test_clients_that_send_by_the_batch_are_busy_while_a_batch_is_worked_off() -> None:
    """A batch takes several looks, in which nothing comes."""
    world = LoadWorld(of_places(0.02, 2, 1.1))
    waits = [0.0]

    def batches() -> Arrivals:
        while True:
            at_s = max(world.now_s, waits[0])
            waits[0] = at_s + 1.05
            yield from (at_s + 1e-4 * frame for frame in range(50))

    world.run(60.0, batches())
    assert [now for _, now in world.changes] == ["throughput"]


@pytest.mark.parametrize("frame_s", [SMALL_S, 0.03])
def test_a_load_that_drifts_through_both_thresholds_changes_plan_about_twice_a_period(frame_s: float) -> None:
    period_s = 60.0 * frame_s / SMALL_S
    world = LoadWorld(of_places(frame_s, 2, 1.1))
    world.run(5 * period_s, poisson(lambda now_s: (0.6 + 0.15 * math.sin(math.tau * now_s / period_s)) / frame_s))
    assert len(world.changes) <= 3 * 5


@pytest.mark.parametrize("utilisation", [0.45, 0.5, 0.6, 0.65, 0.7])
@pytest.mark.parametrize("frame_s", [SMALL_S, 0.05])
def test_a_load_between_the_thresholds_does_not_make_it_flutter(utilisation: float, frame_s: float) -> None:
    """At most one change in so many frames, by chance."""
    frames = 10_000
    world = LoadWorld(of_places(frame_s, 2, 1.1))
    world.run(frames * frame_s / utilisation, steady(utilisation, frame_s))
    assert len(world.changes) <= 1 + frames // 1000


# --- one look ---------------------------------------------------------------------------------------------------------

QUICK, MANY = PlanTimes(0.010, 0.010), PlanTimes(0.009, 0.018)


def after(looks: int, latency: PlanTimes, throughput: PlanTimes, serves: Objective = "latency") -> Objective:
    """What is wanted after so many looks of an overload that nobody could miss, or (from throughput) of nothing."""
    load, frames, wanted = Load(), 0, serves
    for look in range(looks):
        frames += 100 if serves == "latency" else 0
        seen = FramesCounted(frames, frames, frames, frames * 1.0, 100 if frames else 0)
        wanted = load.look(seen, look * LOOK_S, serves, latency, throughput)
    return wanted


def test_one_look_decides_nothing() -> None:
    assert [after(looks, QUICK, MANY) for looks in (1, 2, 3)] == ["latency", "latency", "throughput"]


def test_a_new_plan_begins_with_what_comes_after_it() -> None:
    load, wanted = Load(), "latency"
    for look in range(8):
        load.look(
            FramesCounted(100 * look, 100 * look, 100 * look, 100.0 * look, 100), look * LOOK_S, "latency", QUICK, MANY
        )
    load.forget()
    wanted = load.look(FramesCounted(800, 800, 800, 800.0, 100), 8 * LOOK_S, "latency", QUICK, MANY)
    assert wanted == "latency"


def test_many_places_are_busy_later() -> None:
    """Where frames by chance would be quicker by themselves on the other plan: 1 + U / 2 (1 - U) times as slow."""
    assert busy_from(*(TWO[objective].times for objective in ("latency", "throughput"))) == 0.7
    busy = busy_from(*(EIGHT[objective].times for objective in ("latency", "throughput")))
    assert 1 + busy / (2 * (1 - busy)) == pytest.approx(EIGHT["throughput"].service_s / EIGHT["latency"].service_s)


def test_a_plan_that_is_no_slower_with_one_frame_is_taken_from_the_usual_load_on() -> None:
    for alone_s in (0.010, 0.005, 0.0):
        assert busy_from(QUICK, PlanTimes(0.009, alone_s)) == 0.7


def test_it_shows_how_busy_the_plan_for_latency_would_be() -> None:
    load = Load()
    assert math.isnan(load.utilisation)
    for look in range(20):
        load.look(FramesCounted(arrived=look * 20), look * LOOK_S, "latency", QUICK, MANY)
    assert load.utilisation == pytest.approx(20 * 0.010 / LOOK_S)
