"""Tensors that travel by descriptor: the answers are the same, and whoever misuses it harms nobody but himself."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import zmq

from shisha_rt.client import Client
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import PATIENCE_MS, DaemonProcess, machine_file
from tests.serving.identity_model import NAME, SHAPE, frame_of
from tests.serving.sharing.lent_region import ClientRegion, Refused, regions_of, talk
from tests.waiting import PATIENCE_S, until
from tests.wording import says

FRAME_BYTES: Final = 4 * int(np.prod(SHAPE))
RAW: Final = {"binary_data_size": FRAME_BYTES}
REGION_BYTES: Final = 16 * FRAME_BYTES
PLANS: Final = (
    Plan.chain([(0, 8, [["a"], ["b"]])]),
    Plan.chain([(0, 3, [["a"]]), (4, 8, [["b"]])]),
)


@pytest.fixture(scope="module")
def daemon(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("shared-memory")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, ["a", "b"])) as running:
        yield running


@pytest.fixture(scope="module")
def path(daemon: DaemonProcess) -> str:
    """The socket where regions are to be had."""
    with Client(daemon.endpoint) as client:
        socket_path: str = client.metadata()["server"]["shared_memory_socket"]
    return socket_path


@pytest.fixture
def connection(daemon: DaemonProcess) -> Iterator[zmq.Socket[bytes]]:
    with connect(daemon) as opened:
        yield opened
        infer(opened, "still here", RAW, frame_of(3).tobytes())
        head, data = answer(opened)
        assert (head["id"], data) == ("still here", [frame_of(3).tobytes()])


def connect(daemon: DaemonProcess) -> zmq.Socket[bytes]:
    opened: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    opened.linger = 0
    opened.connect(daemon.endpoint)
    return opened


def infer(
    opened: zmq.Socket[bytes],
    request_id: str,
    given: dict[str, Any],
    *raw: bytes,
    wanted: dict[str, Any] | None = None,
    **parameters: object,
) -> None:
    tensor = {"name": "x", "shape": list(SHAPE), "datatype": "FP32", "parameters": given}
    outputs = {} if wanted is None else {"outputs": [{"name": "y", "parameters": wanted}]}
    header = {"op": "infer", "id": request_id, "model_name": NAME, "inputs": [tensor], "parameters": parameters}
    opened.send_multipart([json.dumps(header | outputs).encode(), *raw])


def answer(opened: zmq.Socket[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    assert opened.poll(PATIENCE_MS), "no answer"
    head, *raw = opened.recv_multipart()
    return json.loads(head), raw


def error(opened: zmq.Socket[bytes]) -> tuple[str, str]:
    refusal = answer(opened)[0]["error"]
    return refusal["code"], refusal["message"]


@pytest.mark.parametrize("plan", PLANS, ids=["one part a frame", "two parts a frame"])
def test_tensors_travel_by_descriptor_as_they_do_as_bytes(
    daemon: DaemonProcess, connection: zmq.Socket[bytes], path: str, plan: Plan
) -> None:
    with Client(daemon.endpoint) as client:
        assert client.set_plan(plan)["outcome"] == "live"
    with ClientRegion(path, REGION_BYTES) as region:
        for number in range(4):
            at = number * FRAME_BYTES
            region.memory[at : at + FRAME_BYTES] = frame_of(number + 1).tobytes()
            room = region.piece((8 + number) * FRAME_BYTES, FRAME_BYTES + number)
            infer(connection, f"both {number}", region.piece(at, FRAME_BYTES), wanted=room, stream="s")
            infer(connection, f"in {number}", region.piece(at, FRAME_BYTES), stream="s")
            infer(connection, f"out {number}", RAW, frame_of(number + 1).tobytes(), wanted=room, stream="s")
        for number in range(4):
            expected = frame_of(number + 1).tobytes()
            at = (8 + number) * FRAME_BYTES
            for kind in ("both", "in", "out"):
                head, raw = answer(connection)
                assert head["id"] == f"{kind} {number}"
                (output,) = head["outputs"]
                assert output["shape"] == list(SHAPE)
                assert output["parameters"] == (RAW if kind == "in" else region.piece(at, FRAME_BYTES))
                assert raw == ([expected] if kind == "in" else [])
            assert region.memory[at : at + FRAME_BYTES] == expected


@pytest.mark.parametrize(
    ("size_bytes", "offset_bytes", "said"),
    [
        (FRAME_BYTES, REGION_BYTES - FRAME_BYTES + 1, "its region has"),
        (FRAME_BYTES, 2**63 - 1, "its region has"),
        (FRAME_BYTES, -1, "shared_memory_offset"),
        (FRAME_BYTES, 2**64, "shared_memory_offset"),
        (FRAME_BYTES - 1, 0, f"expected {FRAME_BYTES}"),
        (2**63 - 1, 0, f"expected {FRAME_BYTES}"),
    ],
)
def test_what_does_not_lie_in_the_region_is_refused(
    connection: zmq.Socket[bytes], path: str, size_bytes: int, offset_bytes: int, said: str
) -> None:
    with ClientRegion(path, REGION_BYTES) as region:
        for place in ("in", "out"):
            piece = region.piece(offset_bytes, size_bytes)
            if place == "in":
                infer(connection, place, piece)
            elif size_bytes <= FRAME_BYTES:
                infer(connection, place, region.piece(0, FRAME_BYTES), wanted=piece)
            else:
                continue
            code, message = error(connection)
            assert code == "INVALID_ARGUMENT"
            assert said in message


def test_a_region_is_its_connections_own(daemon: DaemonProcess, connection: zmq.Socket[bytes], path: str) -> None:
    with ClientRegion(path, REGION_BYTES) as region:
        infer(connection, "mine", region.piece(0, FRAME_BYTES))
        assert "error" not in answer(connection)[0]
        with connect(daemon) as stranger:
            for token in (region.token, "0" * 32, "", region.token[:-1]):
                infer(stranger, token, region.piece(0, FRAME_BYTES) | {"shared_memory_region": token})
                assert error(stranger) == (
                    "INVALID_ARGUMENT", says("input 'x': no region of …"),
                )  # fmt: skip
        infer(connection, "mine still", region.piece(0, FRAME_BYTES))
        assert "error" not in answer(connection)[0]

    def has_ended() -> bool:
        infer(connection, "ended", region.piece(0, FRAME_BYTES))
        return "error" in answer(connection)[0]

    until(has_ended, "the region's end")


def test_memory_that_changes_while_a_frame_runs_spoils_that_frame_alone(
    connection: zmq.Socket[bytes], path: str
) -> None:
    with ClientRegion(path, REGION_BYTES) as region:
        for number in range(32):
            infer(connection, f"spoilt {number}", region.piece(0, FRAME_BYTES))
            infer(connection, f"whole {number}", RAW, frame_of(number).tobytes())
            region.memory[:FRAME_BYTES] = os.urandom(FRAME_BYTES)
        for _ in range(64):
            head, raw = answer(connection)
            kind, number = head["id"].split()
            assert kind == "spoilt" or raw == [frame_of(int(number)).tobytes()]


def test_a_client_that_goes_with_frames_in_flight_leaves_nothing(daemon: DaemonProcess, path: str) -> None:
    pids = daemon.pid, *daemon.wait_for_workers().values()
    for _ in range(5):
        with connect(daemon) as gone, ClientRegion(path, REGION_BYTES) as region:
            for number in range(8):
                piece = region.piece(number * FRAME_BYTES, FRAME_BYTES)
                infer(gone, str(number), piece, wanted=piece)
    until(lambda: not regions_of(*pids), "the end of every region")


def test_very_many_regions_are_refused_and_had_again(daemon: DaemonProcess, path: str) -> None:
    """Neither one client nor its descriptors are without end; and bytes as little as regions."""
    with pytest.raises(Refused) as too_large:
        ClientRegion(path, 2**50)
    assert too_large.value.error["code"] == "RESOURCE_EXHAUSTED"
    held: list[ClientRegion] = []
    refused: Counter[str] = Counter()
    try:
        for _ in range(10_000):
            try:
                held.append(ClientRegion(path, 4096))
            except Refused as refusal:
                refused[refusal.error["code"]] += 1
                if refused.total() == 100:
                    break
    finally:
        for region in held:
            region.close()
    assert refused == {"RESOURCE_EXHAUSTED": 100}
    assert len(held) >= 16
    with Client(daemon.endpoint) as client:
        assert (client.infer(frame_of(5)).output == frame_of(5)).all()

    def has_one() -> bool:
        try:
            ClientRegion(path, 4096).close()
        except Refused:
            return False
        return True

    until(has_one, "another region")


@pytest.mark.parametrize("said", [b"{", b'{"op":"region"}', b'{"op":"region","size_bytes":0}', b"x" * 10_000])
def test_what_is_not_understood_ends_the_connection(path: str, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.settimeout(PATIENCE_S)
        end.connect(path)
        reply, fds = talk(end, said)
        assert reply is not None
        assert reply["error"]["code"] in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")
        assert not fds
        assert end.recv(1) == b""


def test_a_connection_has_one_region_and_who_asks_for_two_has_none(
    daemon: DaemonProcess, connection: zmq.Socket[bytes], path: str
) -> None:
    pids = daemon.pid, *daemon.wait_for_workers().values()
    with ClientRegion(path, FRAME_BYTES) as region:
        infer(connection, "lent to a worker", region.piece(0, FRAME_BYTES))
        assert "error" not in answer(connection)[0]
        reply, _ = talk(region._end, b'{"op":"region","size_bytes":1}')
        assert reply is not None
        assert reply["error"]["code"] == "FAILED_PRECONDITION"
        until(lambda: not regions_of(*pids), "the end of every region")


def test_the_socket_is_for_this_user_alone(path: str) -> None:
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_program_is_cut_off(path: str) -> None:
    """Even one that was let into the folder."""
    folder = Path(path).parent
    program = f"""
