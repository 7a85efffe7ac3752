"""What the host process makes of one model's daemon: whom it takes for one, and what its log may do."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
import zmq

from shisha_rt.core.dealer import Terms
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.process import child
from shisha_rt.process.fork_line import ChildOrder
from shisha_rt.process.pulse import Pulse
from shisha_rt.process.stat import began_ticks
from shisha_rt.repository.entries import ModelEntry
from shisha_rt.repository.hosted import DaemonRecord, StartOptions
from shisha_rt.repository.model_daemon import DaemonEnded, Home, ModelDaemon, end_left
from tests.waiting import PATIENCE_S, until
from tests.wording import says

PLACE = Place("core0", (min(os.sched_getaffinity(0)),), 1, 1, 1.0, 1, "ram")
MACHINE = Machine("one", "", (Memory("ram"),), (PLACE,))
OPTIONS = StartOptions((logging.WARNING, "%(message)s"), fresh=False)
RECORD = DaemonRecord(None, 1, os.getpid(), "http://127.0.0.1:1/metrics")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ModelDaemon]:
    poller, context = Poller(), zmq.Context[zmq.Socket[bytes]]()
    daemon = ModelDaemon(ModelEntry("net", "1", Settings("net.onnx"), Terms()), 1, Home(tmp_path, poller, context))
    yield daemon
    daemon.close()
    poller.close()
    context.term()


def test_a_process_that_has_the_id_of_a_daemon_that_ended_is_none(daemon: ModelDaemon) -> None:
    with pytest.raises(ProcessLookupError):
        daemon.adopt(RECORD)
    assert not daemon.ready
    daemon.terminate()  # nobody: else this process would end


def test_the_daemon_of_another_host_process_that_has_the_id_is_left_alone(daemon: ModelDaemon, tmp_path: Path) -> None:
    """As after a restart of a container, in which ids begin anew."""
    command = [sys.executable, "-c", "input()", "shisha_rt.repository.hosted"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
        began = began_ticks(other.pid)
        earlier, itself = (DaemonRecord(None, 1, other.pid, "", ticks) for ticks in (began - 1, began))
        with pytest.raises(ProcessLookupError):
            daemon.adopt(earlier)
        end_left(tmp_path, [earlier], 0.0)
        assert not daemon.ready
        assert other.poll() is None
        end_left(tmp_path, [itself], PATIENCE_S)
        other.wait(PATIENCE_S)


def test_a_line_of_the_log_that_nobody_takes_ends_nothing(daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert list(daemon._read_log(io.BytesIO(b"one\ntwo\n"))) == []
    assert [*daemon._last_lines] == ["one", "two"]


def test_a_record_that_cannot_be_written_ends_nothing(daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.repository.model_daemon._is_daemon", lambda record: record.pid == os.getpid())
    daemon.adopt(RECORD)
    daemon._folder = daemon._folder / "missing"
    daemon.send_away()


def test_each_answer_is_a_sign_of_life(daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.repository.model_daemon._is_daemon", lambda record: record.pid == os.getpid())
    signs: list[int] = []
    monkeypatch.setattr(Pulse, "look", lambda _, beats: signs.append(beats))
    with daemon._context.socket(zmq.ROUTER) as there:
        there.bind(daemon.endpoint)
        daemon.adopt(RECORD)
        for _ in range(2):
            daemon.look()
            client, header = there.recv_multipart()
            there.send_multipart([client, json.dumps({"id": json.loads(header)["id"], "live": True}).encode()])
            until(lambda: not daemon._line or not daemon._line.waits, meanwhile=lambda: list(daemon._poller.poll(0.01)))
    daemon.look()
    assert signs == [0, 1, 2]


def test_a_daemon_that_is_stopped_as_it_starts_is_ended(
    daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until it serves it answers nothing, so that only its being stopped tells that it hangs."""
    monkeypatch.setattr("shisha_rt.repository.model_daemon._SILENCE_S", 0.1)
    daemon.start(MACHINE, None, OPTIONS)
    until(lambda: daemon.pid, "its process", meanwhile=lambda: list(daemon._poller.poll(0.01)))
    os.kill(daemon.pid, signal.SIGSTOP)
    assert not end_of(daemon).refused, "it is to be started again"


def test_a_start_that_takes_long_holds_up_nobody(daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host process forwards requests to other models meanwhile. It waited for a fork server that did not answer."""
    answers, start = threading.Event(), child._servers.start

    def start_late(order: ChildOrder, descriptors: Sequence[int]) -> int:
        assert answers.wait(PATIENCE_S)
        return start(order, descriptors)

    monkeypatch.setattr(child._servers, "start", start_late)
    daemon.start(MACHINE, None, OPTIONS)
    assert not daemon.pid
    daemon.terminate()
    answers.set()
    assert not end_of(daemon).refused
    assert daemon.pid


def test_a_process_that_cannot_be_started_is_a_daemon_that_has_ended(
    daemon: ModelDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child._servers, "start", Mock(side_effect=BlockingIOError(errno.EAGAIN, "no process")))
    daemon.start(MACHINE, None, OPTIONS)
    ended = end_of(daemon)
    assert ended.reason == says("no process … no process")
    assert not ended.refused


def end_of(daemon: ModelDaemon) -> DaemonEnded:
    heard: list[object] = []

    def has_ended() -> bool:
        daemon.look()
        heard.extend(daemon._poller.poll(0.01))
        return any(isinstance(event, DaemonEnded) for event in heard)

    until(has_ended, "its end")
    (ended,) = (event for event in heard if isinstance(event, DaemonEnded))
    return ended
