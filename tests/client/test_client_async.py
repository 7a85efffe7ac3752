"""The asyncio client against the same scripted gateway."""

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
    ResourceExhausted,
    ShishaError,
    Timeout,
    Unavailable,
)
from shisha_rt.protocol.operations import Cancel
from tests.client.test_client import LONG_S, SHORT_S, frame_of, frames, in_reverse, never, odd_ones_fail, vanish
from tests.protocol.gateway import Frame, Gateway


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


def test_silence_is_a_timeout_and_cancels_the_frame() -> None:
    async def main() -> None:
        with Gateway(never) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                with pytest.raises(Timeout):
                    await client.infer(frame_of(1), timeout_s=SHORT_S, request_id="slow")
                assert await client.live()
            assert ("cancel", Cancel("slow")) in gateway.asked

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


def test_nobody_there_is_unavailable() -> None:
    async def main() -> None:
        async with AsyncClient("tcp://127.0.0.1:1", timeout_s=SHORT_S) as client:
            with pytest.raises(Unavailable, match="shisha-rt serve"):
                await client.infer(frame_of(1))

    run(main())


def test_each_call_waits_only_its_own_time_for_a_daemon() -> None:
    async def main() -> None:
        async with AsyncClient("tcp://127.0.0.1:1") as client:
            patient = asyncio.create_task(client.infer(frame_of(1)))
            await asyncio.sleep(0)  # let it be the one that asks for the metadata
            with pytest.raises(Unavailable):
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
            with pytest.raises(Unavailable, match="closed"):
                await task
            with pytest.raises(FailedPrecondition, match="closed"):
                await client.live()

    run(main())


def test_a_client_belongs_to_one_loop() -> None:
    with Gateway() as gateway:
        client = AsyncClient(gateway.endpoint)

        async def use() -> None:
            await client.live()

        async def use_elsewhere() -> None:
            with pytest.raises(FailedPrecondition, match="another event loop"):
                await client.live()
            await client.close()

        run(use())
        run(use_elsewhere())


async def slowly(count: int) -> AsyncIterator[Array]:
    for frame in frames(count):
        await asyncio.sleep(0)
        yield frame


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_is_in_order_whatever_the_order_of_the_answers(asynchronous: bool) -> None:
    async def main() -> None:
        with Gateway(in_reverse(4)) as gateway:
            async with AsyncClient(gateway.endpoint) as client, client.stream(in_flight=4) as stream:
                source = slowly(12) if asynchronous else frames(12)
                assert [answer.frame async for answer in stream.run(source)] == list(range(12))

    run(main())


def test_a_stream_has_no_more_in_flight_than_it_may_and_can_run_again() -> None:
    taken = 0

    def source() -> Iterator[Array]:
        nonlocal taken
        for value in range(10):
            taken += 1
            yield frame_of(value)

    async def main() -> None:
        nonlocal taken
        with Gateway() as gateway:
            async with AsyncClient(gateway.endpoint) as client, client.stream(in_flight=3) as stream:
                for _ in range(2):
                    taken = given = 0
                    async for answer in stream.run(source()):
                        assert answer.frame == given
                        given += 1
                        assert taken - given <= 3
                    assert given == 10

    run(main())


def test_errors_of_a_stream() -> None:
    def source() -> Iterator[Array]:
        yield from frames(2)
        yield np.zeros(1, np.int8)

    async def main() -> None:
        with Gateway(odd_ones_fail) as gateway:
            async with AsyncClient(gateway.endpoint) as client, client.stream() as stream:
                first, second, third = [outcome async for outcome in stream.run(source(), errors="return")]
                assert not isinstance(first, ShishaError)
                assert isinstance(second, ResourceExhausted)
                assert isinstance(third, InvalidArgument)
                with pytest.raises(ResourceExhausted):
                    async for _ in stream.run(frames(4)):
                        pass

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


def test_leaving_a_stream_cancels_what_is_in_flight() -> None:
    came: list[Frame] = []

    def answer_the_first(gateway: Gateway, frame: Frame) -> None:
        """Once all are there: a client that has its answer sooner sends no more."""
        came.append(frame)
        if len(came) == 3:
            gateway.answer(came[0])

    async def main() -> None:
        with Gateway(answer_the_first) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                async with client.stream(in_flight=3) as stream:
                    async for answer in stream.run(frames(3)):
                        assert answer.frame == 0
                        break
                assert await client.live()
            assert "cancel" in [op for op, _ in gateway.asked]

    run(main())


def test_operations() -> None:
    async def main() -> None:
        with Gateway() as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                assert await client.live() is True
                assert await client.ready() is False
                assert await client.status() == {"state": "serving"}
                assert (await client.plan())["epoch"] == 1
                assert (await client.metadata())["model"]["name"] == "double"
                assert (await client.events(5, 10))["next"] == 15
                assert await client.cancel("nothing") is False
                assert (await client.set_plan((await client.plan())["stages"]))["outcome"] == "live"

    run(main())
