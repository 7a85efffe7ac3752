"""The HTTP process lives and dies beside a daemon that goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shisha_rt.daemon.front.http_messages import TO_HTTP, Listener, ModelsChanged, ServeHttp, UsersChanged
from shisha_rt.process.child import start_with_channel
from shisha_rt.protocol.access import User, token_hash
from tests.http.http_caller import INFER, LENGTH, HttpCaller
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import Array, frame_of, write_identity_model
from tests.serving.tuned import events
from tests.waiting import until

SHAPE = (1, 64, 32, 32)  # takes some milliseconds: requests are under way for a while

Call = Callable[[str], HttpCaller]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all: the last test ends it."""
    folder = tmp_path_factory.mktemp("process")
    model = write_identity_model(folder, channels=SHAPE[1], size=SHAPE[2])
    arguments = (model, "--http", "127.0.0.1:0", "--http", f"unix:{folder / 'http.sock'}")
    with DaemonProcess(folder, *arguments) as process:
        yield process


@pytest.fixture
def call() -> Iterator[Call]:
    """Connections that are closed in the end."""
    with contextlib.ExitStack() as closing:
        yield lambda url: closing.enter_context(contextlib.closing(HttpCaller(url)))


def frame(number: int) -> Array:
    return frame_of(number, SHAPE)


def http_pid(daemon: DaemonProcess) -> int | None:
    running = daemon.running("shisha_rt.http.process")
    return running[0].pid if running else None


def assert_answers(caller: HttpCaller, number: int) -> None:
    status, output = caller.answer(SHAPE)
    assert status == 200, output
    assert (output == frame(number)).all()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (signal.SIGKILL, "killed by signal 9 (SIGKILL)"),
        pytest.param(signal.SIGSTOP, "it hangs: no sign of", marks=pytest.mark.long),
    ],
    ids=["killed", "stopped"],
)
def test_it_is_started_again_at_the_same_addresses(
    daemon: DaemonProcess, call: Call, end: signal.Signals, reason: str
) -> None:
    for url in daemon.http:
        caller = call(url)
        caller.send_frame(frame(1))
        assert_answers(caller, 1)
    killed = http_pid(daemon)
    assert killed is not None
    call(daemon.http[0]).send_frame(frame(2))
    os.kill(killed, end)
    waits = call(daemon.http[0])  # the address is the daemon's: whoever comes meanwhile is served by the next process
    waits.send_frame(frame(3))
    assert_answers(waits, 3)
    assert http_pid(daemon) != killed
    assert events(daemon.control, "http_died")[-1]["reason"].startswith(reason)
    assert daemon.control.infer(frame(4)).output.shape == SHAPE


def test_what_changes_while_it_starts_is_in_force(tmp_path: Path, call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        child, channel = start_with_channel("shisha_rt.http.process", [fd])
        endpoint, tcp = f"ipc://{tmp_path / 'no-daemon'}", Listener(fd, unix=False, beyond=False)
        users = User("old", token_sha256=token_hash("a")), User("new", token_sha256=token_hash("b"))
        try:
            for message in (  # the process is still importing
                ServeHttp(endpoint, (tcp,), users=users[:1], models=("a",)),
                UsersChanged(users[1:]),
                ModelsChanged(("a", "b"), ("a",)),
            ):
                channel.send(TO_HTTP.encode(message))
            caller = call(f"http://127.0.0.1:{listener.getsockname()[1]}")
            assert caller.ask("GET", "/page/caller", Authorization="Bearer a")[0] == 401
            _, _, answer = caller.ask("GET", "/page/caller", Authorization="Bearer b")
            assert json.loads(answer)["models"] == ["a", "b"]
        finally:
            child.end()
            channel.close()


def test_its_addresses_refuse_while_it_gives_the_last_answers(tmp_path: Path) -> None:
    """An answer of 4 MiB that is not read, more than the kernel keeps, holds the process up for its three seconds."""
    model = write_identity_model(tmp_path, channels=SHAPE[1], size=128)
    path = tmp_path / "http.sock"
    size = 4 * SHAPE[1] * 128 * 128
    with (
        DaemonProcess(tmp_path, model, "--http", "127.0.0.1:0", "--http", f"unix:{path}") as daemon,
        socket.socket() as slow,
    ):
        where = ("127.0.0.1", int(daemon.http[0].rpartition(":")[2]))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(where)
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n{LENGTH}: 0\r\nContent-Length: {size}\r\n\r\n"
        slow.sendall(head.encode() + bytes(size))
        assert slow.recv(1) == b"H"
        daemon.popen.send_signal(signal.SIGTERM)

        def is_refused() -> bool:
            with socket.socket() as late:
                return late.connect_ex(where) == errno.ECONNREFUSED

        until(is_refused, "a refusal")
        with socket.socket(socket.AF_UNIX) as late:
            assert late.connect_ex(str(path)) in (errno.ECONNREFUSED, errno.ENOENT)
        assert http_pid(daemon) is not None
        assert daemon.wait() == 0


def test_who_hangs_up_is_given_up_and_who_waits_is_answered_to_the_last(daemon: DaemonProcess, call: Call) -> None:
    assert call(daemon.http[1]).infer(frame(0), deadline_ms=0)[0] == 504
    gone = [call(daemon.http[0]) for _ in range(40)]
    with daemon.workers_stopped():  # else all may be answered before anybody looks
        for number, caller in enumerate(gone):
            caller.send_frame(frame(number))
        until(lambda: frames(daemon)["in_flight"] > 0, "frames")
        for caller in gone:
            caller.close()
        until(lambda: frames(daemon)["answered"].get("CANCELLED", 0) > 0, "cancelled frames")
    until(lambda: not connections(daemon), "the end of their connections")
    until(lambda: frames(daemon)["in_flight"] == 0, "the end of all their frames")
    assert call(daemon.http[0]).infer(frame(0))[0] == 200  # behind all that the HTTP process had still to pass on

    before = frames(daemon)["answered"]["OK"]
    callers = [call(url) for url in daemon.http * 8]
    for number, caller in enumerate(callers):
        caller.send_frame(frame(number))

    def came() -> Any:
        counted = frames(daemon)
        return counted["in_flight"] + counted["answered"]["OK"] - before

    until(lambda: came() >= len(callers), "all frames")
    daemon.popen.send_signal(signal.SIGTERM)
    for number, caller in enumerate(callers):
        assert_answers(caller, number)
    assert daemon.wait() == 0
    daemon.assert_nothing_left()
    assert not Path(daemon.http[1].removeprefix("unix:")).exists()


def connections(daemon: DaemonProcess) -> list[object]:
    """Of callers over TCP: whatever these have sent is with the daemon, or never will be, when there are none."""
    port = int(daemon.http[0].rpartition(":")[2])
    sockets = psutil.Process(http_pid(daemon)).net_connections("tcp")
    return [
        connection
        for connection in sockets
        if connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED
    ]


def frames(daemon: DaemonProcess) -> dict[str, Any]:
    counts: dict[str, Any] = daemon.control.status()["frames"]
    return counts
