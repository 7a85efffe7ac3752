"""Clients that share memory with a daemon: the same answers, whatever becomes of frames, arrays, clients and daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper

from shisha_rt.client import (
    Answer,
    Array,
    AsyncClient,
    Client,
    DeadlineExceeded,
    ShishaError,
    Timeout,
    Unavailable,
)
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol.frame_tensors import LEAST_LENT_BYTES
from tests.model.networks import network
from tests.process.descriptors import descriptors_to_be_had
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import CHANNELS, frame_of, write_identity_model
from tests.waiting import PATIENCE_S, until
from tests.wording import raised

SIZE: Final = 32
SHAPE: Final = (1, CHANNELS, SIZE, SIZE)
PLANS: Final = (
    Plan.chain([(0, 8, [["a"], ["b"]])]),
    Plan.chain([(0, 3, [["a"]]), (4, 8, [["b"]])]),
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its input and its output are just large enough to be lent."""
    assert frame_of(0, SHAPE).nbytes == LEAST_LENT_BYTES
    return write_identity_model(tmp_path_factory.mktemp("large"), size=SIZE, name="large")


@pytest.fixture(scope="module")
def daemon(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("sharing")
    with DaemonProcess(folder, large, "--machine", machine_file(folder, ["a", "b"])) as running:
        yield running


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as opened:
        yield opened


def filled(client: Client, number: int) -> Array:
    array = client.empty(SHAPE, np.float32)
    array[...] = frame_of(number, SHAPE)
    return array


def is_frame(answer: Answer | ShishaError, number: int) -> bool:
    return isinstance(answer, Answer) and answer.output.tobytes() == frame_of(number, SHAPE).tobytes()


@pytest.mark.parametrize("count", range(5))
def test_a_process_short_of_descriptors_shares_once_it_has_some(client: Client, count: int) -> None:
    """At first for the question, then for the memory in the answer."""
    assert client.call("server_metadata")  # connected: ZeroMQ takes descriptors, too
    memory = client._link.memory
    assert memory is not None
    with descriptors_to_be_had(count):  # a line that took the last one would have none for a large message
        assert is_frame(client.infer(frame_of(0, SHAPE)), 0)
    memory._again_s = 0.0
    for number in range(2):  # the first one says what is wanted
        assert is_frame(client.infer(frame_of(number, SHAPE)), number)
    assert memory.shared


@pytest.mark.parametrize("plan", PLANS, ids=["one part a frame", "two parts a frame"])
def test_answers_are_the_same_with_and_without(daemon: DaemonProcess, client: Client, plan: Plan) -> None:
    assert client.set_plan(plan)["outcome"] == "live"
    with Client(daemon.endpoint, timeout_s=PATIENCE_S, share=False) as plain:
        for number in range(5):
            given = frame_of(number, SHAPE)
            kinds = [given, np.asfortranarray(given), filled(client, number), filled(client, number)[0][None]]
            assert all(is_frame(client.infer(kind), number) for kind in kinds)
            assert is_frame(plain.infer(kinds[number % 4]), number)
        assert client.sharing
        assert not plain.sharing


def test_streams_of_lent_copied_and_reused_arrays(client: Client) -> None:
    ring = client.empty((6, *SHAPE), np.float32)
    reused = np.empty(SHAPE, np.float32)

    def frames() -> Iterator[Array]:
        for number in range(100):
            match number % 3:
                case 0:
                    yield filled(client, number)
                case 1:
                    ring[number % 6] = frame_of(number, SHAPE)
                    yield ring[number % 6]
                case 2:
                    reused[...] = frame_of(number, SHAPE)
                    yield reused

    with client.stream(in_flight=6) as stream:
        kept = [(number, answer) for number, answer in enumerate(stream.run(frames())) if number % 4 == 0]
    assert len(kept) == 25
    assert all(is_frame(answer, number) for number, answer in kept)


def test_an_array_that_is_lent_cannot_be_written_to_by_mistake(client: Client) -> None:
    def frames() -> Iterator[Array]:
        array = client.empty(SHAPE, np.float32)
        for number in range(3):
            array[...] = number
            yield array

    with client.stream(in_flight=2) as stream, pytest.raises(ValueError, match="read-only"):
        list(stream.run(frames()))
    assert is_frame(client.infer(filled(client, 3)), 3)


class _Interface:
    """What numpy makes an array of that has no base to ask whether it may be written to."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize(
    "same", [np.lib.stride_tricks.as_strided, np.from_dlpack, lambda array: np.asarray(_Interface(array))]
)
def test_an_array_that_could_not_be_made_writeable_again_stays_so(
    client: Client, same: Callable[[Array], Array]
) -> None:
    """It was made read-only, and its answer was lost as that could not be undone."""
    array = same(filled(client, 1))
    was_writeable = array.flags.writeable
    assert is_frame(client.infer(array, timeout_s=5), 1)
    assert array.flags.writeable == was_writeable


def test_an_output_may_be_the_next_input(client: Client) -> None:
    array: Array = filled(client, 7)
    for _ in range(10):
        array = client.infer(array).output
    assert array.tobytes() == frame_of(7, SHAPE).tobytes()


def test_abandoned_frames_spoil_no_others(client: Client) -> None:
    given_up = 0
    for number in range(60):
        array = filled(client, number)
        try:
            match number % 3:
                case 0:
                    client.infer(array, timeout_s=0.0)
                case 1:
                    client.infer(array, deadline_s=0.0)
                case 2:
                    with client.stream(in_flight=4) as stream:
                        next(stream.run(filled(client, number + i) for i in range(4)))
        except (Timeout, DeadlineExceeded):
            given_up += 1
        array[...] = -1
        del array
        assert is_frame(client.infer(filled(client, 1000 + number)), 1000 + number)
    assert given_up >= 20


def test_arrays_outlive_their_client(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        mine = filled(client, 3)
        answer = client.infer(mine)
        stream = client.stream().run([mine, mine])
        next(stream)
    mine[...] = frame_of(4, SHAPE)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as another:
        assert is_frame(another.infer(mine), 4)
    assert is_frame(answer, 3)
    with raised(Unavailable, Error.CONNECTION_LOST, match="closed"):
        next(stream)


def test_a_thousand_arrays_at_once(client: Client) -> None:
    """Those that there is no room for are arrays like any others."""
    arrays = [filled(client, number) for number in range(1000)]
    assert is_frame(client.infer(arrays[0]), 0)
    with client.stream(in_flight=32) as stream:
        answers = list(stream.run(arrays[::9]))
    assert all(is_frame(answer, 9 * number) for number, answer in enumerate(answers))


def test_arrays_of_any_size_are_to_be_had(client: Client) -> None:
    for size in (0, 10, 1 << 20, 1 << 32):
        array = client.empty(size, np.uint8)
        array[:10] = 1
        assert array.size == size
    assert client.empty((), object).shape == ()


def test_calls_that_overlap(daemon: DaemonProcess) -> None:
    async def main() -> None:
        async with AsyncClient(daemon.endpoint, timeout_s=PATIENCE_S) as client:

            async def comes_back(number: int) -> bool:
                array = await client.empty(SHAPE, np.float32) if number % 2 else np.empty(SHAPE, np.float32)
                array[...] = frame_of(number, SHAPE)
                return is_frame(await client.infer(array), number)

            assert all(await asyncio.gather(*map(comes_back, range(60))))
            assert client.sharing
            doomed = asyncio.create_task(client.infer(await client.empty(SHAPE, np.float32)))
            await asyncio.sleep(0)
            doomed.cancel()
            async with client.stream(in_flight=5) as stream:
                frames = (frame_of(number, SHAPE) for number in range(40))
                answers = [answer async for answer in stream.run(frames)]
            assert all(is_frame(answer, number) for number, answer in enumerate(answers))

    asyncio.run(main())


PROGRAM: Final = """
import numpy, os, signal, sys
from shisha_rt.client import Client
endpoint, end, shape = sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3:]))
client = Client(endpoint)
arrays = [client.empty(shape, numpy.float32) for _ in range(20)]
for number, answer in enumerate(client.stream(in_flight=10).run(arrays)):
    if number == 5:
        assert client.sharing
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
client.close()
print("closed", flush=True)
sys.stdin.read()
"""


def started(daemon: DaemonProcess, end: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, daemon.endpoint, end, *map(str, SHAPE)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def region_count(*pids: int) -> int:
    """How many descriptors of regions these processes have."""
    links = [link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()]
    return sum("shisha-rt-region" in _target(link) for link in links)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return ""


@pytest.mark.parametrize("end", ["killed", "forked and closed"])
def test_a_client_that_goes_leaves_nothing(daemon: DaemonProcess, end: str) -> None:
    """Nor does a child of it that lives on, with all the descriptors that it had."""
    with started(daemon, end) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == (b"" if end == "killed" else b"closed\n")
        pids = [daemon.pid, *daemon.wait_for_workers().values()]
        until(lambda: region_count(*pids) == 0, "the end of its regions")
        program.stdin.close()


def test_another_daemon_at_the_same_place(large: Path, tmp_path: Path) -> None:
    """Nothing of what was shared with the first one is used with the second."""
    endpoint = f"ipc://{tmp_path}/daemon.sock"
    options = (large, "--machine", machine_file(tmp_path, ["a", "b"]))
    with Client(endpoint, timeout_s=PATIENCE_S) as client:
        with DaemonProcess(tmp_path, *options, endpoint=endpoint) as first:
            mine = filled(client, 1)
            answer = client.infer(mine)
            with client.stream(in_flight=4, timeout_s=1.0) as stream:
                frames = stream.run([mine] * 1000, errors="return")
                assert is_frame(next(frames), 1)
                os.kill(first.pid, signal.SIGKILL)
                first.wait()
                while isinstance(next(frames), Answer):
                    pass
        with DaemonProcess(tmp_path, *options, endpoint=endpoint):
            mine[...] = frame_of(2, SHAPE)
            assert is_frame(client.infer(mine), 2)
            assert is_frame(client.infer(filled(client, 3)), 3)
            assert client.sharing
            assert is_frame(answer, 1)


def test_several_inputs_and_outputs_large_small_and_of_varying_shape(tmp_path: Path) -> None:
    unit = np.eye(4, dtype=np.float32)[:, :, None, None]
    nodes = [
        helper.make_node("Conv", ["x", "one"], ["a"], name="one"),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Mul", ["sum", "scale"], ["y"]),
        helper.make_node("ReduceMax", ["y"], ["top"], keepdims=0),
        helper.make_node("NonZero", ["y"], ["where"]),
    ]
    shape = [1, 4, 64, 128]
    ends: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
        {"x": shape, "b": shape, "scale": [4, 1, 1]},
        {"y": shape, "top": []},
    )
    model = network(nodes, *ends, {"one": 2 * unit})
    model.graph.output.append(helper.make_tensor_value_info("where", onnx.TensorProto.INT64, [4, None]))
    path = tmp_path / "several.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(0)
    options = (path, "--machine", machine_file(tmp_path, ["a"]))
    with (
        DaemonProcess(tmp_path, *options) as daemon,
        Client(daemon.endpoint, share=False) as plain,
        Client(daemon.endpoint) as client,
    ):
        for wanted in ((), ("y",), ("where", "top"), ("top", "y")):
            x, b = rng.standard_normal((2, *shape)).astype(np.float32)
            given = {"x": x, "b": b, "scale": np.ones((4, 1, 1), np.float32)}
            lent = client.empty((2, *shape), np.float32)
            lent[...] = x, b
            expected = plain.infer(given, outputs=wanted).outputs
            assert list(expected) == list(wanted or ("y", "top", "where"))
            for inputs in (given, given | {"x": lent[0]}, given | {"x": lent[0], "b": lent[1]}):
                outputs = client.infer(inputs, outputs=wanted).outputs
                assert list(outputs) == list(expected)
                assert all(outputs[name].tobytes() == expected[name].tobytes() for name in expected)
        assert client.sharing
