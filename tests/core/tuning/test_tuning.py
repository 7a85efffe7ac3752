"""Online tuning: trials, what ends live, pauses, faults and what is watched (`tuned_world` is the daemon)."""

from __future__ import annotations

from functools import partial

import pytest

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan, key_of
from shisha_rt.core.tuning.drift import DISTURBANCE_S, FIRST_PAUSE, WINDOWS_TO_LEAVE, leaving_stage
from shisha_rt.core.tuning.measuring import FRAMES, MAX_FRAMES
from shisha_rt.core.tuning.state import ATTEMPTS, WAITING, State
from shisha_rt.core.tuning.tuning import QUIET_S
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, Objective
from tests.core.tuning.tuned_world import BEST, MACHINE, ONLY_FAST, SEED, WARM_UP, World
from tests.wording import says


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def watching(world: World) -> World:
    """Its search has ended."""
    world.serve_until(State.WATCHING)
    return world


def test_it_begins_by_itself_finds_the_best_plan_makes_it_live_and_keeps_it(world: World) -> None:
    assert world.plan == SEED
    world.serve_until(State.WATCHING)
    assert world.plan == BEST == world.tuning.watched
    (keep,) = world.kept
    assert (keep.key, keep.best.plan) == (key_of(MACHINE), BEST)
    assert keep.best.measurement.throughput_fps == pytest.approx(1000 / 6, rel=0.02)


def test_what_ends_live_is_the_best_beyond_noise_whatever_the_tuner_calls_best(world: World) -> None:
    world.mistaken = SEED
    world.serve_until(State.WATCHING)
    assert (world.plan, world.tuning.state, world.tuning.watched) == (BEST, State.WATCHING, BEST)
    assert [keep.best.plan for keep in world.kept] == [BEST]
    (end,) = world.events("tuning_ended")
    assert end["plan"] == str(BEST)
    assert end["throughput_fps"] == pytest.approx(1000 / 6, rel=0.02)


def test_the_events_tell_each_trial_and_agree_with_the_counts(watching: World) -> None:
    trials = watching.events("trial")
    assert [trial["trial"] for trial in trials] == list(range(len(trials)))
    assert [trial["verdict"] for trial in trials] == watching.verdicts
    assert watching.verdicts[:3] == ["first", "better", "better"]
    assert trials[1]["reason"] == "layer 4 from stage 1 (slow) to stage 0 (fast)"
    assert watching.tuning.searches.trials == len(trials)
    assert watching.tuning.searches.moves == len(trials) - 1
    (end,) = watching.events("tuning_ended")
    assert end["plan"] == str(watching.plan)
    assert end["trials"] == len(trials)


def test_a_trial_names_the_proposal_under_which_its_plan_went_live(watching: World) -> None:
    ends = {f"{end.proposed.owner} {end.proposed.number}": end for end in watching.ends}
    first, *others = watching.events("trial")
    assert first["proposal"] is None  # it was live already
    for trial in others:
        end = ends[trial["proposal"]]
        assert (end.ending, end.epoch, str(end.plan)) == (do.Ending.LIVE, trial["epoch"], trial["plan"])


def test_without_frames_it_waits(world: World) -> None:
    for _ in range(100):
        world.step_search()
    assert world.tuning.searches.trials == 0
    assert world.tuning.state is State.TUNING
    assert world.tuning.doing(world.now_s + QUIET_S / 2) == "tuning"
    assert world.tuning.doing(world.now_s + QUIET_S * 2) == WAITING


def test_a_trial_takes_the_warm_up_and_one_window(world: World) -> None:
    world.serve(WARM_UP + FRAMES - 1)
    assert world.tuning.searches.trials == 0
    world.serve(1)
    assert world.tuning.searches.trials == 1


def test_frames_of_another_epoch_count_for_nothing(world: World) -> None:
    world.step_search()
    for _ in range(MAX_FRAMES):
        world.post(ev.PartTaken(world.epoch - 1, 0, "fast", 9.0))
        world.post(ev.PartTaken(world.epoch - 1, 1, "slow", 9.0))
    assert world.tuning.searches.trials == 0


