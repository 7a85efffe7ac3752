"""A daemon is not held up: by a worker that hangs as it starts, nor by a frame that waits to be due for a day."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from shisha_rt.client import Client
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, frame_of
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.waiting import PATIENCE_S, until

PLACES: Final = ("p0", "p1", "p2")


def chain(*places: str) -> list[dict[str, Any]]:
    """As many stages as places, the first ones of a layer each."""
    last = len(places) - 1
    return [
        {"first": index, "last": index if index < last else LAYERS - 1, "places": [place]}
        for index, place in enumerate(places)
    ]


def kinds(daemon: DaemonProcess, place: str) -> list[str]:
    events = daemon.control.events(limit=1000)["events"]
    return [event["kind"] for event in events if event.get("place") == place]


def test_a_worker_that_is_stopped_as_it_starts_holds_up_nothing(identity: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", machine_file(tmp_path, PLACES)) as daemon:
        first = daemon.wait_for_workers()["p1"]
        assert daemon.control.set_plan(chain(*PLACES))["outcome"] == "live"
        assert daemon.control.call("server_ready")["ready"] is True
        with Load(daemon.endpoint, pause_s=PAUSE_S) as load:
            load.wait_for_answers(20)
            daemon.kill_worker(first)
            stopped: set[int] = set()

            def missed() -> bool:
                """Whether a plan is made without it; until then, none of its successors gets far."""
                pid = daemon.worker_pids()["p1"]
                if pid is not None and pid not in stopped:
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)
                    is_ready = daemon.control.call("server_ready")["ready"]
                    states = {place["name"]: place["state"] for place in daemon.control.status()["places"]}
                    was_quicker = states["p1"] == "up" or "place_missed" in kinds(daemon, "p1")
                    assert was_quicker or not is_ready, "nothing can run"
                return "place_missed" in kinds(daemon, "p1")

            until(missed, "a plan without it")
            load.wait_for_answers(50)
            assert daemon.control.set_plan(chain("p2", "p0"))["outcome"] == "live"
            daemon.wait_for_deaths(*stopped)
            until(lambda: "place_is_back" in kinds(daemon, "p1"), "its return")
            load.wait_for_answers(20)
        assert_kept(load)
        reasons = [event["reason"] for event in daemon.control.events(limit=1000)["events"]
                   if event["kind"] == "worker_killed"]  # fmt: skip
        assert any("it starts, and" in reason for reason in reasons)


def test_a_frame_that_waits_for_hours_can_be_had_at_once(identity: Path, tmp_path: Path) -> None:
    """At a speed of 1e-7 nothing could be changed for good, even after it had been taken back.

    A place that is down waits for nothing, whatever its speed is set to then.
    """
    machine = tmp_path / "slow.toml"
    core = min(os.sched_getaffinity(0))
    machine.write_text(
        "time_scale = 1000\n"
        + "".join(f'[[place]]\nname = "p{i}"\ncores = [{core}]\nspeed = 0.5\nshared = true\n' for i in range(2))
    )
    with (
        DaemonProcess(tmp_path, identity, "--machine", machine) as daemon,
        Client(daemon.endpoint, timeout_s=PATIENCE_S) as first,
        Client(daemon.endpoint, timeout_s=PATIENCE_S) as other,
        Client(daemon.endpoint, timeout_s=PATIENCE_S) as taking_down,
        ThreadPoolExecutor(3) as pool,
    ):
        for is_taken_down in (False, True):
            assert daemon.control.set_plan(chain("p0"))["outcome"] == "live"
            daemon.control.call("place_set", place="p0", speed=0.001)
            waits = [pool.submit(client.infer, frame_of(3)) for client in (first, other)]
            daemon.board(2).wait_until_running(0)
            until(lambda: daemon.control.status()["frames"]["in_flight"] == 2, "the other frame")
            assert daemon.control.set_plan(chain("p1"))["outcome"] == "live"
            assert daemon.control.status()["frames"]["in_flight"] == 2
            worker = daemon.worker_pids()["p0"]
            assert worker is not None
            os.kill(worker, signal.SIGSTOP)  # it hears of all changes together
            if is_taken_down:
                down = pool.submit(taking_down.call, "place_set", place="p0", down=True)
                until(lambda: not daemon.control.status()["places"][0]["available"], "its leaving planning")
            daemon.control.call("place_set", place="p0", speed=0.001 if is_taken_down else 0.5)
            os.kill(worker, signal.SIGCONT)
            assert all((frame.result().output == frame_of(3)).all() for frame in waits)
        assert down.result() == {"place": "p0", "state": "down"}
