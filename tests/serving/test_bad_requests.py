"""Whatever a client sends or fails to read: it gets an error answer, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import zmq

from shisha_rt.client import Client, Unimplemented
from shisha_rt.errors import Error
from shisha_rt.protocol.limits import REFUSED_BYTES
from tests.serving.daemon_process import PATIENCE_MS, DaemonProcess, machine_file
from tests.serving.identity_model import NAME, SHAPE, frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import counter
from tests.waiting import PATIENCE_S, until
from tests.wording import raised

FRAME_BYTES: Final = 4 * int(np.prod(SHAPE))
X: Final[dict[str, Any]] = {
    "name": "x",
    "shape": list(SHAPE),
    "datatype": "FP32",
    "parameters": {"binary_data_size": FRAME_BYTES},
}


@pytest.fixture(scope="module")
def daemon(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for all: no test may do it any harm."""
    folder = tmp_path_factory.mktemp("bad-requests")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, ["a", "b"])) as running:
        yield running


@pytest.fixture
def socket(daemon: DaemonProcess) -> Iterator[zmq.Socket[bytes]]:
    """A connection that must still work when the test is over."""
    with connect(daemon) as opened:
        yield opened
        send(opened, "still here")
        assert answer_to(opened, "still here")["outputs"][0]["name"] == "y"


def connect(daemon: DaemonProcess, kind: int = zmq.DEALER) -> zmq.Socket[bytes]:
    opened: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    opened.linger = 0
    opened.connect(daemon.endpoint)
    return opened


def header(request_id: str | None, **changes: Any) -> dict[str, Any]:
    whole = {"op": "infer", "id": request_id, "model_name": NAME, "inputs": [X]}
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def send(socket: zmq.Socket[bytes], request_id: str | None, *parts: bytes, number: int = 1, **changes: Any) -> None:
    raw = parts or (frame_of(number).tobytes(),)
    socket.send_multipart([json.dumps(header(request_id, **changes)).encode(), *raw])


def receive(socket: zmq.Socket[bytes]) -> dict[str, Any]:
    """The header of the next answer; a result's raw part must be whole."""
    assert socket.poll(PATIENCE_MS), "no answer"
    head, *raw = socket.recv_multipart()
    answer: dict[str, Any] = json.loads(head)
    assert [len(part) for part in raw] == [FRAME_BYTES for _ in answer.get("outputs", [])]
    return answer


def answer_to(socket: zmq.Socket[bytes], request_id: str | None) -> dict[str, Any]:
    answer = receive(socket)
    assert answer["id"] == request_id
    return answer


def refusal(socket: zmq.Socket[bytes], request_id: str | None, code: str = "INVALID_ARGUMENT") -> str:
    """The message of the error answer: one line."""
    answer = answer_to(socket, request_id)
    assert answer["error"]["code"] == code
    message: str = answer["error"]["message"]
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "z"}, "'z'"),
        ({"shape": [1, 16, 4, 5]}, "shape"),
        ({"shape": [16, 4, 4]}, "shape"),
        ({"shape": [1, 16, 4, -4]}, "shape"),
        ({"shape": [2**40, 2**40, 2**40, 2**40]}, "shape"),
        ({"datatype": "FP64"}, "datatype"),
        ({"datatype": "WHATEVER"}, "datatype"),
        ({"parameters": {"binary_data_size": FRAME_BYTES - 4}}, "binary_data_size"),
        ({"parameters": {}}, "binary_data_size"),
    ],
)
def test_an_input_that_the_model_does_not_take(socket: zmq.Socket[bytes], change: dict[str, Any], where: str) -> None:
    send(socket, "7", inputs=[{**X, **change}])
    assert where in refusal(socket, "7")


def test_the_wrong_number_of_bytes_or_parts(socket: zmq.Socket[bytes]) -> None:
    data = frame_of(1).tobytes()
    for raw in ((data[:-1],), (data + b"\0",), (b"",), (data, data), (data,) * 64):
        send(socket, "7", *raw)
        refusal(socket, "7")
    send(socket, "7", *[b""] * 100)
    assert "parts" in refusal(socket, "7")


@pytest.mark.parametrize(
    "garbage",
    [
        [b"{"],
        [b"\xff\xfe"],
        [b"null"],
        [b"[1, 2]"],
        [b'"text"'],
        [b"{}"],
        [b'{"op":"infer"}'],
        [b'{"op":"infer","id":7}'],
        [b'{"op":"infer","id":null}'],
        [b"[" * 10_000],
        [b"", b""],
        [b"", b"", b"{}"],
        [b"x" * 66_000],  # more than a header may have, less than ZeroMQ lets through
        [bytes(range(256)), b"more"],
    ],
)
def test_a_header_that_cannot_be_read(socket: zmq.Socket[bytes], garbage: list[bytes]) -> None:
    socket.send_multipart(garbage)
    assert socket.poll(PATIENCE_MS)
    parts = [part for part in socket.recv_multipart() if part]
    answer = json.loads(parts[0])
    assert answer["id"] is None
    assert answer["error"]["code"] == "INVALID_ARGUMENT"


