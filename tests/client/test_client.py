"""Both clients against a real socket, whose other end follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
import zmq.asyncio

from shisha_rt.client import (
    Answer,
    Array,
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    ShishaError,
    Timeout,
    Unavailable,
    link,
)
from shisha_rt.client.link import TIMEOUT_S, Context
from shisha_rt.errors import Code, Error
from shisha_rt.plan.form import read
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol import multipart
from shisha_rt.protocol.header import TensorHeader, encode_infer
from shisha_rt.protocol.limits import MAX_HEADER_BYTES
from shisha_rt.protocol.operations import Cancel, Events, PlanSet
from tests.client.awaited import AwaitedClient
from tests.process.descriptors import descriptors_to_be_had
from tests.protocol.gateway import SIGNATURE, Frame, Gateway, Gone, Script, echo
from tests.waiting import PATIENCE_S
from tests.wording import raised

LONG_S = PATIENCE_S
SHORT_S = 0.2

Connect = Callable[..., Any]


@pytest.fixture(params=["synchronous", "asynchronous"])
def client_of(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Either client, which these tests cannot tell apart."""
    if request.param == "synchronous":
        yield Client
    else:
        with asyncio.Runner() as runner:
            yield partial(AwaitedClient, runner)


def frame_of(value: float) -> Array:
    return np.full((1, 3), value, np.float32)


def frames(count: int) -> Iterator[Array]:
    return map(frame_of, range(count))


def in_reverse(batch: int) -> Script:
    """A script that holds `batch` frames and then answers the last one first."""

    def script(gateway: Gateway, frame: Frame) -> None:
        gateway.held.append(frame)
        if len(gateway.held) == batch:
            while gateway.held:
                gateway.answer(gateway.held.pop())

    return script


def never(gateway: Gateway, frame: Frame) -> None:
    gateway.held.append(frame)


def vanish(gateway: Gateway, frame: Frame) -> None:
    raise Gone


class Frozen:
    """A script by which the whole gateway stands still from its first frame until `thaws` is set."""

    def __init__(self) -> None:
        self.thaws = threading.Event()

    def __call__(self, gateway: Gateway, frame: Frame) -> None:
        assert self.thaws.wait(LONG_S)
        gateway.answer(frame)


def odd_ones_fail(gateway: Gateway, frame: Frame) -> None:
    if frame.value % 2:
        gateway.fail(frame, Error.TOO_MANY_FRAMES)
    else:
        gateway.answer(frame)