def test_a_plan_that_cannot_go_live_is_a_trial_that_lost() -> None:
    bad = Plan.of([(0, 4, "fast"), (5, 7, "slow")])
    world = World(refuse=lambda plan: plan == bad)
    world.serve_until(State.WATCHING)
    assert "cannot_run" in world.verdicts
    lost = next(trial for trial in world.events("trial") if trial["verdict"] == "cannot_run")
    assert lost["trouble"] == says("dropped: fast could … it: no room")
    assert lost["throughput_fps"] is None
    assert sum(end.plan == bad for end in world.ends) == ATTEMPTS
    (measurement,) = (m.measurement for m in world.reported if not m.measurement.can_run)
    assert (measurement.frames, measurement.failed_stage) == (0, 0)


def test_where_nothing_tried_can_run_what_serves_stays(world: World) -> None:
    """Such as a plan with a layer split, for places that have no room for any other: the walk begins at its seed."""
    copies = Plan.chain([(0, 7, (("fast",), ("slow",)))])
    world.propose(copies, le.Owner.CLIENT)
    world.refuse = lambda plan: True
    world.post(ev.SearchAsked("test"))
    world.serve_until(State.WATCHING)
    assert world.plan == copies
    assert set(world.verdicts) == {"cannot_run"}
    assert len(world.events("tuning_ended")) == 1


@pytest.mark.parametrize(("running", "failed"), [(None, 1), (7, None)])
def test_only_a_stage_that_workers_die_of_is_evidence_against_its_layers(
    world: World, running: int | None, failed: int | None
) -> None:
    """Those that compute a frame meanwhile may die of that."""
    world.holds = True
    world.serve_until(1)
    world.step_search()
    for _ in range(ATTEMPTS):
        incarnation = world.held[-1].incarnation
        world.held.clear()
        world.post(le.WorkerGone(incarnation, running, "killed", crashed=True))
        world.wait(1.0)  # until there is another
        if not world.held:
            break
    world.step_search()
    assert not world.reported[-1].measurement.can_run
    assert world.reported[-1].measurement.failed_stage == failed


def test_a_plan_that_is_dropped_once_is_tried_again() -> None:
    refusals = [False, False, True]  # the seed goes live, on both places
    world = World(refuse=lambda plan: bool(refusals and refusals.pop(0)))
    world.serve_until(State.WATCHING)
    assert not refusals
    assert [end.ending for end in world.ends].count(do.Ending.DROPPED) == 1
    assert "cannot_run" not in world.verdicts
    assert world.plan == BEST


def test_a_trial_that_another_plan_came_before_is_tried_again(world: World) -> None:
    """It was made under an epoch that is not live any more as its turn comes."""
    world.holds = True
    world.propose(SEED, le.Owner.PLACER)
    world.serve_until(1)
    world.step_search()
    world.release()
    dropped, live = world.ends[-2:]
    assert (dropped.ending, dropped.reason) == (do.Ending.DROPPED, says("epoch 2 has gone live …"))
    assert (live.ending, live.plan) == (do.Ending.LIVE, dropped.plan)
    world.serve_until(State.WATCHING)
    assert "cannot_run" not in world.verdicts
    assert (world.plan, world.tuning.search.number) == (BEST, 1)


def test_a_search_goes_on_from_its_best_plan_when_the_live_one_is_placed_anew(world: World) -> None:
    world.serve_until(3)
    assert world.plan != world.best()  # it was one too many
    world.propose(world.plan, le.Owner.PLACER)
    assert (world.tuning.search.number, world.tuning.search.start) == (2, BEST)
    world.serve_until(State.WATCHING)
    assert world.plan == BEST


def test_pausing_leaves_the_best_plan_live(world: World) -> None:
    world.serve_until(3)
    assert world.plan != world.best()  # it was one too many
    world.post(ev.PauseAsked("test"))
    assert world.plan == world.best() == BEST
    world.serve(500)
    assert world.tuning.state is State.PAUSED
    assert world.plan == BEST


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_pausing_while_a_trial_is_on_its_way_leaves_the_best_plan_live(world: World, trials: int) -> None:
    world.serve_until(trials - 1)
    world.holds = True
    world.serve_until(trials)
    assert world.held
    world.post(ev.PauseAsked("test"))
    world.release()
    world.serve(10)
    assert world.plan == world.best()


