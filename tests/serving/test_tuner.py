"""A daemon that tunes itself while frames flow: what it says on the wire, in its events and on its metrics page.

Which plan wins is not asked where a stopwatch on a busy host would decide it; that no frame is lost always is.
"""

from __future__ import annotations

import math
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shisha_rt.cache import cache_folder
from shisha_rt.client import Client, FailedPrecondition, InvalidArgument, Unimplemented
from shisha_rt.measure import plan_store
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape, value, values
from tests.serving.tuned import await_state, await_trials, events, tuned, tuner, verdicts
from tests.waiting import until
from tests.wording import says

FIELDS = {
    "state", "strategy", "alpha", "balance", "run", "trials", "trials_total", "moves_total", "trying",
    "best_throughput_fps", "best_latency_s", "best_energy_j", "best_plan", "lower_bound_s", "objective", "serves",
    "run_objective", "utilisation", "plans", "comparing",
}  # fmt: skip
WHOLE = [{"first": 0, "last": LAYERS - 1, "places": ["fast0"]}]
SEED = [{"first": 0, "last": 3, "places": ["slow0"]}, {"first": 4, "last": LAYERS - 1, "places": ["fast0"]}]
FEW = 2  # moves without gain, and a search ends soon


@pytest.fixture(scope="module")
def running(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with tuned(identity, tmp_path_factory.mktemp("tuned"), "--fresh") as process:
        process.wait_for_workers()
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    """One for all: paused, as it was at its start but for what it has counted."""
    client = running.control
    client.call("place_set", place="fast0", speed=0.45)
    assert client.set_plan(SEED)["outcome"] == "live"
    assert tuner(client)["state"] == "paused"
    client.call("tuner_set", alpha=FEW)
    return running


@pytest.fixture
def client(daemon: DaemonProcess) -> Client:
    return daemon.control


def test_it_waits_for_frames_tunes_while_they_flow_and_then_watches(running: DaemonProcess) -> None:
    """The first test, so that nothing has been asked of the daemon yet."""
    client = running.control
    await_state(client, "waiting")
    assert tuner(client).keys() == FIELDS
    assert (tuner(client)["trials"], tuner(client)["alpha"]) == (0, 10)
    assert events(client, "trial") == []
    (began,) = events(client, "tuning_began")
    with Load(running.endpoint) as load:
        await_state(client, "watching")
        tuning, trials = tuner(client), events(client, "trial")
    assert_kept(load)
    assert began["plan"] == trials[0]["plan"]
    assert (tuning["strategy"], tuning["run"], tuning["trying"]) == ("shisha", 1, None)
    assert tuning["best_plan"] == next(
        trial["plan"] for trial in reversed(trials) if trial["verdict"] in ("first", "better")
    )
    (ended,) = events(client, "tuning_ended")
    assert (ended["plan"], ended["trials"]) == (tuning["best_plan"], len(trials))
    # What is live at the end was found to be best (R5), and the frames ran under each plan that was tried.
    live = events(client, "plan_live")[-1]
    assert (live["plan"], live["epoch"]) == (tuning["best_plan"], client.plan()["epoch"])
    assert {trial["epoch"] for trial in trials} <= load.epochs


def test_events_metrics_and_tuner_get_tell_the_same_story(client: Client, daemon: DaemonProcess) -> None:
    run = client.call("tuner_set", resume=True)["tuner"]["run"]
    with Load(daemon.endpoint) as load:
        await_state(client, "watching")
        client.call("tuner_set", restart=True)
        await_trials(client, 1, load)
        client.call("tuner_set", pause=True)
    assert_kept(load)
    trials, tuning = events(client, "trial"), tuner(client)
    runs = [event["run"] for event in events(client, "tuning_began")]
    assert runs == list(range(1, run + 2))
    assert {run, run + 1} <= {trial["run"] for trial in trials} <= {*runs}
    assert sum(trial["run"] == run + 1 for trial in trials) == tuning["trials"]
    for run in runs:
        numbers = [trial["trial"] for trial in trials if trial["run"] == run]
        assert numbers == list(range(len(numbers)))
    for trial in trials:
        assert trial["throughput_fps"] == pytest.approx(1 / max(trial["service_s"]))
        assert len(trial["service_s"]) == trial["plan"].count(":")
        assert trial["frames"] >= 32
    samples = scrape(daemon.metrics)
    assert values(samples, "shisha_tuner_trials_total", "outcome") == dict(verdicts(trials))
    assert len(trials) == tuning["trials_total"]
    assert value(samples, "shisha_tuner_moves_total") == tuning["moves_total"] == sum(t["trial"] > 0 for t in trials)
    until(lambda: shown_state(daemon) == {"paused"}, "the state on the metrics page")


def shown_state(daemon: DaemonProcess) -> set[str]:
    shown = values(scrape(daemon.metrics), "shisha_tuner_state", "shisha_tuner_state")
    return {state for state, is_so in shown.items() if is_so}


def test_pause_resume_and_restart(client: Client, daemon: DaemonProcess) -> None:
    run = client.call("tuner_set", resume=True, alpha=10)["tuner"]["run"]
    with Load(daemon.endpoint) as load:
        await_trials(client, 1, load)
        best = tuner(client)["best_plan"]
        paused = client.call("tuner_set", pause=True)["tuner"]
        assert paused["state"] == "paused"
        if paused["best_plan"] == best:  # no trial has come in between
            until(lambda: events(client, "plan_live")[-1]["plan"] == best, "the best plan to be live")
        load.wait_for_answers(200)
        assert tuner(client) == paused
        assert client.call("tuner_set", pause=True)["tuner"] == paused
        resumed = client.call("tuner_set", resume=True)["tuner"]
        assert (resumed["state"], resumed["run"], resumed["trials"]) == ("tuning", run + 1, 0)
        assert client.call("tuner_set", resume=True)["tuner"]["run"] == run + 1  # it is not paused
        await_trials(client, 1, load)
        restarted = client.call("tuner_set", restart=True, alpha=FEW)["tuner"]["run"]
        assert restarted >= run + 2
        # On a busy host the search may have ended, and a drift begun the next one; none begins while another goes on.
        assert {event["run"] for event in events(client, "tuning_ended")} >= set(range(run + 1, restarted - 1))
        await_state(client, "watching")
    assert_kept(load)


def test_alpha(client: Client, daemon: DaemonProcess) -> None:
    assert client.call("tuner_set", alpha=1)["tuner"]["alpha"] == 1
    with Load(daemon.endpoint) as load:
        run = client.call("tuner_set", restart=True)["tuner"]["run"]
        await_state(client, "watching")
    assert_kept(load)
    assert events(client, "tuning_began")[-1]["alpha"] == 1
    verdicts = [trial["verdict"] for trial in events(client, "trial") if trial["run"] == run]
    assert "not_better" not in verdicts[:-1]  # the first move without gain is the last
    for wrong in ({"alpha": 0}, {"alpha": 1.5}, {"pause": True, "resume": True}, {}):
        with pytest.raises(InvalidArgument):
            client.call("tuner_set", **wrong)
    with pytest.raises(Unimplemented):
        client.call("tuner_set", strategy="annealing")
    assert tuner(client)["alpha"] == 1


def test_a_plan_of_the_users_pauses_it(client: Client, daemon: DaemonProcess) -> None:
    client.call("tuner_set", resume=True)
    with Load(daemon.endpoint) as load:
        await_trials(client, 1, load)
        epoch = client.set_plan(WHOLE)["epoch"]
        assert tuner(client)["state"] == "paused"
        load.wait_for_answers(200)
        assert client.plan()["epoch"] == epoch
        client.call("tuner_set", resume=True)
        await_trials(client, 1, load)
    assert_kept(load)
    assert events(client, "tuning_began")[-1]["plan"] == f"fast0: 0-{LAYERS - 1}"


def test_another_speed_makes_it_tune_again(client: Client, daemon: DaemonProcess) -> None:
    run = client.call("tuner_set", resume=True)["tuner"]["run"]
    with Load(daemon.endpoint) as load:
        await_state(client, "watching")
        client.call("place_set", place="fast0", speed=0.1)
        assert tuner(client)["run"] == run + 1
        client.call("place_set", place="fast0", speed=0.3)  # again, in the middle of it
        await_state(client, "watching")
        assert tuner(client)["run"] >= run + 2
    assert_kept(load)


def test_a_tuner_that_is_killed_is_started_again(client: Client, daemon: DaemonProcess) -> None:
    before = len(events(client, "tuner_died"))
    client.call("tuner_set", resume=True)
    with Load(daemon.endpoint) as load:
        await_trials(client, 1, load)
        killed = tuner_pid(daemon)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(events(client, "tuner_died")) == before + 1, "its death to be noticed")
        assert tuner_pid(daemon) != killed
        os.kill(tuner_pid(daemon), signal.SIGKILL)  # at once again: then it is not in such a hurry
        until(lambda: len(events(client, "tuner_died")) == before + 2, "its second death to be noticed")
        await_state(client, "watching")
    assert_kept(load)
    assert events(client, "tuner_died")[before]["reason"] == "killed by signal 9 (SIGKILL)"
    began, ended = events(client, "tuning_began")[-1], events(client, "tuning_ended")[-1]
    assert began["run"] == ended["run"] == tuner(client)["run"]


