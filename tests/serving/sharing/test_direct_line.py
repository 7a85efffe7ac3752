"""Clients on the daemon's host send everything over a direct line, once they have one, and nothing gets lost there."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest

from shisha_rt.client import (
    Answer,
    AsyncClient,
    Client,
    FailedPrecondition,
    ResourceExhausted,
    ShishaError,
    Unavailable,
)
from shisha_rt.client.local_socket import take_line
from shisha_rt.errors import Error
from shisha_rt.process.channel import SMALL_BYTES, Channel
from shisha_rt.protocol.multipart import send_parts
from tests.process.descriptors import descriptors_to_be_had
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import SHAPE, Array, frame_of, write_identity_model
from tests.waiting import PATIENCE_S, until
from tests.wording import raised


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("line")
    with DaemonProcess(folder, write_identity_model(folder), "--machine", machine_file(folder, ["a", "b"])) as running:
        yield running


@pytest.fixture
def sent_by_zeromq(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    sent: list[object] = []

    def send(*given: Any, **more: Any) -> None:
        sent.append(given)
        send_parts(*given, **more)

    monkeypatch.setattr("shisha_rt.client.link.send_parts", send)
    return sent


def test_nothing_goes_by_zeromq_then(daemon: DaemonProcess, sent_by_zeromq: list[object]) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(frame_of(0))
        before = len(sent_by_zeromq)
        with client.stream() as stream:
            outputs = [answer.output for answer in stream.run(map(frame_of, range(50)))]
        assert all(np.array_equal(output, frame_of(number)) for number, output in enumerate(outputs))
        assert client.status()["model"]["name"]
        assert client.events(limit=1000)["events"]
        assert len(sent_by_zeromq) == before
        assert client.set_plan(LARGE)["outcome"] == "refused"


def test_so_it_is_if_metadata_and_an_array_are_asked_for_first(sent_by_zeromq: list[object], tmp_path: Path) -> None:
    """Memory that was shared before the line was asked for kept the client from it for good."""
    model = write_identity_model(tmp_path, size=64, name="large")
    shape = (1, SHAPE[1], 64, 64)

    def sent_for(outputs: Answer, number: int) -> int:
        assert np.array_equal(outputs.output, frame_of(number, shape))
        return len(sent_by_zeromq)

    with DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, ["a"])) as running:
        with Client(running.endpoint, timeout_s=PATIENCE_S) as client:
            client.metadata()
            frame = client.empty(shape, np.float32)
            frame[...] = frame_of(3, shape)
            before = len(sent_by_zeromq)
            assert sent_for(client.infer(frame), 3) == before

        async def main() -> None:
            async with AsyncClient(running.endpoint, timeout_s=PATIENCE_S) as client:
                await client.metadata()
                frame = await client.empty(shape, np.float32)
                frame[...] = frame_of(4, shape)
                before = len(sent_by_zeromq)
                assert sent_for(await client.infer(frame), 4) == before

        asyncio.run(main())


def test_no_frame_asks_whether_a_value_is_of_a_protocol(daemon: DaemonProcess) -> None:
    entered: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, client.stream() as stream:

        def frames(count: int) -> Iterator[Array]:
            for _ in range(count):
                array = client.empty(SHAPE, np.float32)
                array[...] = 1
                yield array

        list(stream.run(frames(8)))
        sys.setprofile(note)
        try:
            answers = list(stream.run(frames(8)))
        finally:
            sys.setprofile(None)
    assert len(answers) == 8
    assert ("link", "try_send") in entered
    assert ("typing", "__instancecheck__") not in entered  # which takes tens of microseconds


def test_the_same_with_asyncio(daemon: DaemonProcess, sent_by_zeromq: list[object]) -> None:
    async def main() -> None:
        async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:
            # All at once, before there is a line: none of them overtakes another.
            answers = await asyncio.gather(*[client.infer(frame_of(k), stream="s", sequence=k) for k in range(20)])
            assert [answer.sequence for answer in answers] == [*range(20)]
            before = len(sent_by_zeromq)
            async with client.stream() as stream:
                outputs = [answer.output async for answer in stream.run(map(frame_of, range(50)))]
            assert all(np.array_equal(output, frame_of(number)) for number, output in enumerate(outputs))
            assert len(sent_by_zeromq) == before

    asyncio.run(main())


def test_without_sharing_there_is_none(daemon: DaemonProcess, sent_by_zeromq: list[object]) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S, share=False) as client:
        client.infer(frame_of(0))
        before = len(sent_by_zeromq)
        client.infer(frame_of(1))
        assert len(sent_by_zeromq) == before + 1


def test_more_than_the_line_takes_waits_for_a_stopped_daemon(tmp_path: Path) -> None:
    """Its buffer is full long before all requests are in it; each is answered in the end, and once."""
    size = 64
    model = write_identity_model(tmp_path, size=16, name="wide")
    shape = (1, SHAPE[1], 16, 16)

    async def main(daemon: DaemonProcess) -> None:
        async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:
            await client.infer(frame_of(0, shape))
            daemon.popen.send_signal(signal.SIGSTOP)
            asked = [asyncio.create_task(client.infer(frame_of(k, shape))) for k in range(size)]
            await asyncio.sleep(0.2)
            daemon.popen.send_signal(signal.SIGCONT)
            answers = await asyncio.gather(*asked)
            assert all(np.array_equal(answer.output, frame_of(k, shape)) for k, answer in enumerate(answers))

    with DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, ["a", "b"])) as daemon:
        asyncio.run(main(daemon))
        with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, client.stream(in_flight=size) as stream:
            client.infer(frame_of(0, shape))
            daemon.popen.send_signal(signal.SIGSTOP)
            threading.Timer(0.2, daemon.popen.send_signal, [signal.SIGCONT]).start()
            outputs = [answer.output for answer in stream.run(frame_of(k, shape) for k in range(2 * size))]
            assert all(np.array_equal(output, frame_of(k, shape)) for k, output in enumerate(outputs))


def test_with_its_line_a_client_loses_its_daemon_and_finds_the_next(tmp_path: Path) -> None:
    """The line may end before ZeroMQ has noticed anything."""
    endpoint = f"ipc://{tmp_path}/daemon"
    model, machine = write_identity_model(tmp_path), machine_file(tmp_path, ["a", "b"])
    with Client(endpoint, timeout_s=PATIENCE_S) as client:
        for number in range(2):
            with DaemonProcess(tmp_path, model, "--machine", machine, endpoint=endpoint) as daemon:
                assert isinstance(client.infer(frame_of(number)), Answer)
                daemon.popen.kill()
                daemon.popen.wait()
            with pytest.raises(ShishaError):
                client.infer(frame_of(number), timeout_s=0.3)


def test_a_line_that_the_daemon_ends_is_followed_by_another_connection(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(frame_of(0))
        line = client._link._line
        assert line is not None
        with socket.socket(fileno=os.dup(line.fileno())) as end, Path(os.devnull).open() as no_message:
            socket.send_fds(end, [bytes(8)], [no_message.fileno()])

        def answers_by_another() -> bool:
            """A frame that is underway as the line ends goes by ZeroMQ; the next asks for a line first."""
            try:
                assert np.array_equal(client.infer(frame_of(1)).output, frame_of(1))
            except Unavailable:
                return False
            return client._link._line not in (None, line)

        until(answers_by_another, "an answer over the next connection")


def test_another_descriptor_with_the_number_of_a_line_that_has_ended_is_left_alone(daemon: DaemonProcess) -> None:
    """Without descriptors for another connection, the event loop went on watching for the line under its number; and
    whoever had the number next was not watched any more once there was another connection.
    """

    async def main() -> None:
        async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:
            await client.infer(frame_of(0))
            line = client._link.line_descriptor
            assert line is not None
            with socket.socket(fileno=os.dup(line)) as end, descriptors_to_be_had(0):
                end.shutdown(socket.SHUT_RDWR)
                while client._link.line_descriptor is not None:
                    await asyncio.sleep(0)
                while (other := _descriptor_to_be_had()) is None:  # libzmq closes those of its attempt by and by
                    await asyncio.sleep(0)
            assert other == line
            came = asyncio.Event()
            asyncio.get_running_loop().add_reader(other, came.set)
            assert np.array_equal((await client.infer(frame_of(1))).output, frame_of(1))
            os.eventfd_write(other, 1)
            async with asyncio.timeout(PATIENCE_S):
                await came.wait()
            asyncio.get_running_loop().remove_reader(other)
            os.close(other)

    asyncio.run(main())


def _descriptor_to_be_had() -> int | None:
    try:
        return os.eventfd(0)
    except OSError:
        return None


LARGE: Final = [{"first": 0, "last": 0, "places": ["a" * 250] * 160}]
"""Stages that no plan has, of more bytes than a datagram takes."""


def test_a_request_that_finds_no_descriptor_is_told_so(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries it again now and then; it did so without a pause, as the line was free."""
    tried: list[int] = []
    try_send = Channel.try_send

    def counting(channel: Channel, data: bytes) -> bool:
        tried.append(len(data))
        return try_send(channel, data)

    monkeypatch.setattr(Channel, "try_send", counting)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(frame_of(0))
        before = len(tried)
        with descriptors_to_be_had(0), raised(ResourceExhausted, Error.TOO_MANY_OPEN):
            client.set_plan(LARGE, timeout_s=0.2)
        assert len(tried) - before < 10
        assert np.array_equal(client.infer(frame_of(1)).output, frame_of(1))