def test_an_empty_message(socket: zmq.Socket[bytes]) -> None:
    """One empty part is an envelope around nothing; so is its answer's."""
    socket.send(b"")
    assert socket.poll(PATIENCE_MS)
    delimiter, head = socket.recv_multipart()
    assert (delimiter, json.loads(head)["error"]["code"]) == (b"", "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"op": "fly"}, "UNIMPLEMENTED"),
        ({"op": 7}, "INVALID_ARGUMENT"),
        ({"model_name": "other"}, "NOT_FOUND"),
        ({"model_name": None}, "INVALID_ARGUMENT"),
        ({"inputs": []}, "INVALID_ARGUMENT"),
        ({"inputs": "x"}, "INVALID_ARGUMENT"),
        ({"outputs": [{"name": "z"}]}, "INVALID_ARGUMENT"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": False}}]}, "INVALID_ARGUMENT"),
        ({"parameters": {"deadline_ms": -1}}, "INVALID_ARGUMENT"),
        ({"parameters": {"deadline_ms": "soon"}}, "INVALID_ARGUMENT"),
        ({"parameters": {"sequence": 1.5, "stream": "s"}}, "INVALID_ARGUMENT"),
        ({"parameters": {"stream": ""}}, "INVALID_ARGUMENT"),
        ({"parameters": {"stream": "s" * 257}}, "INVALID_ARGUMENT"),
    ],
)
def test_a_request_that_makes_no_sense(socket: zmq.Socket[bytes], changes: dict[str, Any], code: str) -> None:
    send(socket, "7", **changes)
    refusal(socket, "7", code)


def test_another_version_is_for_a_daemon_that_was_started_with_a_folder(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint) as client, raised(Unimplemented, Error.ONE_MODEL, match="serve FOLDER"):
        client.call("model_load", model_name=NAME)


def test_a_sequence_with_a_gap(socket: zmq.Socket[bytes]) -> None:
    """A refused frame uses up no number, so that the right one is still welcome."""
    for sequence, accepted in ((5, True), (7, False), (5, False), (6, True)):
        send(socket, f"{sequence}", parameters={"stream": "gaps", "sequence": sequence})
        if accepted:
            assert answer_to(socket, f"{sequence}")["parameters"]["sequence"] == sequence
        else:
            assert "expected 6" in refusal(socket, f"{sequence}")


def test_a_req_socket_works(daemon: DaemonProcess) -> None:
    with connect(daemon, zmq.REQ) as socket:
        for number in range(3):
            send(socket, str(number), number=number)
            assert socket.poll(PATIENCE_MS)
            head, raw = socket.recv_multipart()
            assert json.loads(head)["id"] == str(number)
            assert raw == frame_of(number).tobytes()
        socket.send(b"{")
        assert refusal(socket, None)


def test_a_message_that_is_too_large_costs_only_its_sender(daemon: DaemonProcess) -> None:
    largest = daemon.control.metadata()["server"]["max_message_bytes"]
    with Load(daemon.endpoint) as load:
        load.wait_for_answers(10)
        with connect(daemon) as socket:
            monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            send(socket, "1", bytes(largest + REFUSED_BYTES + 1))
            assert monitor.poll(PATIENCE_MS), "the daemon kept the connection"
            socket.disable_monitor()
            monitor.close()
        load.wait_for_answers(10)
    assert_kept(load)