@pytest.mark.long
def test_a_tuner_that_is_stopped_is_ended_and_the_search_goes_on(client: Client, daemon: DaemonProcess) -> None:
    """It stayed in its search for good, and to restart that changed nothing."""
    before = len(events(client, "tuner_died"))
    client.call("tuner_set", restart=True)
    with Load(daemon.endpoint) as load:
        await_trials(client, 1, load)
        os.kill(tuner_pid(daemon), signal.SIGSTOP)
        client.call("tuner_set", restart=True)
        until(lambda: len(events(client, "tuner_died")) == before + 1, "its end")
        await_state(client, "watching")
    assert_kept(load)
    assert events(client, "tuner_died")[before]["reason"].startswith("it hangs: no sign of")


def tuner_pid(daemon: DaemonProcess) -> int:
    module = "shisha_rt.daemon.children.tuner"
    until(lambda: daemon.running(module), "a tuner")  # one that has just been forked has another title at first
    (process,) = daemon.running(module)
    return process.pid


def test_a_restart_begins_with_the_best_plan_and_measures_nothing(
    identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with tuned(identity, tmp_path) as daemon:
        with Load(daemon.endpoint) as load:
            await_state(daemon.control, "watching")
            best = tuner(daemon.control)["best_plan"]
        assert_kept(load)
    with tuned(identity, tmp_path) as again:
        (resumed,) = events(again.control, "tuning_resumed")
        assert resumed["plan"] == best == events(again.control, "plan_live")[0]["plan"]
        assert tuner(again.control)["state"] in ("watching", "waiting")
        assert (tuner(again.control)["run"], tuner(again.control)["trials_total"]) == (0, 0)
        assert events(again.control, "tuning_began") == []
    with tuned(identity, tmp_path, "--fresh") as fresh:
        assert events(fresh.control, "tuning_resumed") == []
        assert events(fresh.control, "tuning_began")[0]["run"] == 1


@pytest.mark.long
def test_while_another_process_has_the_kept_plans_locked_everything_goes_on(
    identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plans = cache_folder() / plan_store.FILE_NAME
    plans.parent.mkdir(parents=True)
    with closing(sqlite3.connect(plans)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with tuned(identity, tmp_path) as daemon:
            with Load(daemon.endpoint) as load:
                await_state(daemon.control, "watching")
                until(lambda: "the best plan is not kept" in daemon.stderr(), "its being given up")
                load.wait_for_answers(100)
            assert_kept(load)
    complaints = [line.partition(f"{plans}: ")[2] for line in daemon.stderr().splitlines()]
    assert complaints == [
        says("… used (database is locked); plans …"),
        says("… used (database is locked); the best plan …"),
    ]


def test_guided_starts_from_costs_and_knows_how_far_it_is_from_the_best(identity: Path, tmp_path: Path) -> None:
    with tuned(identity, tmp_path, "--strategy", "guided", "--fresh") as daemon:
        with Load(daemon.endpoint) as load:
            await_state(daemon.control, "watching")
            tuning, trials = tuner(daemon.control), events(daemon.control, "trial")
        assert_kept(load)
        assert events(daemon.control, "tuning_began")[0]["strategy"] == tuning["strategy"] == "guided"
        assert len(trials) == tuning["trials"] >= 1
        until(lambda: gap_shown(daemon) == pytest.approx(gap_told(daemon)), "the gap on the metrics page")
        assert trials[0]["reason"] == "where tuning starts"
        assert all(trial["reason"].startswith(("predicted", "told")) for trial in trials[1:])
        # From the next search on, the other one.
        with Load(daemon.endpoint) as load:
            daemon.control.call("tuner_set", restart=True, strategy="shisha")
            await_state(daemon.control, "watching")
        assert_kept(load)
        assert (tuner(daemon.control)["strategy"], tuner(daemon.control)["lower_bound_s"]) == ("shisha", None)
        with pytest.raises(Unimplemented, match="'annealing' is unknown;"):
            daemon.control.call("tuner_set", strategy="annealing")


def gap_shown(daemon: DaemonProcess) -> float:
    return value(scrape(daemon.metrics), "shisha_tuner_gap_ratio")


def gap_told(daemon: DaemonProcess) -> float:
    tuning = tuner(daemon.control)
    fps, bound_s = tuning["best_throughput_fps"], tuning["lower_bound_s"]
    return 1 / (fps * bound_s) if fps and bound_s else math.nan


def test_guided_needs_measured_costs(client: Client) -> None:
    with pytest.raises(FailedPrecondition, match="'guided' needs measured"):
        client.call("tuner_set", strategy="guided")