def test_a_request_that_finds_no_descriptor_waits_for_one(daemon: DaemonProcess) -> None:
    async def main() -> None:
        async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:
            await client.infer(frame_of(0))
            with descriptors_to_be_had(0):
                with raised(ResourceExhausted, Error.TOO_MANY_OPEN):
                    await client.set_plan(LARGE, timeout_s=0.2)
                asked = asyncio.create_task(client.set_plan(LARGE))
                while client._link._line is None or not client._link._line.lacks:
                    await asyncio.sleep(0)
            assert (await asked)["outcome"] == "refused"  # it has reached the daemon

    asyncio.run(main())


def test_a_request_larger_than_files_may_be_says_so_and_loses_nothing(daemon: DaemonProcess) -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(frame_of(0))
        line = client._link._line
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, hard))
        try:
            with raised(ResourceExhausted, Error.TOO_MANY_OPEN, match="File too large"):
                client.set_plan(LARGE, timeout_s=0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert client._link._line is line
        assert np.array_equal(client.infer(frame_of(1)).output, frame_of(1))


def test_an_answer_that_finds_no_descriptor_is_lost_and_says_why(daemon: DaemonProcess) -> None:
    ours, theirs = Channel.pair()
    theirs.setblocking(False)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(frame_of(0))
        link = client._link
        assert link._line is not None
        link._line.close()
        link._line = Channel(theirs)
        link._set_polled()
        ours.send(bytes(SMALL_BYTES + 1))
        link._looked_s = math.inf  # it is to be read after the request has been sent
        with descriptors_to_be_had(0), raised(Unavailable, Error.CONNECTION_LOST, match="files open"):
            client.infer(frame_of(1))
        ours.close()
        assert np.array_equal(client.infer(frame_of(2)).output, frame_of(2))


def test_a_line_that_was_refused_is_asked_for_again(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not while a frame is in flight, which the next would overtake."""

    def refused(end: socket.socket, _: str | None) -> Channel:
        return take_line(end, "another")

    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        link = client._link
        with monkeypatch.context() as patch:
            patch.setattr("shisha_rt.client.link.take_line", refused)
            client.infer(frame_of(0))
        client.infer(frame_of(0))
        assert link.line_descriptor is None
        overtaken: list[bool] = []
        advance = link.advance_line

        def noted(wait_s: float) -> None:
            overtaken.append(link.conversation.has_frames)
            advance(wait_s)

        monkeypatch.setattr(link, "advance_line", noted)
        with client.stream(in_flight=2) as stream:
            for number, answer in enumerate(stream.run(map(frame_of, range(10)))):
                link._ask_line_s = 0.0
                assert np.array_equal(answer.output, frame_of(number))
        client.infer(frame_of(1))
        assert not any(overtaken)
        assert link.line_descriptor is not None


def test_a_client_left_half_closed_by_ctrl_c_is_closed(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    shut_down = Channel.shut_down

    def interrupted(line: Channel) -> None:
        shut_down(line)
        raise KeyboardInterrupt

    client = Client(daemon.endpoint, timeout_s=0.5)
    client.infer(frame_of(0), timeout_s=PATIENCE_S)
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "shut_down", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.close()
    with raised(FailedPrecondition, Error.CLIENT_MISUSED):
        client.infer(frame_of(1))


def test_where_no_socket_is_there_is_no_line(daemon: DaemonProcess, sent_by_zeromq: list[object]) -> None:
    """As for a client on another host, or in a container."""
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        folder = Path(client.call("server_metadata")["shared_memory_socket"]).parent
        aside = folder.rename(folder.with_name("aside"))
        try:
            client.infer(frame_of(0))
            before = len(sent_by_zeromq)
            client.infer(frame_of(1))
            assert len(sent_by_zeromq) == before + 1
        finally:
            aside.rename(folder)
