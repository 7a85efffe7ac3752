"""The daemon's loop when a fault is its own: nobody who waits is left without an answer, and nothing stays behind."""

from __future__ import annotations

import errno
import os
import select
import signal
import termios
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import psutil
import pytest
import zmq

from shisha_rt.core.lifecycle.events import Beside, Descriptor, WorkerGone, WorkerHung
from shisha_rt.core.lifecycle.instructions import RunPart, Shared
from shisha_rt.daemon import server, start
from shisha_rt.daemon.children import preparer_link
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.gateway import Reply
from shisha_rt.daemon.front.requests import AnswerTo, Ticket
from shisha_rt.daemon.planning import first_cores
from shisha_rt.daemon.prepare import planned
from shisha_rt.daemon.prepared import Planning, PreparedModel
from shisha_rt.daemon.server import Daemon
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.daemon.settings import Settings
from shisha_rt.daemon.tracing import FrameTrace
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.config.machine_file import load_machine, parse_machine
from shisha_rt.machine.host import memory
from shisha_rt.machine.host.cgroups import ControlGroups
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.messages.worker import Done, Prepare, ToWorker
from shisha_rt.placement import placed_costs
from shisha_rt.process.child import _Servers
from shisha_rt.process.parent import exit_at_signals
from shisha_rt.process.readable import is_readable, queued_bytes
from shisha_rt.protocol.header import TensorData, TensorHeader, encode_infer, encode_operation
from shisha_rt.protocol.operations import PlaceSet
from shisha_rt.protocol.request import InferRequest, OpRequest
from tests.commands import command_of
from tests.machine.host.trees import write
from tests.serving.identity_model import frame_of, write_identity_model
from tests.serving.placed import described, machine_of
from tests.waiting import PATIENCE_S


class Fault(RuntimeError):
    pass


@pytest.fixture
def place_names() -> str:
    return "a"


@pytest.fixture
def prepared(tmp_path: Path, place_names: str) -> PreparedModel:
    core = f"cores = [{usable_cores()[0]}]\nshared = true\n"
    text = "".join(f'[[place]]\nname = "{name}"\n{core}' for name in place_names)
    ready = make_ready(write_identity_model(tmp_path), parse_machine(text, name="one", source="one"))
    return planned(ready, Planning(Settings("", strategy="seed")))


@pytest.fixture
def daemon(prepared: PreparedModel) -> Daemon:
    return Daemon(prepared, addresses_of(Settings("", endpoint="tcp://127.0.0.1:0", metrics="0")))


def submit(daemon: Daemon, count: int, answer_to: AnswerTo) -> None:
    raw = memoryview(frame_of(1).tobytes())
    for number in range(count):
        request = InferRequest(str(number), "s", None, None, {"x": raw}, ("y",), len(raw))
        daemon.shell.submit("c", request, answer_to)


def test_a_fault_of_its_own_is_told_to_whoever_waits(daemon: Daemon) -> None:
    answers: list[Ticket] = []
    before = psutil.Process().children()

    def fail_while_frames_wait() -> None:
        if daemon.shell.cores.lifecycle.live is not None:
            submit(daemon, 20, answers.append)  # more than there are slots
            raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=fail_while_frames_wait)
    assert [answer.request.id for answer in answers] == [str(number) for number in range(20)]
    assert {answer.error for answer in answers} <= {Error.DRAINING, Error.STOPPED}
    new = [child for child in psutil.Process().children() if child not in before]
    assert not [child for child in new if "stages.worker" in command_of(child)]