def test_infer_gives_the_output_and_what_the_daemon_says_of_it(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        answer = client.infer(frame_of(7), stream="camera", sequence=3)
        np.testing.assert_array_equal(answer.output, frame_of(14))
        assert (answer.epoch, answer.frame, answer.sequence) == (1, 7, 3)
        assert (answer.queue_s, answer.compute_s) == (0.001, 0.002)
        assert not answer.output.flags.writeable
        assert answer.output.base is not None  # a view of the message


def test_a_daemon_that_says_nothing_for_too_long_counts_as_lost(client_of: Connect) -> None:
    frozen = Frozen()
    with (
        Gateway(frozen) as gateway,
        client_of(gateway.endpoint, timeout_s=math.inf, silence_s=SHORT_S) as client,
    ):
        with raised(Unavailable, Error.CONNECTION_LOST):
            client.infer(frame_of(1))
        frozen.thaws.set()
        np.testing.assert_array_equal(client.infer(frame_of(2)).output, frame_of(4))


def test_who_accepts_and_does_not_greet_is_there_for_as_long_as_a_call_takes() -> None:
    """A handshake was given up after the 30 s that a call takes: a stopped daemon was said not to be there."""
    with Client("tcp://127.0.0.1:1") as client:
        assert int(client._link.socket.get(zmq.HANDSHAKE_IVL)) > 1e3 * TIMEOUT_S


def test_a_daemon_that_answers_probes_may_take_its_time(client_of: Connect) -> None:
    with Gateway(never) as gateway, client_of(gateway.endpoint, timeout_s=3, silence_s=SHORT_S) as client:
        with raised(Timeout, Error.NO_ANSWER):
            client.infer(frame_of(1))
        assert client.live()


def test_a_timeout_may_be_infinite_and_is_a_number(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=math.inf) as client:
        np.testing.assert_array_equal(client.infer(frame_of(7)).output, frame_of(14))
        with raised(InvalidArgument, Error.MALFORMED_REQUEST):
            client.infer(frame_of(7), timeout_s=math.nan)


def test_whoever_waits_to_send_may_do_so_without_end() -> None:
    with Gateway() as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        client.infer(frame_of(7))
        for timeout_s in (math.inf, 1e12):  # a poll takes a number of milliseconds that an int holds
            assert client._link.wait(timeout_s, to_send=True) == []


def test_the_metadata_is_fetched_once(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        for value in range(3):
            client.infer({"x": frame_of(value)})
        assert [op for op, _ in gateway.asked] == ["server_metadata", "model_metadata"]


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (np.zeros((1, 3)), "float64"),
        (np.zeros((1, 3), ">f4"), ">f4"),
        (np.zeros((3,), np.float32), r"shape \[3\]"),
        ({"z": np.zeros((1, 3), np.float32)}, "'z'"),
        ({}, "'x'"),
        ({"x": [1.0, 2.0, 3.0]}, "list"),
        ({1: np.zeros((1, 3), np.float32), "x": np.zeros((1, 3), np.float32)}, "'1'"),
        (np.ma.masked_array(np.zeros((1, 3), np.float32), mask=True), "filled"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_not_sent(
    client_of: Connect, inputs: dict[str, Array], complaint: str
) -> None:
    def unexpected(gateway: Gateway, frame: Frame) -> None:
        raise AssertionError("sent")

    with (
        Gateway(unexpected) as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        pytest.raises(InvalidArgument, match=complaint),
    ):
        client.infer(inputs)


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan"), float("inf")])
def test_a_deadline_must_be_a_time(client_of: Connect, deadline_s: float) -> None:
    with (
        Gateway() as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        raised(InvalidArgument, Error.MALFORMED_REQUEST, match="deadline_s"),
    ):
        client.infer(frame_of(1), deadline_s=deadline_s)


def test_numbers_and_names_may_be_numpys(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        terms = {
            "sequence": np.int64(3),
            "priority": np.int8(2),
            "deadline_s": np.float32(20),
            "outputs": np.array(["y"]),
        }
        assert client.infer(frame_of(1), stream=np.str_("s"), **terms).sequence == 3
        assert client.empty(np.int64(100_000), np.float32).shape == (100_000,)


@pytest.mark.parametrize("odd", [{"request_id": 5}, {"request_id": b"a"}, {"stream": "\ud800"}, {"sequence": object()}])
def test_what_has_no_place_in_a_header_is_not_sent(client_of: Connect, odd: dict[str, Any]) -> None:
    """A daemon cannot answer a request whose id is none: its call waited for nothing, and others raised TypeError."""
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=1) as client:
        with raised(InvalidArgument, Error.MALFORMED_REQUEST):
            client.infer(frame_of(1), **odd)
        with raised(InvalidArgument, Error.MALFORMED_REQUEST):
            client.call("events", since=object())
        assert client.call("server_live", id="another")["live"] is True


@pytest.mark.parametrize("silence_s", [0, -1, math.nan])
def test_a_silence_is_a_time(client_of: Connect, silence_s: float) -> None:
    with raised(InvalidArgument, Error.MALFORMED_REQUEST):
        client_of("tcp://127.0.0.1:1", silence_s=silence_s)


def test_what_no_daemon_would_read_is_not_sent(client_of: Connect) -> None:
    """It would end the connection, with all that is under way, and be sent again and again."""
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        assert client.live()
        for length in MAX_HEADER_BYTES, 1 << 24:
            with raised(InvalidArgument, Error.REQUEST_TOO_LARGE):
                client.call("place_set", place="a" * length, up=True)
        np.testing.assert_array_equal(client.infer(frame_of(1)).output, 2 * frame_of(1))


def test_outputs_may_be_chosen_by_name(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        assert list(client.infer(frame_of(1), outputs=["y"]).outputs) == ["y"]
        with raised(InvalidArgument, Error.UNKNOWN_TENSOR, match="no output 'z'"):
            client.infer(frame_of(1), outputs=["z"])


def test_arrays_that_are_not_contiguous_are_sent_right(client_of: Connect) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2).T[:1]
    assert not values.flags.c_contiguous
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        np.testing.assert_array_equal(client.infer(values).output, 2 * values)


def test_an_error_answer_becomes_the_exception_of_its_code(client_of: Connect) -> None:
    def too_late(gateway: Gateway, frame: Frame) -> None:
        gateway.fail(frame, Error.DEADLINE_PASSED, "after 5 ms")

    with Gateway(too_late) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        with raised(DeadlineExceeded, Error.DEADLINE_PASSED, match="after 5 ms") as caught:
            client.infer(frame_of(1), deadline_s=0.005, request_id="mine")
        assert (caught.value.code, caught.value.kind) == (Code.DEADLINE_EXCEEDED, Error.DEADLINE_PASSED)
        assert caught.value.request_id == "mine"
        with raised(NotFound, Error.UNKNOWN_MODEL):
            client.call("model_metadata", model_name="another")


@pytest.mark.parametrize("reply", [b"", b"[]", b'{"id":null,"error":{"code":"INTERNAL","message":""}}', b'{"id":"x"}'])
def test_replies_that_match_nothing_are_ignored(client_of: Connect, reply: bytes) -> None:
    def chatter(gateway: Gateway, frame: Frame) -> None:
        gateway.send(frame, reply)
        gateway.answer(frame)
        gateway.answer(frame)

    with Gateway(chatter) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        assert [client.infer(frame_of(value)).frame for value in range(3)] == [0, 1, 2]


def test_silence_is_a_timeout_and_cancels_the_frame(client_of: Connect) -> None:
    with Gateway(never) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        with raised(Timeout, Error.NO_ANSWER, match=r"no answer.* within 0\.2 s"):
            client.infer(frame_of(1), timeout_s=SHORT_S, request_id="slow")
        assert gateway.cancelled.wait(LONG_S)
        assert ("cancel", Cancel("slow")) in gateway.asked
        assert client.live()


def test_nobody_there_is_unavailable_and_says_what_to_start(client_of: Connect) -> None:
    with (
        client_of("tcp://127.0.0.1:1", timeout_s=SHORT_S) as client,
        raised(Unavailable, Error.NO_DAEMON, match=r"no daemon at tcp://127\.0\.0\.1:1 .*shisha-rt serve"),
    ):
        client.infer(frame_of(1))


def test_whom_a_socket_is_closed_to_is_not_told_to_start_a_daemon(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    endpoint = f"ipc://{closed / 's'}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(endpoint.removeprefix("ipc://"))
        listening.listen()
        closed.chmod(0)
        user = os.geteuid()
        if user == 0:  # to which no folder is closed
            os.seteuid(65534)
        try:
            with (
                Client(endpoint, timeout_s=SHORT_S) as client,
                raised(Unavailable, Error.NO_DAEMON, match="may not connect"),
            ):
                client.live()
        finally:
            os.seteuid(user)
            closed.chmod(0o700)


def test_who_listens_and_says_nothing_is_not_absent(client_of: Connect) -> None:
    """As a daemon that has been stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with client_of(endpoint, timeout_s=SHORT_S) as client, raised(Timeout, Error.NO_ANSWER, match=endpoint):
            client.live()


def test_who_has_accepted_as_many_as_it_can_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    """As a daemon that has been stopped, once many clients have tried to connect: the kernel lets the next one wait."""
    refused: list[ShishaError] = []

    def ask(endpoint: str) -> None:
        with Client(endpoint, timeout_s=SHORT_S) as client:
            try:
                client.live()
            except ShishaError as error:
                refused.append(error)

    path = str(tmp_path / "s")
    asking = threading.Thread(target=ask, args=(f"ipc://{path}",), daemon=True)
    with contextlib.ExitStack() as closing:
        listening = closing.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                other = closing.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(path)
        asking.start()
        asking.join(LONG_S)
        assert [error.kind for error in refused] == [Error.NO_DAEMON]
    asking.join()


def test_a_daemon_that_vanishes_makes_all_in_flight_unavailable_and_the_next_one_serves(client_of: Connect) -> None:
    with client_of("tcp://127.0.0.1:1"):  # another client in the same process changes nothing
        with Gateway(vanish) as gateway:
            client = client_of(gateway.endpoint, timeout_s=LONG_S)
            with raised(Unavailable, Error.CONNECTION_LOST, match="was lost"):
                client.infer(frame_of(1))
        seen: list[float] = []

        def count(gateway: Gateway, frame: Frame) -> None:
            seen.append(frame.value)
            gateway.answer(frame)

        with client, Gateway(count, endpoint=gateway.endpoint, instance="second") as successor:
            assert client.infer(frame_of(2)).frame == 2
            assert seen == [2.0]  # the lost frame was not sent again
            assert [op for op, _ in successor.asked] == ["server_metadata", "model_metadata"]


def test_descriptors_signal_what_happens_to_a_new_connection() -> None:
    """An asynchronous client whose daemon had gone noticed the next one only when five seconds were over."""
    with Gateway(echo) as gateway, Client(gateway.endpoint) as client:
        link = client._link
        for _ in range(20):
            link._turn_to(gateway.endpoint)
            while not link.connected:
                if not link.stirring:
                    assert select.select([link.socket, link.watch], [], [], PATIENCE_S)[0]
                link.drain()


def test_answers_that_came_before_the_daemon_went_count_however_late_they_are_read() -> None:
    """As when it ends in an orderly way, and its client is busy with the answer before."""

    def all_at_once(gateway: Gateway, frame: Frame) -> None:
        gateway.held.append(frame)
        if frame.value == 2:
            for held in gateway.held:
                gateway.answer(held)

    with Gateway(all_at_once, drains=True) as gateway:
        client = Client(gateway.endpoint, timeout_s=LONG_S)
        answers = client.stream(in_flight=4).run(frames(3))
        assert next(answers).frame == 0
    with client:
        assert client._link.watch.poll(int(LONG_S * 1e3)), "the connection is lost"
        assert [answer.frame for answer in answers] == [1, 2]


def test_a_changed_instance_makes_all_in_flight_unavailable(client_of: Connect) -> None:
    """As behind a proxy: the connection stays, the daemon does not."""

    def replaced(gateway: Gateway, frame: Frame) -> None:
        gateway.instance = "second"

    with (
        Gateway(replaced) as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        raised(Unavailable, Error.CONNECTION_LOST, match="restarted"),
    ):
        client.infer(frame_of(1))


def test_a_stream_is_in_order_whatever_the_order_of_the_answers(client_of: Connect) -> None:
    with (
        Gateway(in_reverse(4)) as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        client.stream(in_flight=4) as stream,
    ):
        assert [answer.frame for answer in stream.run(frames(12))] == list(range(12))


def test_a_stream_has_no_more_in_flight_than_it_may_and_can_run_again(client_of: Connect) -> None:
    taken = 0

    def source() -> Iterator[Array]:
        nonlocal taken
        for value in range(10):
            taken += 1
            yield frame_of(value)

    with (
        Gateway() as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        client.stream(in_flight=3) as stream,
    ):
        for _ in range(2):
            taken = given = 0
            for answer in stream.run(source()):
                assert answer.frame == given
                given += 1
                assert taken - given <= 3
            assert given == 10


def test_a_stream_may_take_its_frames_from_one_array(client_of: Connect) -> None:
    def source() -> Iterator[Array]:
        array = frame_of(0)
        for value in range(20):
            array[:] = value
            yield array

    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client, client.stream() as stream:
        assert [answer.frame for answer in stream.run(source())] == list(range(20))


def test_a_frame_that_fails_is_raised_at_its_turn(client_of: Connect) -> None:
    with Gateway(odd_ones_fail) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        with client.stream() as stream:
            answers = stream.run(frames(4))
            assert next(answers).frame == 0
            with raised(ResourceExhausted, Error.TOO_MANY_FRAMES):
                next(answers)
        assert client.live()


def test_frames_that_fail_are_returned_on_request(client_of: Connect) -> None:
    def source() -> Iterator[Array]:
        yield from frames(2)
        yield np.zeros(1, np.int8)

    with (
        Gateway(odd_ones_fail) as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        client.stream() as stream,
    ):
        first, second, third = stream.run(source(), errors="return")
        assert not isinstance(first, ShishaError)
        assert isinstance(second, ResourceExhausted)
        assert isinstance(third, InvalidArgument)


def test_leaving_a_stream_cancels_what_is_in_flight(client_of: Connect) -> None:
    came: list[Frame] = []

    def answer_the_first(gateway: Gateway, frame: Frame) -> None:
        """Once all are there: a client that has its answer sooner sends no more."""
        came.append(frame)
        if len(came) == 3:
            gateway.answer(came[0])

    with Gateway(answer_the_first) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        with client.stream(in_flight=3) as stream:
            assert next(stream.run(frames(3))).frame == 0
        assert client.live()
        assert gateway.cancelled.wait(LONG_S)


def test_a_stream_that_is_closed_as_it_runs_has_ended(client_of: Connect) -> None:
    """It went on without the answers that had been in flight, or for ever waited for them."""
    with (
        Gateway() as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S) as client,
        client.stream(in_flight=3) as stream,
    ):
        answers = stream.run(frames(9))
        assert next(answers).frame == 0
        stream.close()
        again = stream.run(frames(2))
        assert next(again).frame == 0
        assert list(answers) == []
        assert [answer.frame for answer in again] == [1]


def test_a_stream_that_its_source_closes_has_ended() -> None:
    with Gateway() as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        stream = client.stream()

        def source() -> Iterator[Array]:
            stream.close()
            yield frame_of(1)

        assert list(stream.run(source())) == []
        assert client.infer(frame_of(3)).frame == 3


def test_operations(client_of: Connect) -> None:
    with Gateway() as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        assert client.live() is True
        assert client.ready() is False
        assert client.status() == {"state": "serving"}
        assert client.plan()["stages"][0]["places"] == ["fast0"]
        assert client.metadata()["server"]["instance"] == "first"
        assert client.metadata()["model"]["platform"] == "onnx"
        assert client.events(5, 10) == {"events": [{"number": 5}], "next": 15}
        assert client.cancel("nothing") is False
        plan = Plan.of([(0, 1, "fast0"), (2, 3, "slow0")])
        outcomes = [client.set_plan(plan), client.set_plan(client.plan()["stages"], timeout_s=LONG_S)]
        assert [outcome["outcome"] for outcome in outcomes] == ["live", "live"]
        asked = [arguments for _, arguments in gateway.asked if isinstance(arguments, PlanSet | Events)]
        assert asked[0] == Events(5, 10)
        assert isinstance(asked[1], PlanSet)
        assert read(asked[1].stages) == plan


def test_clients_in_threads() -> None:
    results: list[list[int]] = []

    def work(endpoint: str, base: int) -> None:
        with Client(endpoint, timeout_s=LONG_S) as client, client.stream("same name") as stream:
            results.append([answer.frame - base for answer in stream.run(frame_of(base + i) for i in range(20))])

    with Gateway() as gateway:
        threads = [threading.Thread(target=work, args=(gateway.endpoint, 100 * i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [list(range(20))] * 4


def test_two_threads_at_once_are_refused_and_the_first_goes_on() -> None:
    """They read each other's answers from one socket, and both could wait for ever."""
    frozen = Frozen()
    came = threading.Event()
    outputs: list[Array] = []

    def script(gateway: Gateway, frame: Frame) -> None:
        came.set()
        frozen(gateway, frame)

    with Gateway(script) as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        first = threading.Thread(target=lambda: outputs.append(client.infer(frame_of(1)).output))
        first.start()
        assert came.wait(LONG_S)
        for call in (
            client.live,
            client.close,
            lambda: client.infer(frame_of(2)),
            lambda: next(client.stream().run([frame_of(2)])),
        ):
            with raised(FailedPrecondition, Error.CLIENT_MISUSED):
                call()
        frozen.thaws.set()
        first.join()
        np.testing.assert_array_equal(outputs, [frame_of(2)])
        np.testing.assert_array_equal(client.infer(frame_of(3)).output, frame_of(6))  # one after the other may


@pytest.mark.parametrize("end", ["close", "collect"])
def test_a_stream_that_ends_while_another_thread_is_in_a_call_leaves_no_answers(end: str) -> None:
    came, thaws = threading.Event(), threading.Event()

    def script(gateway: Gateway, frame: Frame) -> None:
        gateway.held.append(frame)
        if frame.value == 9:
            came.set()
            assert thaws.wait(LONG_S)
        if frame.value in (0, 9):
            while gateway.held:
                gateway.answer(gateway.held.pop())

    with Gateway(script) as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        streams = [client.stream(in_flight=3)]
        running = [streams[0].run(frames(3))]
        assert next(running[0]).frame == 0
        other = threading.Thread(target=client.infer, args=(frame_of(9),))
        other.start()
        assert came.wait(LONG_S)
        if end == "close":
            with raised(FailedPrecondition, Error.CLIENT_MISUSED):
                streams[0].close()
        else:
            running.clear()
        thaws.set()
        other.join()
        if end == "close":
            streams[0].close()
        assert client.infer(frame_of(0)).frame == 0
        assert not client._settled


@pytest.mark.parametrize("after", ["send", "poll"])
def test_a_call_within_a_signals_handler_leaves_the_answer_of_whom_it_interrupts(
    monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """The handler comes once the outer request has been sent, or the outer answer can be read, and reads that."""
    with Gateway() as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        client.infer(frame_of(0))
        at, name = (client._link, "_send") if after == "send" else (zmq, "zmq_poll")
        undisturbed, answers = getattr(at, name), list[Answer]()

        def interrupted(*asked: Any, **more: Any) -> Any:
            done = undisturbed(*asked, **more)
            if done and (after == "send" or client._link.conversation.in_flight):
                monkeypatch.undo()
                answers.append(client.infer(frame_of(2)))
            return done

        monkeypatch.setattr(at, name, interrupted)
        answers.append(client.infer(frame_of(1)))
        assert len(answers) == 2
        for answer, value in zip(answers, (2, 1), strict=True):
            np.testing.assert_array_equal(answer.output, frame_of(2 * value))


@pytest.mark.parametrize("amid", ["sent", "read"])
def test_a_call_within_a_signals_handler_amid_a_message_is_refused(monkeypatch: pytest.MonkeyPatch, amid: str) -> None:
    """Parts of its messages got between those of the other: both were lost."""
    refused = list[Error]()

    def interrupt() -> None:
        monkeypatch.undo()
        with raised(FailedPrecondition, Error.CLIENT_MISUSED):
            client.infer(frame_of(2))
        refused.append(Error.CLIENT_MISUSED)

    with Gateway() as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        client.infer(frame_of(0))
        if amid == "sent":
            send = multipart._send

            def send_and_interrupt(*given: Any) -> None:
                send(*given)
                interrupt()

            monkeypatch.setattr(multipart, "_send", send_and_interrupt)
        else:

            def receive_and_interrupt(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
                frames = [socket.recv(zmq.DONTWAIT, copy=False)]
                interrupt()
                return [*frames, *multipart.receive_parts(socket)]

            monkeypatch.setattr(link, "receive_parts", receive_and_interrupt)
        np.testing.assert_array_equal(client.infer(frame_of(1)).output, frame_of(2))
        assert refused
        np.testing.assert_array_equal(client.infer(frame_of(3)).output, frame_of(6))


def test_a_client_that_a_signals_handler_closes_says_so_to_whom_it_interrupts() -> None:
    def script(_gateway: Gateway, _frame: Frame) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    with Gateway(script) as gateway, Client(gateway.endpoint, timeout_s=LONG_S) as client:
        before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
        try:
            with raised(Unavailable, Error.CONNECTION_LOST, match="closed"):
                client.infer(frame_of(1))
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "endpoint",
    ["nonsense", "tcp://127.0.0.1:99999", "tcp://127.0.0.1:0", "tcp://127.0.0.1", "tcp://127.0.0.1 :5555", "tcp://*:5555",
     "tcp://::1:5555", "tcp://[::1:5555", "tcp://[localhost]:5555", "tcp://127.0.0.1:5_5", "tcp://a;b:5555", "tcp://:5555",
     "inproc://a", "ipc://", "ipc://@abstract", "ipc:///tmp/a\0b", f"ipc:///tmp/{'x' * 103}"],
)  # fmt: skip
def test_a_bad_endpoint_is_refused_at_once(client_of: Connect, endpoint: str) -> None:
    with raised(InvalidArgument, Error.BAD_ENDPOINT, match="expected tcp://HOST:PORT") as refused:
        client_of(endpoint)
    assert refused.value.message.startswith(f"endpoint {endpoint!r}: ")


def test_a_process_that_may_open_nothing_more_is_told_so(client_of: Connect) -> None:
    with descriptors_to_be_had(3), raised(ResourceExhausted, Error.TOO_MANY_OPEN):
        client_of("tcp://127.0.0.1:1")


def test_the_first_client_of_such_a_process_does_not_abort_it() -> None:
    program = """
from shisha_rt.client import Client, ResourceExhausted
from tests.process.descriptors import descriptors_to_be_had
for count in range(12):
    try:
        with descriptors_to_be_had(count):
            Client("tcp://127.0.0.1:1")
    except ResourceExhausted:
        pass
    else:
        raise AssertionError(count)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_the_first_frame_of_such_a_process_opens_nothing() -> None:
    """Numpy loads its module of masked arrays once somebody names it."""
    program = """
import numpy as np
from shisha_rt.protocol.frame_tensors import arrays_of
from tests.process.descriptors import descriptors_to_be_had
from tests.protocol.gateway import SIGNATURE
with descriptors_to_be_had(0):
    arrays_of(np.zeros((1, 3), np.float32), SIGNATURE)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_a_full_context_is_told_from_a_full_process(client_of: Connect) -> None:
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 5)
        with (
            client_of("tcp://127.0.0.1:1", context=context),
            raised(ResourceExhausted, Error.TOO_MANY_OPEN, match="5"),
        ):
            client_of("tcp://127.0.0.1:1", context=context)


def test_a_daemon_that_is_lost_is_found_again_once_there_are_descriptors(client_of: Connect) -> None:
    with Gateway(vanish) as gateway:
        client = client_of(gateway.endpoint, timeout_s=LONG_S)
        with raised(Unavailable, Error.CONNECTION_LOST):
            client.infer(frame_of(1))
    with client:
        with descriptors_to_be_had(0), raised(ResourceExhausted, Error.TOO_MANY_OPEN):
            client.infer(frame_of(2), timeout_s=SHORT_S)
        with Gateway(endpoint=gateway.endpoint, instance="second"):
            assert client.infer(frame_of(3)).frame == 3


def test_a_path_that_is_not_utf_8_is_connected_to(client_of: Connect, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.settimeout(PATIENCE_S)
        daemon.bind(path)
        daemon.listen()
        client = client_of(f"ipc://{os.fsdecode(path)}", timeout_s=SHORT_S)
        daemon.accept()[0].close()
        client.close()


def test_a_closed_client_says_so(client_of: Connect) -> None:
    client = client_of("tcp://127.0.0.1:1", timeout_s=SHORT_S)
    client.close()
    client.close()
    with raised(FailedPrecondition, Error.CLIENT_MISUSED, match="closed"):
        client.live()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_clients_that_nobody_closes_leave_the_process_able_to_connect() -> None:
    """Their sockets were closed in any order, upon which libzmq's thread waited for good: for all later clients."""
    program = """
import sys
from shisha_rt.client import Client
for _ in range(300):
    Client(sys.argv[1])
with Client(sys.argv[1], timeout_s=10) as client:
    assert client.live()
unclosed = Client(sys.argv[1])
"""
    with Gateway() as gateway:
        command = [sys.executable, "-c", program, gateway.endpoint]
        ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_stream_that_nobody_closes_ends_quietly_with_its_program() -> None:
    program = """
import sys, numpy
from shisha_rt.client import Client
client = Client(sys.argv[1])
answers = client.stream(in_flight=2).run(numpy.zeros((1, 3), numpy.float32) for _ in range(3))
print(next(answers).frame)
"""
    with Gateway() as gateway:
        command = [sys.executable, "-c", program, gateway.endpoint]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


def test_a_forked_child_needs_a_client_of_its_own(client_of: Connect) -> None:
    with Gateway(echo) as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        client.infer(frame_of(1))
        child = os.fork()
        if not child:
            signal.alarm(int(LONG_S))  # libzmq never returns there
            code = 1
            with contextlib.suppress(BaseException):
                with raised(FailedPrecondition, Error.CLIENT_MISUSED, match=str(os.getppid())):
                    client.infer(frame_of(2))
                with raised(FailedPrecondition, Error.CLIENT_MISUSED):
                    client.live()
                client.close()  # of the parent's nothing is closed
                with Client(gateway.endpoint, timeout_s=LONG_S) as own:
                    code = 0 if own.live() else 1
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        np.testing.assert_array_equal(client.infer(frame_of(3)).output, frame_of(6))


@pytest.mark.parametrize("kind", [zmq.Context, zmq.asyncio.Context])
def test_a_context_of_the_callers_own(client_of: Connect, kind: type[Context]) -> None:
    with (
        kind() as context,
        Gateway() as gateway,
        client_of(gateway.endpoint, timeout_s=LONG_S, context=context) as client,
    ):
        assert client.live()


def test_the_documented_examples_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
    programs = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    said = []
    with Gateway() as gateway:
        for program in programs:
            ours = program.replace("tcp://127.0.0.1:5555", gateway.endpoint).replace("(1, 3, 224, 224)", "(1, 3)")
            ran = subprocess.run(
                [sys.executable, "-c", ours], capture_output=True, text=True, timeout=LONG_S, check=True
            )
            said.append(ran.stdout)
    of_clients, by_hand = said
    assert of_clients == 100 * "0\n"
    assert "'epoch': 1" in by_hand
    assert by_hand.endswith("[12]\n")


def test_a_plain_req_socket_gets_its_delimiter_back() -> None:
    with Gateway() as gateway, zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.rcvtimeo = int(LONG_S * 1e3)
        socket.connect(gateway.endpoint)
        header = encode_infer("1", "double", list(map(TensorHeader.of, SIGNATURE.inputs)))
        socket.send_multipart([header, frame_of(4).tobytes()])
        header, raw = socket.recv_multipart()
        assert json.loads(header)["id"] == "1"
        np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), frame_of(8)[0])


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this host has no IPv6")
def test_a_daemon_at_an_address_of_ipv6_is_reached(client_of: Connect) -> None:
    with Gateway(endpoint="tcp://[::1]:*") as gateway, client_of(gateway.endpoint, timeout_s=LONG_S) as client:
        assert client.live()


def test_a_connected_client_sends_no_heartbeats() -> None:
    """They were sent every second: libzmq aborted a daemon that had not read what came before one of them when its
    sender was lost, and a daemon that was only busy counted as lost after three.
    """
    ready = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4, "big") + b"ROUTER"
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\x01" + bytes(31)
    with socket.create_server(("127.0.0.1", 0)) as server, Client(f"tcp://127.0.0.1:{server.getsockname()[1]}"):
        end, _ = server.accept()
        with end:
            end.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
            end.settimeout(1.3)
            said = b""
            with contextlib.suppress(TimeoutError):
                while piece := end.recv(1000):
                    said += piece
    assert b"READY" in said
    assert b"\x04PING" not in said
