"""What only the asynchronous client has: calls that overlap, tasks, loops, sources that are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

from shisha_rt.client import (
    Array,
    AsyncClient,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
)
from shisha_rt.client.lent_memory import LentMemory
from shisha_rt.errors import Error
from shisha_rt.protocol.operations import Cancel
from tests.client.test_client import LONG_S, SHORT_S, frame_of, frames, in_reverse, never, vanish
from tests.protocol.gateway import Frame, Gateway
from tests.wording import raised


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LONG_S))


def test_calls_overlap() -> None:
    async def main() -> None:
        with Gateway(in_reverse(5)) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                answers = await asyncio.gather(*(client.infer(frame) for frame in frames(5)))
                assert [answer.frame for answer in answers] == list(range(5))
                np.testing.assert_array_equal(answers[2].output, frame_of(4))
            assert [op for op, _ in gateway.asked] == ["server_metadata", "model_metadata"]

    run(main())


def test_a_cancelled_task_cancels_its_frame() -> None:
    async def main() -> None:
        with Gateway(never) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                await client.metadata()
                task = asyncio.create_task(client.infer(frame_of(1), request_id="unwanted"))
                while not gateway.held:
                    await client.live()
                task.cancel()
                await asyncio.wait({task})
                assert task.cancelled()
                assert await client.live()
            assert ("cancel", Cancel("unwanted")) in gateway.asked

    run(main())


def test_a_connection_that_is_lost_while_memory_is_awaited_is_taken_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lost: list[bool] = []
        with Gateway() as gateway:
            async with AsyncClient(gateway.endpoint) as client:

                def advance(_: LentMemory) -> None:
                    lost.append(True)
                    client._link.conversation.lose("the connection was lost")

                monkeypatch.setattr(LentMemory, "wants", property(lambda _: not lost))
                monkeypatch.setattr(LentMemory, "advance", advance)
                np.testing.assert_array_equal((await client.infer(frame_of(7))).output, frame_of(14))
        assert lost

    run(main())


def test_each_call_waits_only_its_own_time_for_a_daemon() -> None:
    async def main() -> None:
        async with AsyncClient("tcp://127.0.0.1:1") as client:
            patient = asyncio.create_task(client.infer(frame_of(1)))
            await asyncio.sleep(0)  # let it be the one that asks for the metadata
            with raised(Unavailable, Error.NO_DAEMON):
                await client.infer(frame_of(1), timeout_s=SHORT_S)
            patient.cancel()
            await asyncio.wait({patient})

    run(main())


def test_a_daemon_that_comes_later_is_waited_for() -> None:
    async def main() -> None:
        with Gateway() as gateway:
            pass
        async with AsyncClient(gateway.endpoint) as client:
            call = asyncio.create_task(client.live())
            with Gateway(endpoint=gateway.endpoint):
                assert await call

    run(main())


def test_a_daemon_that_vanishes_makes_all_in_flight_unavailable() -> None:
    def vanish_on_the_third(gateway: Gateway, frame: Frame) -> None:
        if frame.value == 2:
            vanish(gateway, frame)

    async def main() -> None:
        with Gateway(vanish_on_the_third) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                outcomes = await asyncio.gather(*(client.infer(frame) for frame in frames(3)), return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3

    run(main())


def test_closing_ends_what_is_in_flight() -> None:
    async def main() -> None:
        with Gateway(never) as gateway:
            client = AsyncClient(gateway.endpoint)
            await client.metadata()
            task = asyncio.create_task(client.infer(frame_of(1)))
            while not gateway.held:
                await client.live()
            await client.close()
            await client.close()
            with raised(Unavailable, Error.CONNECTION_LOST, match="closed"):
                await task
            with raised(FailedPrecondition, Error.CLIENT_MISUSED, match="closed"):
                await client.live()

    run(main())


def test_a_client_belongs_to_one_loop() -> None:
    with Gateway() as gateway:
        client = AsyncClient(gateway.endpoint)

        async def use() -> None:
            await client.live()

        async def use_elsewhere() -> None:
            with raised(FailedPrecondition, Error.CLIENT_MISUSED, match="another event loop"):
                await client.live()
            await client.close()

        run(use())
        run(use_elsewhere())


def test_a_client_whose_loop_runs_is_of_no_use_to_another_thread() -> None:
    """Its answers came to futures of the wrong loop, and its sockets were closed under it."""

    async def elsewhere(client: AsyncClient) -> None:
        for call in client.live(), client.infer(frame_of(2)), client.empty((1 << 20,), np.float32), client.close():
            with raised(FailedPrecondition, Error.CLIENT_MISUSED):
                await call

    async def main() -> None:
        with Gateway() as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                assert await client.live()
                await asyncio.to_thread(asyncio.run, elsewhere(client))
                np.testing.assert_array_equal((await client.infer(frame_of(1))).output, frame_of(2))

    run(main())


def test_one_id_given_twice_before_either_is_sent_is_refused_once() -> None:
    """Both were sent, and one of both calls never ended, whatever its timeout."""

    async def main() -> None:
        with Gateway(never) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                await client.signature()
                client._link.connected = False  # as it seems before a handshake
                calls = [asyncio.create_task(client.infer(frame_of(i), request_id="mine")) for i in (1, 2)]
                await asyncio.sleep(0.01)
                client._link.connected = True
                client._stirred.set()
                done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                with raised(InvalidArgument, Error.ID_IN_USE):
                    await done.pop()
                pending.pop().cancel()

    run(main())


def test_a_stream_that_is_cancelled_as_it_closes_cancels_its_frames() -> None:
    """As by a second Ctrl-C: an input that takes its time to end held up what was in flight."""

    async def source() -> AsyncIterator[Array]:
        try:
            for frame in frames(3):
                yield frame
            await asyncio.sleep(LONG_S)
        finally:
            await asyncio.sleep(0.1)

    async def main() -> None:
        with Gateway(never) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                stream = client.stream()
                task = asyncio.create_task(anext(stream.run(source())))
                while len(gateway.held) < 3:
                    await client.live()
                task.cancel()
                await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.wait({task})
                assert await client.live()
            targets = {arguments.target for _, arguments in gateway.asked if isinstance(arguments, Cancel)}
            assert len(targets) == 3

    run(main())


async def slowly(count: int) -> AsyncIterator[Array]:
    for frame in frames(count):
        await asyncio.sleep(0)
        yield frame


def test_a_stream_may_take_its_frames_from_an_asynchronous_source() -> None:
    async def main() -> None:
        with Gateway(in_reverse(4)) as gateway:
            async with AsyncClient(gateway.endpoint) as client, client.stream(in_flight=4) as stream:
                assert [answer.frame async for answer in stream.run(slowly(12))] == list(range(12))

    run(main())


def test_a_source_that_fails_ends_its_stream_after_what_it_gave() -> None:
    def source() -> Iterator[Array]:
        yield from frames(2)
        raise ZeroDivisionError

    async def main() -> None:
        got: list[int] = []
        with Gateway() as gateway:
            async with AsyncClient(gateway.endpoint) as client, client.stream() as stream:
                try:
                    async for answer in stream.run(source()):
                        got.append(answer.frame)
                except ZeroDivisionError:
                    got.append(-1)
        assert got == [0, 1, -1]

    run(main())