import os, socket, sys
end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.chdir({str(folder)!r})
os.setuid(65534)
end.connect("socket")
try:
    end.send(b'{{"op":"region","size_bytes":4096}}')
    sys.exit(len(socket.recv_fds(end, 4096, 4)[0]))
except (ConnectionResetError, BrokenPipeError):
    sys.exit(0)
"""
    folder.chmod(0o777)
    Path(path).chmod(0o777)
    try:
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    finally:
        folder.chmod(0o700)


def test_where_others_may_enter_the_folder_clients_send_bytes(identity: Path, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/daemon"
    Path(f"{tmp_path}/daemon.share").mkdir(mode=0o755)
    with DaemonProcess(tmp_path, identity, "--machine", machine_file(tmp_path, ["a"]), endpoint=endpoint) as daemon:
        with Client(endpoint) as client:
            assert client.metadata()["server"]["shared_memory_socket"] is None
            assert (client.infer(frame_of(1)).output == frame_of(1)).all()
        daemon.terminate()
        assert "cannot share memory" in daemon.stderr()
        assert not [path for path in tmp_path.iterdir() if path.suffix == ".share"]


def test_nothing_is_left_of_it(identity: Path, tmp_path: Path) -> None:
    """Beside an ipc endpoint, too."""
    endpoint = f"ipc://{tmp_path}/daemon"
    with DaemonProcess(tmp_path, identity, "--machine", machine_file(tmp_path, ["a"]), endpoint=endpoint) as daemon:
        with Client(endpoint) as client:
            path = Path(client.metadata()["server"]["shared_memory_socket"])
        assert path.parent.parent == tmp_path
        with ClientRegion(str(path), 4096):
            daemon.terminate()
        assert not path.parent.exists()
        daemon.assert_nothing_left()