def test_a_fault_in_the_midst_of_an_event_leaves_no_client_without_an_answer(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was still to be done of the event was lost, a frame's answer too; so was that of an operation under way."""
    raw = frame_of(1).tobytes()
    tensor = TensorHeader("x", frame_of(1).shape, "FP32", TensorData(len(raw)))
    header = encode_infer("f", daemon.gateway.signature.model_name, (tensor,), None, ())
    client: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    monkeypatch.setattr(daemon.shell.shadow, "begin", lambda *_: None)
    monkeypatch.setattr(daemon.gateway, "endpoint", "ipc:///there/own")

    def fail(*_: object) -> None:
        raise Fault

    monkeypatch.setattr(daemon.shell.requests, "collect", fail)

    def ask() -> None:
        client.connect(daemon.gateway.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        client.send(encode_operation("shadow", "s", {"endpoint": "ipc:///there/new", "frames": 1}))
        client.send_multipart([header, raw])

    with client:
        with pytest.raises(Fault):
            daemon.run(on_ready=ask)
        answers = [msgspec.json.decode(client.recv()) for _ in range(2) if client.poll(1000)]
    assert {answer["id"]: answer["error"]["kind"] for answer in answers} == dict.fromkeys("sf", Error.STOPPED.value)


def test_a_part_counts_once_however_often_its_worker_tells_of_it(daemon: Daemon) -> None:
    """What no worker is to compute any more is none of the live plan's times."""
    shell = daemon.shell
    counted: list[tuple[int, float]] = []

    def tell_again_and_again() -> None:
        if (live := shell.cores.lifecycle.live) is None:
            return
        submit(daemon, 1, lambda answer: None)
        (part,) = (part for worker in shell.cores.lifecycle.places.workers.values() for part in worker.out)
        window = shell.telemetry.window(live[0], 0, "a")
        for service_s in (0.25, 99.0, 99.0):
            shell.hears[Done](Done(part, service_s, 0.0, 0.0, 0.0))
            counted.append((window.frames, window.service_s[-1]))
        raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=tell_again_and_again)
    assert counted == [(1, 0.25)] * 3
    assert shell.cores.lifecycle.frames.stale_replies == 2


def test_stages_that_are_paced_by_costs_of_devices_are_priced_by_the_placer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop solved each stage's placement when it was prepared: for a large network, for seconds."""
    device = described(tmp_path, "steady", 300e-6, "*")
    path = machine_of(tmp_path, left=[device], right=[device])
    path.write_text(f'timing = "modelled"\n{path.read_text()}')
    ready = make_ready(write_identity_model(tmp_path), load_machine(str(path)))
    prepared = planned(ready, Planning(Settings("", strategy="seed")), layer_costs(ready))
    daemon = Daemon(prepared, addresses_of(Settings("", endpoint="tcp://127.0.0.1:0", metrics="0")))
    send, sent = daemon.shell.supervisor.link.send, list[Prepare]()

    def fail(*_: object) -> None:
        raise Fault

    def note(incarnation: int, message: ToWorker, beside: int | None = None) -> WorkerHung | None:
        sent.extend([message] if isinstance(message, Prepare) else [])
        return send(incarnation, message, beside)

    def stop_once_live() -> None:
        if daemon.shell.cores.lifecycle.live is not None:
            daemon.stop()

    monkeypatch.setattr(placed_costs, "place_stage", fail)
    monkeypatch.setattr(daemon.shell.supervisor.link, "send", note)
    daemon.run(turn=stop_once_live)
    assert sent
    for order in sent:
        assert order.modelled_cpu_s == pytest.approx(len(order.placement) * 300e-6)


def test_a_worker_is_started_beside_the_loop(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waited for the fork server, whenever a worker had died."""
    begin, threads = _Servers.start, list[threading.Thread]()

    def start(*order: Any) -> int:
        threads.append(threading.current_thread())
        return begin(*order)

    monkeypatch.setattr(_Servers, "start", start)

    def stop_once_live() -> None:
        if daemon.shell.cores.lifecycle.live is not None:
            raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=stop_once_live)
    assert threads
    assert threading.main_thread() not in threads


def test_a_worker_that_cannot_be_started_ends_the_start_with_the_reason(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(_Servers, "start", refused)
    with pytest.raises(Failure, match="no more processes"):
        daemon.run()


def test_a_daemon_that_ends_while_its_workers_start_leaves_none(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start, begin = threading.Event(), _Servers.start
    monkeypatch.setattr(_Servers, "start", lambda *order: may_start.wait() and begin(*order))

    def fail() -> None:
        threading.Timer(0.1, may_start.set).start()
        raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=fail)
    assert not any("stages.worker" in command_of(child) for child in psutil.Process().children())


def test_a_worker_that_writes_without_end_is_read_a_page_at_a_time(daemon: Daemon) -> None:
    """All lines at once held the loop up for tens of milliseconds, again and again. A dead worker's are all read."""
    supervisor = daemon.shell.supervisor
    line, lines = b"a warning that is about as long as most of them\n", 1000

    def write_much() -> None:
        for process in supervisor.processes.values():
            running = process.running
            if running is None:  # it is being started
                return
            before = running.stderr
            reading, writing = os.pipe2(os.O_NONBLOCK)
            os.write(writing, line * lines + b"the last\n")
            supervisor._poller.unwatch(before)
            os.dup2(reading, before)
            supervisor._poller.watch(before, list)
            os.close(reading)
            os.close(writing)
            supervisor._read_stderr(process, before)
            assert queued_bytes(before, termios.FIONREAD) >= len(line) * lines - select.PIPE_BUF
            running.child.kill()
            assert is_readable(running.child.pidfd, PATIENCE_S)
            assert any(isinstance(event, WorkerGone) for event in supervisor._bury(process, running))
            assert process.last_lines[-1] == "the last"
            raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=write_much)


def test_a_frame_that_shares_a_run_is_traced_by_its_own_attempt(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that of the run's first frame a part that was still out counted as lost, and its end ended the daemon."""
    shell = daemon.shell
    traced, first = (
        Ticket(InferRequest("", None, None, None, {}, (), 0), number, lambda _: None, 0.0) for number in (1, 0)
    )
    traced.trace = FrameTrace(0.0, None)
    monkeypatch.setattr(shell, "_send", lambda incarnation, message: None)

    def run_two_branches() -> None:
        for incarnation in shell.cores.lifecycle.places.workers:
            shell._run(RunPart(Descriptor(incarnation, 1, 1, 0, 1, 1), 0.0, ticket=traced))
            together = Descriptor(incarnation, 0, 0, 1, 1, 0, (Beside(1, 1, 1),))
            shell._run(RunPart(together, 0.0, ticket=first, beside=(Shared(False, False, traced),)))
            assert traced.trace is not None
            for stage in (0, 1):
                traced.trace.done(stage, 0.1, 1.0)
        raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=run_two_branches)


@pytest.mark.parametrize("place_names", ["ab"])
def test_a_place_that_has_just_become_the_last_is_told_to_stay_up(daemon: Daemon) -> None:
    """Whoever took it down waited for ever; of several models, the host process moved it no more."""
    shell, answers = daemon.shell, list[bytes]()
    places = shell.cores.lifecycle.places

    def send(_: object, parts: Sequence[bytes]) -> bool:
        answers.append(parts[-1])
        return True

    def take_down_as_the_other_is_missed() -> None:
        if len(places.serving) < 2 or shell.cores.lifecycle.live is None:
            return
        places._policy = replace(places._policy, away_s=0.0, away_most_s=0.0)
        shell.post(WorkerGone(places.serving["b"].incarnation, None, "a test"), "a test")
        assert shell.cores.lifecycle.available == ("a", "b")  # until time passes
        request = OpRequest("place_set", "1", PlaceSet("a", down=True))
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(daemon.gateway.outbox, "send", send)
            daemon._operations.answer(request, Reply(daemon.gateway, b"c", [], "1"))
        raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=take_down_as_the_other_is_missed)
    assert [msgspec.json.decode(answer)["state"] for answer in answers] == ["up"]


