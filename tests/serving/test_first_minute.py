"""A model that was never seen is served at once: what its layers cost is measured meanwhile, and then it is tuned."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import psutil
import pytest

from shisha_rt.client import FailedPrecondition
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.tuned import await_state, events, tuner
from tests.waiting import until

GUIDED = ("--strategy", "guided")


def profilers(daemon: DaemonProcess) -> list[psutil.Process]:
    return daemon.running("shisha_rt.daemon.children.profiler")


def has_died(daemon: DaemonProcess, times: int) -> bool:
    return len(events(daemon.control, "profiler_died")) == times


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_frames_flow_before_anything_is_measured(identity: Path, two_places: Path, tmp_path: Path) -> None:
    """Also when the process that measures is killed; and the next start has nothing to measure."""
    arguments = (identity, "--machine", two_places, *GUIDED, "--batch", 1)  # batches would be compared for long
    with DaemonProcess(tmp_path, *arguments) as daemon:
        client = daemon.control
        with Load(daemon.endpoint, pause_s=PAUSE_S) as load:
            load.wait_for_answers(10)
            assert tuner(client)["state"] == "profiling"
            (stage,) = client.plan()["stages"]
            assert stage["places"] == ["fast0", "slow0"]
            assert client.call("tuner_set", restart=True)["tuner"]["state"] == "profiling"
        assert_kept(load)
        until(lambda: profilers(daemon), "a profiler")
        profilers(daemon)[0].kill()
        until(lambda: events(client, "profiling_ended"), "costs")  # all the sooner as no frames come
        with Load(daemon.endpoint, pause_s=PAUSE_S) as load:
            await_state(client, "watching")
        assert_kept(load)
        kinds = [event["kind"] for event in client.events(0, 10_000)["events"]]
        measured = ("ready", "profiling_began", "profiler_died", "profiling_ended")
        assert [kind for kind in kinds if kind in measured] == list(measured)
        # Whether candidates alone were compared, or cuts searched too, depends on how the frames come.
        assert {"tuning_ended", "comparison_ended"} & set(kinds)
        until(lambda: not profilers(daemon), "the end of what has no more to do")
    with DaemonProcess(tmp_path, *arguments) as again:
        assert events(again.control, "profiling_began") == []
        assert tuner(again.control)["state"] in ("watching", "waiting")


@pytest.mark.long
def test_what_cannot_be_measured_does_not_end_the_daemon(identity: Path, two_places: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", two_places, *GUIDED) as daemon:
        client = daemon.control
        with Load(daemon.endpoint, pause_s=PAUSE_S) as load:
            for deaths in range(1, 4):
                until(lambda: profilers(daemon), "a profiler")
                os.kill(profilers(daemon)[0].pid, signal.SIGKILL)
                until(partial(has_died, daemon, min(deaths, 2)), "its end to be known")
            # If candidates were compared before that, their winner is watched; else nothing is tuned.
            until(lambda: events(client, "profiling_failed"), "the end of measuring")
            load.wait_for_answers(100)
        assert_kept(load)
        (failed,) = events(client, "profiling_failed")
        assert failed["reason"] == "its process died 3 times: killed by signal 9 (SIGKILL)"
        assert failed["reason"] in daemon.stderr()
        with pytest.raises(FailedPrecondition, match="they could not"):
            client.call("tuner_set", restart=True)
        assert client.call("tuner_set", restart=True, strategy="shisha")["tuner"]["state"] == "tuning"
