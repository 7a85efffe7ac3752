"""Requests of several frames: taken apart, answered as one, over every way there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shisha_rt.client import Client, InvalidArgument, ShishaError
from shisha_rt.errors import Error
from shisha_rt.protocol.header import InferParameters, TensorData, TensorHeader, encode_infer
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import SHAPE, frame_of, write_identity_model
from tests.serving.test_bad_requests import connect
from tests.waiting import PATIENCE_S
from tests.wild.odd_networks import SERVED
from tests.wild.test_odd_networks import saved
from tests.wording import raised


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("several")
    model = write_identity_model(folder, channels=16, size=48)  # large enough to be lent
    machine = machine_file(folder, ["a", "b"])
    with DaemonProcess(folder, model, "--machine", machine, "--http", "127.0.0.1:0") as running:
        running.wait_for_workers()
        yield running


def frames(count: int) -> npt.NDArray[Any]:
    return np.concatenate([frame_of(number, (1, 16, 48, 48)) for number in range(count)])


@pytest.mark.parametrize("shared", [True, False], ids=["shared memory", "bytes"])
@pytest.mark.parametrize("count", [2, 5, 32])
def test_as_many_answers_as_frames(daemon: DaemonProcess, count: int, shared: bool) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S, share=shared) as client:
        given = frames(count)
        answer = client.infer(given)
        assert answer.output.shape == given.shape
        np.testing.assert_array_equal(answer.output, given)


def test_in_a_stream_between_others(daemon: DaemonProcess) -> None:
    """A request takes one place in its stream, whatever it has."""
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, client.stream() as stream:
        sent = [frames(count) for count in (1, 4, 1, 3, 2)]
        for given, answer in zip(sent, stream.run(sent), strict=True):
            np.testing.assert_array_equal(answer.output, given)


def test_too_many_and_uneven_ones_are_refused(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        with raised(InvalidArgument, Error.WRONG_SHAPE, match="33 frames; expected at most 32 in a request"):
            client.infer(frames(33))
        with raised(InvalidArgument, Error.WRONG_SHAPE, match="shape"):
            client.infer(frames(2)[:, :, :7])


def test_one_of_them_late_is_an_error_that_says_which(daemon: DaemonProcess) -> None:
    late = pytest.raises(ShishaError, match=r"frame 0 of 3: the frame's deadline has .* and 2 more failed")
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, late:
        client.infer(frames(3), deadline_s=0)


def test_each_frame_of_a_refused_request_is_counted(daemon: DaemonProcess) -> None:
    """Else load that is refused would look smaller, the more frames its requests have."""
    before = daemon.control.status()["frames"]["answered"].get("INVALID_ARGUMENT", 0)
    given = frames(3)
    tensor = TensorHeader("x", given.shape, "FP32", TensorData(given.nbytes))
    connection = connect(daemon)
    for request_id, sequence in (("1", 5), ("2", 7)):
        asked = InferParameters(stream="s", sequence=sequence)
        connection.send_multipart([encode_infer(request_id, "identity", [tensor], asked), given.tobytes()])
    errors = [json.loads(connection.recv_multipart()[0]).get("error", {}).get("kind") for _ in range(2)]
    connection.close(linger=0)
    assert set(errors) == {None, Error.OUT_OF_SEQUENCE.value}
    assert daemon.control.status()["frames"]["answered"]["INVALID_ARGUMENT"] == before + 3


def test_a_network_that_mixes_frames_has_requests_of_one(tmp_path: Path) -> None:
    model = saved(SERVED["topk_of_a_computed_number"](), tmp_path, "mixing")
    with DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, ["a"])) as daemon:
        assert "most_frames" not in daemon.control.metadata()["model"]
        given = np.zeros((2, *daemon.control.metadata()["model"]["inputs"][0]["shape"][1:]), np.float32)
        tensor = TensorHeader("x", given.shape, "FP32", TensorData(given.nbytes))
        connection = connect(daemon)
        connection.send_multipart([encode_infer("1", "mixing", [tensor]), given.tobytes()])
        error = json.loads(connection.recv())["error"]
        connection.close(linger=0)
        assert "2 frames; expected one, as" in error["message"]
        with (
            Client(daemon.endpoint, timeout_s=PATIENCE_S) as client,
            raised(InvalidArgument, Error.WRONG_SHAPE, match="ReduceSum"),
        ):
            client.infer(given)


def test_shape_of_one_frame(daemon: DaemonProcess) -> None:
    assert SHAPE[0] == 1
    assert daemon.control.metadata()["model"]["most_frames"] == 32