def test_engines_own_weights_have_half_of_what_the_control_group_leaves(
    prepared: PreparedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a small container on a large host they were granted half of the host's, and were killed."""
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "fs" / "memory.max", 900_000)
    write(tmp_path / "fs" / "memory.current", 400_000)
    monkeypatch.setattr(memory, "ControlGroups", lambda: ControlGroups(tmp_path / "own", tmp_path / "fs"))
    assert first_cores(prepared).tuning.choice.spare_bytes == 250_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_a_daemon_runs_ends_it_in_order(
    prepared: PreparedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It raised an exception there, and nobody closed what had been opened."""
    made: list[Daemon] = []

    class Preparer:
        ask = watch = look = close = Mock()
        wait = Mock(return_value=prepared)

    def make(*arguments: Any) -> Daemon:
        made.append(Daemon(*arguments))
        os.kill(os.getpid(), number)
        return made[0]

    monkeypatch.setattr(preparer_link, "PreparerLink", Preparer)
    monkeypatch.setattr(server, "Daemon", make)
    socket = tmp_path / "socket"
    asked = SimpleNamespace(settings=Settings("", endpoint=f"ipc://{socket}", metrics="0"))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under `nohup`
    try:
        with exit_at_signals():
            start.start_daemon(cast(Any, asked), cast(Any, None), ServiceManager({}), print).run()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert made
    assert not socket.exists()