def test_many_parts_of_a_size_that_is_allowed(socket: zmq.Socket[bytes], daemon: DaemonProcess) -> None:
    largest = daemon.control.metadata()["server"]["max_message_bytes"]
    send(socket, "7", *[bytes(largest // 2)] * 3)
    assert "bytes" in refusal(socket, "7")


def test_a_request_over_a_limit_is_refused_by_its_id_and_the_others_of_its_connection_are_answered(
    socket: zmq.Socket[bytes], daemon: DaemonProcess
) -> None:
    largest = daemon.control.metadata()["server"]["max_message_bytes"]
    send(socket, "before")
    send(socket, "raw", bytes(largest + 1))
    send(socket, "header", parameters={"stream": "s" * (largest + 1)})
    send(socket, "after")
    answers = {answer["id"]: answer for answer in (receive(socket) for _ in range(4))}
    assert {"before", "after"} == {name for name, answer in answers.items() if "outputs" in answer}
    assert answers["raw"]["error"]["message"].endswith(f"bytes; expected at most {largest}")
    assert answers["header"]["error"]["message"].startswith("header: ")


# --- while frames wait: their only worker is stopped until everything has been said -------------------------------


@dataclass(frozen=True)
class Held:
    """A connection to a daemon whose worker is stopped. If that takes so long that it is killed, no harm is done."""

    socket: zmq.Socket[bytes]
    worker_pid: int

    def send(self, request_id: str, **parameters: Any) -> None:
        send(self.socket, request_id, parameters=parameters)

    def answers_after_release(self, count: int) -> list[tuple[str, str]]:
        """(id, OK or the error's code) of the next answers, once the daemon has read all that was sent."""
        self.socket.send_json({"op": "server_live", "id": "all read"})
        answers: list[tuple[str, str]] = []
        while ("all read", "OK") not in answers:
            answers.append(self._next())
        self.release()
        while len(answers) < count + 1:
            answers.append(self._next())
        return [entry for entry in answers if entry[0] != "all read"]

    def release(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker_pid, signal.SIGCONT)

    def _next(self) -> tuple[str, str]:
        answer = receive(self.socket)
        return answer["id"], answer["error"]["code"] if "error" in answer else "OK"


@pytest.fixture(scope="module")
def alone(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("alone")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, ["only"])) as running:
        yield running


@pytest.fixture
def held(alone: DaemonProcess) -> Iterator[Held]:
    """Six frames of stream `s`, "0" to "5", wait before whatever the test sends."""
    pid = alone.wait_for_workers()["only"]
    os.kill(pid, signal.SIGSTOP)
    with connect(alone) as opened:
        busy = Held(opened, pid)
        for i in range(6):
            busy.send(str(i), stream="s")
        yield busy
        busy.release()
    alone.control.call("place_set", place="only", up=True)


BEFORE: Final = [(str(i), "OK") for i in range(6)]


def test_an_id_that_is_waiting_already(held: Held) -> None:
    held.send("5", stream="other")
    answers = held.answers_after_release(7)
    assert answers == [("5", "INVALID_ARGUMENT"), *BEFORE]
    held.send("5")
    assert held.answers_after_release(1) == [("5", "OK")]


@pytest.mark.parametrize("deadline_ms", [0, 0.5])
def test_a_deadline_is_told_at_the_frames_turn(held: Held, deadline_ms: float) -> None:
    held.send("late", stream="s", deadline_ms=deadline_ms)
    held.send("after", stream="s")
    assert held.answers_after_release(8) == [*BEFORE, ("late", "DEADLINE_EXCEEDED"), ("after", "OK")]


def test_a_late_frame_of_no_stream_is_answered_at_once(held: Held) -> None:
    held.send("late", deadline_ms=1)
    assert receive(held.socket)["error"]["code"] == "DEADLINE_EXCEEDED"
    assert held.answers_after_release(6) == BEFORE


def test_a_long_deadline_is_none(held: Held) -> None:
    held.send("patient", stream="s", deadline_ms=86_400_000)
    assert held.answers_after_release(7) == [*BEFORE, ("patient", "OK")]


def test_a_cancelled_frame_is_answered_once_at_its_turn(held: Held) -> None:
    for target, known in (("4", True), ("nothing", False), ("4", True)):
        held.socket.send_json({"op": "cancel", "id": "stop it", "target": target})
        assert receive(held.socket) == {"id": "stop it", "cancelled": known}
    assert held.answers_after_release(6) == [*BEFORE[:4], ("4", "CANCELLED"), BEFORE[5]]


def test_too_much_at_once_is_refused_at_once(held: Held, alone: DaemonProcess) -> None:
    most = alone.control.metadata()["server"]["max_in_flight"]
    sent = 6
    while not held.socket.poll(0 if sent < most else 20):
        held.send(str(sent))
        sent += 1
        assert sent < 10 * most, "everything is admitted"
    answers = held.answers_after_release(sent)
    assert len(answers) == len(set(answers)) == sent
    assert {code for _, code in answers} == {"OK", "RESOURCE_EXHAUSTED"}
    assert [entry for entry in answers if entry in BEFORE] == BEFORE


def test_a_client_that_leaves_harms_nobody(held: Held, alone: DaemonProcess) -> None:
    held.socket.send_json({"op": "server_live", "id": "admitted"})
    assert receive(held.socket)["id"] == "admitted"
    held.socket.close()
    held.release()
    until(lambda: alone.control.status()["frames"]["in_flight"] == 0, "the end of what it left behind")
    assert (alone.control.infer(frame_of(8)).output == frame_of(8)).all()


def test_a_client_that_never_reads_harms_nobody(tmp_path: Path) -> None:
    """Its answers are kept up to a byte limit; beyond it they are counted as undeliverable."""
    shape = (1, 16, 128, 128)
    model = write_identity_model(tmp_path, channels=16, size=128)
    frame = frame_of(1, shape)
    tensor = {**X, "shape": list(shape), "parameters": {"binary_data_size": frame.nbytes}}
    with (
        DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, ["a", "b"])) as daemon,
        connect(daemon) as deaf,
        Client(daemon.endpoint, timeout_s=PATIENCE_S) as other,
    ):
        deaf.rcvhwm = 1
        sent = 0
        undeliverable = counter(daemon.metrics, "shisha_answers_undeliverable_total")
        while not undeliverable():
            if other.status()["frames"]["in_flight"] < 16:
                for _ in range(16):
                    send(deaf, str(sent), frame.tobytes(), inputs=[tensor])
                    sent += 1
            assert (other.infer(frame).output == frame).all()
            assert sent < 5000, "the daemon keeps everything"
        assert (other.infer(frame).output == frame).all()