def test_pausing_after_a_change_of_objective_leaves_the_plan_that_is_best_at_it(world: World) -> None:
    world.serve_until(2)
    world.holds = True
    world.post(ev.OptionsSet(objective="latency"))
    world.post(ev.PauseAsked("test"))
    world.release()
    assert world.best() != SEED  # of the search for throughput
    assert (world.plan, world.tuning.state) == (SEED, State.PAUSED)


def test_what_a_search_found_is_kept_for_its_own_objective(world: World) -> None:
    """It ends while the plan for another one is being prepared."""
    world.serve_until(1)
    world.holds = True
    world.serve_until(2)
    assert world.plan == world.best()
    world.post(ev.OptionsSet(objective="latency"))
    world.search = world.tuning.search.trying = None
    world.say(tm.Finished(world.tuning.search.number, world.plan, "enough"))
    assert [kept.key for kept in world.kept] == [key_of(MACHINE)]


def test_a_search_begins_without_a_place_that_is_down(world: World) -> None:
    """A client asks for it while a plan without the place is being prepared."""
    world.serve_until(2)
    world.holds = True
    world.post(le.PlaceDown("slow"))
    world.post(ev.SearchAsked("a client has asked for it"))
    begun = [message for message in world.sent if isinstance(message, tm.Begin)][-1]
    assert (begun.start, begun.order) == (ONLY_FAST, ("fast",))


def test_pausing_does_not_take_back_a_clients_plan_that_is_on_its_way(world: World) -> None:
    world.serve_until(3)
    world.holds = True
    world.propose(SEED, le.Owner.CLIENT)
    world.post(ev.PauseAsked("test"))
    world.release()
    assert (world.plan, world.tuning.state) == (SEED, State.PAUSED)


@pytest.mark.parametrize("frames", [100, 1000])
def test_a_clients_plan_pauses_and_stays(world: World, frames: int) -> None:
    world.serve(frames)
    world.propose(SEED, le.Owner.CLIENT)
    assert (world.tuning.state, world.tuning.choice.automatic) == (State.PAUSED, False)
    assert world.events("tuning_paused")[-1]["reason"] == says("a client sets …")
    world.serve(500)
    world.post(ev.PlaceReturned("slow"))
    assert world.plan == SEED
    world.post(ev.SearchAsked("test"))
    world.serve_until(State.WATCHING)
    assert (world.plan, world.tuning.choice.automatic) == (BEST, True)


def test_while_nothing_changes_it_only_watches(watching: World) -> None:
    trials = watching.tuning.searches.trials
    watching.serve(50 * FRAMES)
    assert watching.tuning.state is State.WATCHING
    assert watching.tuning.searches.trials == trials
    assert watching.events("drift") == []


def test_a_place_that_slows_down_makes_it_tune_again(watching: World) -> None:
    watching.serve(5 * FRAMES)
    watching.layer_s["fast"] *= 3
    trials = watching.tuning.searches.trials
    frames = watching.serve_until(lambda: bool(watching.events("drift")))
    assert frames <= (WINDOWS_TO_LEAVE + 2) * MAX_FRAMES
    assert watching.tuning.searches.trials == trials + 1, "not a frame is needed for what the drift was seen by"
    assert watching.events("trial")[-1]["service_s"][0] == watching.events("drift")[-1]["service_s"]
    watching.serve_until(State.WATCHING)
    assert watching.plan == SEED


def slow_down(world: World, factor: float) -> None:
    """All places, as when a host's clock or another virtual machine slows all of it down."""
    world.layer_s = {place: factor * layer_s for place, layer_s in world.layer_s.items()}


def has_drifted(world: World, times: int) -> bool:
    return len(world.events("drift")) == times


