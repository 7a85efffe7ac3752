"""However a daemon ends: what it admitted is answered if it could be, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Final

import psutil
import pytest
import zmq

from shisha_rt.client import Client, Unavailable
from shisha_rt.errors import Code, Error
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.header import InferParameters, TensorHeader, decode_head, encode_infer, encode_operation
from tests.commands import command_of
from tests.http.http_caller import HttpCaller
from tests.serving.daemon_process import (
    PATIENCE_MS,
    DaemonEnded,
    DaemonProcess,
    complaints_of,
    leftovers,
    serve_command,
)
from tests.serving.identity_model import CHANNELS, NAME, SHAPE, frame_of, write_identity_model
from tests.serving.load import PAUSE_S, Load
from tests.waiting import PATIENCE_S, until
from tests.wording import raised

FRAMES: Final = 100


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_everything_admitted_is_answered(identity: Path, tmp_path: Path, two_places: Path, number: int) -> None:
    """The daemon has said that it has the frames; then it is told to stop, and answers every one of them.

    Meanwhile it refuses frames and plans, and is live but not ready.
    """
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    with DaemonProcess(tmp_path, identity, "--machine", two_places) as daemon, socket:
        socket.connect(daemon.endpoint)
        workers = daemon.wait_for_workers().values()
        daemon.control.metadata()
        for worker in workers:  # stopped until the daemon has been told, so that most of the frames are left then
            os.kill(worker, signal.SIGSTOP)
        tensor = TensorHeader.of(Tensor("x", SHAPE, "FP32"))
        for i in range(FRAMES):
            header = encode_infer(str(i), NAME, [tensor], InferParameters("only", i))
            socket.send_multipart([header, frame_of(i).tobytes()])
        socket.send(encode_operation("server_live", "all admitted"))
        admitted = False
        answers: list[list[bytes]] = []
        while not admitted:
            parts = _receive(socket)
            admitted = decode_head(parts[0]).id == "all admitted"
            answers += [] if admitted else [parts]
        assert len(answers) < FRAMES
        daemon.popen.send_signal(number)
        client = daemon.control
        until(lambda: client.status()["state"] == "draining", "its hearing of the signal")
        assert client.live()
        assert not client.ready()
        with pytest.raises(Unavailable):
            client.infer(frame_of(0))
        with pytest.raises(Unavailable):
            client.set_plan([{"first": 0, "last": 8, "places": ["fast0"]}])
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        answers += [_receive(socket) for _ in range(FRAMES - len(answers))]
        assert daemon.wait() == 0, daemon.stderr()
        for i, parts in enumerate(answers):
            head = decode_head(parts[0])
            assert (head.id, head.error) == (str(i), None)
            assert parts[1] == frame_of(i).tobytes()
        daemon.assert_nothing_left()
        assert daemon.complaints() == []


def test_who_reads_slowly_has_all_answers_too(tmp_path: Path, two_places: Path) -> None:
    """More answers than ZeroMQ has room for: the rest waits in the daemon, which waits for its reader."""
    shape = (1, CHANNELS, 64, 64)
    model = write_identity_model(tmp_path, size=64)
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.rcvhwm = 1
    with DaemonProcess(tmp_path, model, "--machine", two_places) as daemon, socket:
        socket.connect(daemon.endpoint)
        for i in range(FRAMES):
            header = encode_infer(
                str(i), NAME, [TensorHeader.of(Tensor("x", shape, "FP32"))], InferParameters("only", i)
            )
            socket.send_multipart([header, frame_of(i, shape).tobytes()])
        until(lambda: daemon.control.status()["frames"]["answered"].get("OK") == FRAMES, "all answers")
        daemon.popen.send_signal(signal.SIGTERM)
        until(lambda: daemon.control.status()["state"] == "draining", "its hearing of the signal")
        for i in range(FRAMES):
            parts = _receive(socket)
            assert (decode_head(parts[0]).id, parts[1]) == (str(i), frame_of(i, shape).tobytes())
        assert daemon.wait() == 0, daemon.stderr()


@pytest.fixture
def hears() -> Iterator[None]:
    """What is started hears SIGHUP, also if the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("tell", "number"),
    [
        (os.killpg, signal.SIGHUP),
        pytest.param(os.killpg, signal.SIGINT, marks=pytest.mark.long),
        pytest.param(os.killpg, signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(os.kill, signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_signal_under_load(
    hears: None, identity: Path, two_places: Path, tmp_path: Path, tell: Callable[[int, int], None], number: int
) -> None:
    """To the whole group as by a terminal (Ctrl-C, its end) and by service managers: workers finish what they have.

    The answers of a connection are results, then refusals, then nothing, in the order of sending.
    """
    with DaemonProcess(tmp_path, identity, "--machine", two_places, is_program=True) as daemon:
        daemon.wait_for_workers()
        with Load(daemon.endpoint, 0) as first, Load(daemon.endpoint, 1, line=daemon.local_socket) as second:
            first.wait_for_answers(100)
            second.wait_for_answers(100)
            tell(daemon.pid, number)
            assert daemon.wait() == 0, daemon.stderr()
            first.finish(wait=False)
            second.finish(wait=False)
        daemon.assert_nothing_left()
        for load in (first, second):
            assert load.faults == []
            assert set(load.codes) <= {Code.UNAVAILABLE.value}
            ranks = [("OK", "UNAVAILABLE", "").index(outcome) for outcome in load.outcomes.values()]
            assert ranks == sorted(ranks)
        assert daemon.complaints() == []


@pytest.mark.long
def test_who_asks_at_the_very_end_is_told_that_it_was_not_run(identity: Path, two_places: Path, tmp_path: Path) -> None:
    """While the last processes end: by ZeroMQ, by a direct line, and from the process that speaks HTTP."""
    with DaemonProcess(tmp_path, identity, "--machine", two_places, "--http", f"unix:{tmp_path / 'h'}") as daemon:
        workers = daemon.wait_for_workers().values()
        with (
            Client(daemon.endpoint, timeout_s=PATIENCE_S, share=False) as remote,
            Client(daemon.endpoint, timeout_s=PATIENCE_S) as local,
            contextlib.closing(HttpCaller(daemon.http[0])) as caller,
        ):
            for client in (remote, local):
                client.infer(frame_of(1))
            assert caller.infer(frame_of(1))[0] == 200
            (http,) = daemon.running("shisha_rt.http.process")
            http.suspend()
            daemon.popen.send_signal(signal.SIGTERM)
            until(lambda: not any(map(psutil.pid_exists, workers)), "the end of the workers")
            caller.send_frame(frame_of(2))
            for client in (remote, local):
                with raised(Unavailable, Error.DRAINING):
                    client.infer(frame_of(2))
            http.resume()
            answer = caller.getresponse()
            assert (answer.status, json.loads(answer.read())["kind"]) == (503, Error.DRAINING)
        assert daemon.wait() == 0, daemon.stderr()


@pytest.mark.parametrize("transport", [pytest.param("tcp", marks=pytest.mark.long), "ipc"])
def test_no_second_daemon_takes_an_address_before_the_first_is_killed(
    identity: Path, two_places: Path, tmp_path: Path, transport: str
) -> None:
    """The first does not notice; and its workers go along with it."""
    endpoint = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{tmp_path}/public"
    with DaemonProcess(tmp_path, identity, "--machine", two_places, endpoint=endpoint, is_program=True) as first:
        with Load(first.endpoint, pause_s=PAUSE_S) as load:
            load.wait_for_answers(20)
            _assert_refused(tmp_path, identity, two_places, endpoint=first.endpoint)
            if transport == "tcp":
                address = first.metrics.removeprefix("http://").removesuffix("/metrics")
                _assert_refused(tmp_path, identity, two_places, "--metrics", address)
            load.wait_for_answers(20)
        assert load.faults == []
        assert load.results == load.sent
        with Client(first.endpoint, timeout_s=PATIENCE_S) as late:
            assert late.metadata()["model"]["name"] == NAME
            assert (late.infer(frame_of(9)).output == frame_of(9)).all()

        with Load(first.endpoint) as load:
            load.wait_for_answers(50)
            first.assert_no_named_memory()
            first.popen.kill()
            first.wait()
            load.finish(wait=False)
        assert load.faults == []
        first.assert_no_process()
        with DaemonProcess(tmp_path, identity, "--machine", two_places, endpoint=first.endpoint) as second:
            assert (second.control.infer(frame_of(3)).output == frame_of(3)).all()
        assert sorted(tmp_path.glob("public*")) == [], "the second start took the old sockets over, and removed them"
        assert leftovers(first.runtime) == []


def _assert_refused(folder: Path, model: Path, machine: Path, *more: str, endpoint: str = "tcp://127.0.0.1:0") -> None:
    with pytest.raises(DaemonEnded) as ended:
        DaemonProcess(folder, model, "--machine", machine, *more, endpoint=endpoint)
    assert ended.value.status == 2
    (said,) = complaints_of(ended.value.stderr)
    assert said.startswith("shisha-rt: ")
    assert "expected" in said


def _receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    assert socket.poll(PATIENCE_MS), "no answer"
    return socket.recv_multipart()


def commands_below(process: psutil.Process) -> list[list[str]]:
    return [command_of(child) for child in process.children(recursive=True)]


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("reading", signal.SIGTERM),
        ("compiling", signal.SIGHUP),
        ("measuring", signal.SIGTERM),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("reading", signal.SIGHUP),
                ("compiling", signal.SIGTERM),
                ("measuring", signal.SIGHUP),
                *product(("reading", "compiling", "measuring"), (signal.SIGINT,)),
            )
        ),
    ],
)
def test_a_signal_before_anything_runs_is_an_orderly_end_too(
    hears: None, identity: Path, four_places: Path, tmp_path: Path, moment: str, number: int
) -> None:
    """It ended with -15 or -1, and jobs went on without it, or left unfinished files."""
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = serve_command(identity, "--machine", four_places, endpoint=f"ipc://{tmp_path}/socket")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        starting = psutil.Process(started.pid)
        reached = {
            "reading": lambda: any("preparer" in " ".join(command) for command in commands_below(starting)),
            "compiling": lambda: any(cache.rglob("*unfinished*")),
            "measuring": lambda: any("stages.jobs" in " ".join(command) for command in commands_below(starting)),
        }
        until(reached[moment], moment, every_s=0)
        below = starting.children(recursive=True)
        started.send_signal(number)
        try:
            assert started.wait(PATIENCE_S) == 0
        finally:
            started.kill()
    until(lambda: not any(process.is_running() for process in below), "the end of every process")
    assert not list(cache.rglob("*unfinished*"))
    assert not (tmp_path / "socket").exists()
