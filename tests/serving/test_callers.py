"""Frames that one connection passes on for several callers: each of them has turns and room of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from shisha_rt.client import AsyncClient, ResourceExhausted
from shisha_rt.errors import Code, Error
from shisha_rt.protocol.limits import Limits
from tests.http.http_caller import INFER, HttpCaller
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, SHAPE, frame_of
from tests.waiting import PATIENCE_S, until

MOST: Final = Limits().max_in_flight
"""Of a client that is alone: half of all room."""
BEYOND: Final = 8


@pytest.fixture(scope="module")
def daemon(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """Without runs of several frames few have a slot, whatever they were measured to gain: the others take turns."""
    folder = tmp_path_factory.mktemp("callers")
    grpc = ("--grpc", "0") if find_spec("grpc") else ()
    with DaemonProcess(folder, identity, "--http", "127.0.0.1:0", *grpc, "--hang-s", "60", "--batch", "1") as running:
        yield running


def in_flight(daemon: DaemonProcess) -> int:
    return int(daemon.control.status()["frames"]["in_flight"])


def test_a_caller_that_sends_too_much_leaves_turns_and_room_to_others(daemon: DaemonProcess) -> None:
    answered, refused = asyncio.run(_greedy_and_modest(daemon))
    assert refused == ["greedy"] * BEYOND
    assert answered.count("greedy") == MOST
    assert answered.index("modest") < MOST / 4, "it had waited for all that came before"


async def _greedy_and_modest(daemon: DaemonProcess) -> tuple[list[str], list[str]]:
    """Whose frames were answered, in the order of answers, and whose were refused."""
    answered, refused = list[str](), list[str]()
    async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:

        async def ask(caller: str) -> None:
            try:
                await client.infer(frame_of(1), caller=caller)
            except ResourceExhausted:
                refused.append(caller)
            else:
                answered.append(caller)

        async with asyncio.TaskGroup() as asking:
            with daemon.workers_stopped():
                for _ in range(MOST + BEYOND):
                    asking.create_task(ask("greedy"))
                while len(refused) < BEYOND:
                    await asyncio.sleep(0.01)
                asking.create_task(ask("modest"))
                while in_flight(daemon) <= MOST:
                    await asyncio.sleep(0.01)
    return answered, refused


def test_each_connection_over_http_has_room_of_its_own(daemon: DaemonProcess) -> None:
    with contextlib.ExitStack() as closing:
        callers = [closing.enter_context(contextlib.closing(HttpCaller(daemon.http[0]))) for _ in range(MOST + BEYOND)]
        with daemon.workers_stopped():
            for number, caller in enumerate(callers):
                caller.send_frame(frame_of(number))
            until(lambda: in_flight(daemon) == len(callers), "all frames accepted")
        for number, caller in enumerate(callers):
            status, output = caller.answer(frame_of(number).shape)
            assert status == 200, output
            assert (output == frame_of(number)).all()


def test_a_daemon_that_is_full_has_http_refuse_before_a_body_is_sent(daemon: DaemonProcess) -> None:
    asyncio.run(_refused_early(daemon))
    with contextlib.closing(HttpCaller(daemon.http[0])) as caller:
        until(lambda: caller.infer(frame_of(5))[0] == 200, "room")


def is_known_to_be_full(daemon: DaemonProcess) -> bool:
    """Whether the HTTP process has been told, by a flag that it shares with the daemon: that is later than `status`."""
    descriptors = Path(f"/proc/{daemon.pid}/fd")
    return next(fd for fd in descriptors.iterdir() if "memfd:flag" in str(fd.readlink())).read_bytes() == b"\1"


async def _refused_early(daemon: DaemonProcess) -> None:
    def refused() -> int:
        return int(daemon.control.status()["frames"]["answered"].get(Code.RESOURCE_EXHAUSTED.value, 0))

    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n".encode()
    async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client, asyncio.TaskGroup() as asking:
        with daemon.workers_stopped():
            for number in range(2 * MOST - 1):
                asking.create_task(client.infer(frame_of(number), caller=str(number)))
            while not is_known_to_be_full(daemon):
                await asyncio.sleep(0.01)
            before = refused()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(daemon.http[0].rpartition(":")[2]))
            for _ in range(2):
                writer.write(head)
                async with asyncio.timeout(PATIENCE_S):
                    answer = await reader.readuntil(b"}")
                assert answer.startswith(b"HTTP/1.1 429")
                assert Error.TOO_MANY_FRAMES.encode() in answer
                writer.write(bytes(900))  # it is dropped, and the connection goes on
            while refused() < before + 2:  # told once a second
                await asyncio.sleep(0.01)
            writer.close()


def test_each_connection_over_grpc_has_room_of_its_own(daemon: DaemonProcess) -> None:
    triton: Any = pytest.importorskip("tritonclient.grpc")
    tensor = triton.InferInput("x", list(SHAPE), "FP32")
    tensor.set_data_from_numpy(frame_of(1))
    refused, answered = list[str](), list[str]()

    def ask(client: Any, caller: str) -> None:
        def heard(result: Any, error: Any) -> None:
            (answered if error is None else refused).append(caller)

        client.async_infer(NAME, [tensor], heard)

    own = [("grpc.use_local_subchannel_pool", 1)]  # else both have one connection
    with contextlib.ExitStack() as closing:
        greedy, modest = (
            closing.enter_context(contextlib.closing(triton.InferenceServerClient(daemon.grpc[0], channel_args=own)))
            for _ in range(2)
        )
        with daemon.workers_stopped():
            for _ in range(MOST + BEYOND):
                ask(greedy, "greedy")
            until(lambda: len(refused) == BEYOND, "the greedy one refused")
            ask(modest, "modest")
            until(lambda: in_flight(daemon) == MOST + 1, "the modest one accepted")
        until(lambda: len(answered) == MOST + 1, "all answered")
    assert refused == ["greedy"] * BEYOND
    assert answered.count("modest") == 1