def test_a_search_in_vain_holds_up_the_next_one_on_a_drift_no_larger(watching: World) -> None:
    """Else a daemon on a host whose speed comes and goes would try plans all the time."""
    watching.serve(5 * FRAMES)
    pause = took_s = 0.0
    for number in range(1, 7):
        ended_s = watching.now_s
        slow_down(watching, 1.3 if number % 2 else 1 / 1.3)
        watching.serve_until(partial(has_drifted, watching, number), 200_000)
        began_s = watching.now_s
        assert began_s - ended_s >= pause * took_s
        watching.serve_until(State.WATCHING)
        took_s, pause = watching.now_s - began_s, 2 * pause or FIRST_PAUSE
        assert watching.plan == BEST


def test_what_others_take_of_the_cores_is_no_drift_while_it_may_pass(watching: World) -> None:
    watching.serve(5 * FRAMES)
    watching.post(ev.HostSeen(0.5))
    watching.layer_s["fast"] *= 3
    watching.serve(3 * WINDOWS_TO_LEAVE * MAX_FRAMES)
    assert watching.events("drift") == []
    watching.layer_s["fast"] /= 3
    watching.post(ev.HostSeen(0.0))
    watching.serve(20 * FRAMES)
    assert (watching.events("drift"), watching.plan) == ([], BEST)


def test_what_others_go_on_taking_is_a_drift_in_the_end(watching: World) -> None:
    watching.serve(5 * FRAMES)
    watching.post(ev.HostSeen(0.5))
    watching.layer_s["fast"] *= 3
    watching.now_s += DISTURBANCE_S
    watching.post(ev.HostSeen(0.5))
    watching.serve_until(lambda: bool(watching.events("drift")))
    watching.serve_until(State.WATCHING)
    assert watching.plan == SEED


def test_what_another_model_takes_of_a_shared_place_is_no_drift_however_long(watching: World) -> None:
    watching.serve(5 * FRAMES)
    watching.post(ev.HostSeen(0.5))
    watching.post(ev.CrowdSeen(("fast",)))
    watching.layer_s["fast"] *= 3
    watching.now_s += DISTURBANCE_S
    watching.post(ev.HostSeen(0.5))
    watching.serve(3 * WINDOWS_TO_LEAVE * MAX_FRAMES)
    assert (watching.events("drift"), watching.plan) == ([], BEST)
    watching.post(ev.CrowdSeen(()))
    watching.serve_until(lambda: bool(watching.events("drift")))
    watching.serve_until(State.WATCHING)
    assert watching.plan == SEED


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE)
def test_a_search_for_any_objective_ends_and_keeps_its_plan(objective: Objective) -> None:
    world = World(objective=objective)
    world.serve_until(State.WATCHING)
    assert world.kept[-1].best.plan == world.plan


def test_what_others_took_of_the_cores_during_a_search_is_kept_with_its_plan(world: World) -> None:
    world.serve_until(lambda: len(world.events("trial")) > 1)
    world.post(ev.HostSeen(0.5))
    world.serve_until(State.WATCHING)
    assert world.kept[-1].best.others_ratio == 0.5


def test_a_search_waits_until_no_other_model_computes_on_its_places(world: World) -> None:
    """Unless a client asks for it."""
    world.post(ev.CrowdSeen(("fast", "slow")))
    world.post(ev.TunerDied("it was killed"))
    assert world.tuning.state is State.WATCHING
    begun = len(world.events("trial"))
    world.serve(20 * FRAMES)
    assert len(world.events("trial")) == begun
    world.post(ev.CrowdSeen(()))
    world.serve_until(lambda: len(world.events("trial")) > begun)
    world.serve_until(State.WATCHING)
    assert world.plan == BEST
    world.post(ev.CrowdSeen(("slow",)))
    trials = len(world.events("trial"))
    world.post(ev.SearchAsked("a client asks"))
    world.serve_until(lambda: len(world.events("trial")) > trials)


def test_what_another_model_takes_is_no_drift_after_a_search_asked_for_in_the_crowd(watching: World) -> None:
    watching.post(ev.CrowdSeen(("fast", "slow")))
    watching.post(ev.SearchAsked("a client asks"))
    watching.serve_until(lambda: watching.tuning.state is not State.WATCHING)
    watching.serve_until(State.WATCHING)
    watching.layer_s["fast"] *= 3
    watching.serve(3 * WINDOWS_TO_LEAVE * MAX_FRAMES)
    assert (watching.events("drift"), watching.plan) == ([], BEST)


def test_one_bad_window_is_not_a_drift(watching: World) -> None:
    watching.serve(5 * FRAMES)
    watching.layer_s["slow"] *= 2
    watching.serve(FRAMES)
    watching.layer_s["slow"] /= 2
    watching.serve(20 * MAX_FRAMES)
    assert watching.events("drift") == []


def test_a_place_that_was_emptied_may_be_given_layers_again(world: World) -> None:
    world.layer_s["slow"] = 1.0
    world.serve_until(State.WATCHING)
    assert world.plan == ONLY_FAST
    world.layer_s["slow"] = 0.001
    world.post(ev.MachineChanged(MACHINE.with_speed("slow", 1.0), "the speed of slow is 1 now"))
    world.serve_until(State.WATCHING)
    assert world.plan.places == ("fast", "slow")


def test_a_known_change_makes_it_tune_again_at_once(watching: World) -> None:
    slower = MACHINE.with_speed("fast", 0.25)
    watching.post(ev.MachineChanged(slower, "the speed of fast is 0.25 now"))
    assert watching.tuning.search.number == 2
    began = watching.sent[-1]
    assert isinstance(began, tm.Begin)
    assert began.places == (tm.PlaceNow("fast", 1, 2.0), tm.PlaceNow("slow", 2, 1.0))
    watching.serve_until(State.WATCHING)
    assert [keep.key for keep in watching.kept] == [key_of(MACHINE), key_of(slower)]
    watching.post(ev.PauseAsked("test"))
    watching.post(ev.MachineChanged(MACHINE, "again"))
    assert watching.tuning.state is State.PAUSED


@pytest.mark.parametrize("place", ["fast", "slow"])
def test_a_team_of_which_one_is_slowed_asks_for_a_new_plan(world: World, place: str) -> None:
    """A client's, so the tuner is paused."""
    world.propose(Plan.chain([(0, 7, [["fast", "slow"]])]), le.Owner.CLIENT)
    assert (world.plan.places, world.tuning.state) == (("fast", "slow"), State.PAUSED)
    world.post(ev.MachineChanged(MACHINE.with_speed(place, 0.1), "it is slower"))
    assert (world.plan, world.tuning.state) == (SEED, State.PAUSED)


def test_what_an_old_run_says_is_ignored(world: World) -> None:
    old = world.tuning.search.number
    world.post(ev.SearchAsked("again"))
    world.sent.clear()
    world.say(tm.Finished(old, SEED, "late"))
    assert world.tuning.state is State.TUNING


def test_the_next_search_has_the_options_that_were_set(watching: World) -> None:
    watching.post(ev.OptionsSet(alpha=3))
    watching.post(ev.SearchAsked("test"))
    began = watching.sent[-1]
    assert isinstance(began, tm.Begin)
    assert (began.strategy, began.alpha, began.balance) == ("shisha", 3, "nlfep")


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


@pytest.mark.parametrize("meanwhile", ["paused and resumed", "another speed"])
def test_a_search_does_not_stand_still_as_an_older_proposal_goes_live(world: World, meanwhile: str) -> None:
    """It has begun while that waited for its turn."""
    world.serve_until(3)
    world.holds = True
    world.serve_until(lambda: bool(world.held))
    if meanwhile == "another speed":
        world.post(ev.MachineChanged(MACHINE.with_speed("slow", 0.4), "the speed of slow is 0.4 now"))
    else:
        world.post(ev.PauseAsked("test"))
        world.post(ev.SearchAsked("test"))
    world.serve(2)  # the new search measures what is live still
    world.release()
    world.serve_until(State.WATCHING)
    assert world.events("tuning_began")[-1]["reason"] == says("another plan has …")


class TestPlacesThatComeAndGo:
    def test_the_loss_of_a_place_is_planned_around_and_searched_on_from_there(self, watching: World) -> None:
        watching.post(le.PlaceDown("slow"))
        watching.wait(1.0)
        assert watching.plan == ONLY_FAST
        assert watching.events("tuning_began")[-1]["reason"] == says("… plan of the daemon's own")
        watching.serve_until(State.WATCHING)
        watching.post(le.PlaceUp("slow"))
        watching.post(ev.PlaceReturned("slow"))
        assert watching.events("replan")[-1]["reason"] == says("place slow is …")
        watching.serve_until(State.WATCHING)
        assert watching.plan == BEST

    def test_places_that_were_searched_are_not_searched_again_when_one_has_been_away(self, watching: World) -> None:
        def away(world: World) -> int:
            world.post(le.PlaceDown("slow"))
            world.wait(1.0)
            world.serve_until(State.WATCHING)
            assert world.plan == ONLY_FAST
            before = len(world.events("trial"))
            world.post(le.PlaceUp("slow"))
            world.post(ev.PlaceReturned("slow"))
            world.wait(60.0)
            world.serve(100)
            assert (world.plan, world.tuning.state) == (BEST, State.WATCHING)
            return len(world.events("trial")) - before

        assert watching.events("tuning_ended")
        assert (away(watching), away(watching)) == (0, 0)
        assert watching.events("tuning_resumed")[-1]["reason"] == says("… earlier search …")
        watching.layer_s["slow"] *= 3
        watching.serve_until(State.TUNING)  # it still notices what has changed

    def test_a_place_that_returns_while_a_trial_is_on_its_way_is_planned_on(self, world: World) -> None:
        world.post(le.PlaceDown("slow"))
        world.wait(1.0)
        world.serve_until(State.WATCHING)
        assert world.plan == ONLY_FAST
        world.holds = True
        world.propose(ONLY_FAST, le.Owner.PLACER)
        world.post(le.PlaceUp("slow"))
        world.post(ev.PlaceReturned("slow"))
        world.release()
        world.serve_until(State.WATCHING)
        assert world.plan == BEST

    def test_a_clients_plan_is_live_again_also_if_its_place_was_away_for_a_moment_only(self, world: World) -> None:
        """The plan without the place is on its way when the place returns, and goes live."""
        clients = Plan.of([(0, 6, "fast"), (7, 7, "slow")])
        world.propose(clients, le.Owner.CLIENT)
        world.holds = True
        world.post(le.PlaceDown("slow"))
        world.wait(1.0)
        world.post(le.PlaceUp("slow"))
        world.post(ev.PlaceReturned("slow"))
        world.release()
        assert [end.plan for end in world.ends if end.ending is do.Ending.LIVE][-2:] == [ONLY_FAST, clients]
        assert world.plan == clients

    def test_why_no_plan_can_be_made_live_at_the_start_is_known(self) -> None:
        world = World(refuse=lambda plan: True)
        assert world.lifecycle.live is None
        assert world.tuning.fault is not None
        assert world.tuning.fault.reason == says("… not prepare it: no room")


def test_a_search_that_lost_its_process_goes_on_from_its_best_plan(world: World) -> None:
    world.serve_until(3)
    best = world.best()
    world.search = None
    world.post(ev.TunerDied("killed"))
    assert world.events("tuning_began")[-1]["plan"] == str(best)
    world.serve_until(State.WATCHING)
    runs = world.tuning.search.number
    world.post(ev.TunerDied("killed"))  # nothing was lost
    assert (world.tuning.state, world.tuning.search.number) == (State.WATCHING, runs)


def test_moves_are_those_that_were_measured(world: World) -> None:
    world.serve_until(3)
    world.step_search()
    world.post(ev.PauseAsked("in the middle of the third move"))
    assert world.tuning.searches.moves == 2


def test_a_restart_watches_the_best_plan_which_may_leave_out_a_place_that_a_search_does_not() -> None:
    best = BestPlan(ONLY_FAST, Measurement((8e-3,), 0.01, 32, 1.0), ("fast", "slow"))
    world = World({key_of(MACHINE): best})
    assert (world.plan, world.tuning.state) == (ONLY_FAST, State.WATCHING)
    assert world.events("tuning_resumed")[0]["plan"] == str(ONLY_FAST)
    world.post(ev.SearchAsked("test"))
    began = world.sent[-1]
    assert isinstance(began, tm.Begin)
    assert began.order == ("fast", "slow")
