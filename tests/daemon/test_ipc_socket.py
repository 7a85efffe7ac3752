"""Whatever lies at an ipc path stays there, unless it is the socket of a daemon that died."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

from shisha_rt.daemon.front.addresses import check_endpoint
from shisha_rt.daemon.front.gateway import Gateway
from shisha_rt.daemon.front.ipc_socket import IpcSocket
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.endpoint import fits_socket
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.signature import Signature
from tests.waiting import PATIENCE_S
from tests.wording import raised


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


def test_sockets_fit_in_the_folders_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever TMPDIR is: tests/conftest.py."""
    assert fits_socket(tmp_path_factory.getbasetemp() / f"{'t' * 30}0" / "daemon.sock.share" / "socket")


def serve(context: zmq.Context[zmq.Socket[bytes]], path: Path) -> Gateway:
    return Gateway(context, f"ipc://{path}", Signature("tiny", (), ()), Limits(), Regions(16, 1 << 20), lambda _: None)


def assert_answers(context: zmq.Context[zmq.Socket[bytes]], gateway: Gateway, path: Path) -> None:
    client = context.socket(zmq.DEALER)
    client.connect(f"ipc://{path}")
    client.send(b"no header")
    assert gateway.socket.poll(timeout=int(PATIENCE_S * 1e3))
    assert list(gateway.receive()) == []  # it has been refused
    assert client.poll(timeout=int(PATIENCE_S * 1e3))
    assert b"it is not JSON" in client.recv()
    client.close(linger=0)


def refusal(endpoint: str) -> str:
    with pytest.raises(BadInput) as refused:
        IpcSocket(endpoint)
    said = str(refused.value)
    assert said.startswith(f"endpoint {endpoint}: ")
    assert "expected a" in said
    assert "\n" not in said
    return said


def test_a_path_that_is_no_utf_8_is_refused_before_anything_is_made(path: Path) -> None:
    """Such an endpoint fits no message to a child, and a daemon that could not bind it hung as it closed."""
    with raised(BadInput, Error.BAD_ENDPOINT):
        IpcSocket(f"ipc://{path.parent}/\udcff")
    assert not list(path.parent.iterdir())


def test_without_a_descriptor_left_nothing_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as context:
        context.setattr("shisha_rt.daemon.front.ipc_socket.socket.socket", refused)
        assert os.strerror(errno.EMFILE) in refusal(f"ipc://{path}")
    assert not list(path.parent.iterdir())
    IpcSocket(f"ipc://{path}").close()


def make_file(path: Path) -> None:
    path.write_text("precious")


def make_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("precious")
    path.symlink_to("elsewhere")


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def make_link_to_a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path.with_name("other")))
    path.symlink_to("other")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_file, "a file"),
        (Path.touch, "a file"),
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a file"),
        (make_link, "a link"),
        (make_link_to_nothing, "a link"),
        (make_link_to_a_socket, "a link"),
    ],
)
def test_what_is_there_and_no_socket_is_left_alone(make: Callable[[Path], object], kind: str, path: Path) -> None:
    make(path)
    before = {(file.name, file.lstat().st_ino, file.lstat().st_mtime_ns) for file in path.parent.iterdir()}
    assert f"there is {kind}" in refusal(f"ipc://{path}")
    with raised(BadInput, Error.BAD_ENDPOINT, match=f"there is {kind}"):  # before anything else is done
        check_endpoint(f"ipc://{path}")
    assert {(file.name, file.lstat().st_ino, file.lstat().st_mtime_ns) for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("make", [make_file, Path.mkdir, make_link])
def test_what_is_beside_it_and_no_lock_of_ours_is_left_alone(make: Callable[[Path], object], path: Path) -> None:
    lock = path.with_name("socket.lock")
    make(lock)
    before = lock.lstat()
    assert "socket.lock beside it is" in refusal(f"ipc://{path}")
    assert lock.lstat() == before
    assert not path.exists()


@pytest.mark.parametrize("text", ["/", ".", "..", "/tmp/"])
def test_the_odd_names_of_folders_are_folders(text: str) -> None:
    assert "there is a" in refusal(f"ipc://{text}")


def test_a_path_is_as_long_as_a_socket_address_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """Not as long as a file's name: characters of two bytes count twice."""
    monkeypatch.chdir(tmp_path)
    assert "a path of 108 bytes; expected at most 107" in refusal(f"ipc://{'ü' * 54}")
    assert list(tmp_path.iterdir()) == []
    longest = Path("ü" * 53 + "x")
    gateway = serve(context, longest)
    assert_answers(context, gateway, longest)
    gateway.close()
    assert list(tmp_path.iterdir()) == []


def test_a_zero_byte_is_no_part_of_a_path() -> None:
    with raised(BadInput, Error.BAD_ENDPOINT, match=r"'ipc:///tmp/a\\x00b': no path has"):
        check_endpoint("ipc:///tmp/a\0b")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in refusal(f"ipc://{tmp_path}/no/such")


def test_the_socket_of_a_daemon_that_died_is_taken_over(path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    path.with_name("socket.lock").touch()
    gateway = serve(context, path)
    assert_answers(context, gateway, path)
    gateway.close()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_the_socket_of_another_program_is_left_alone(kind: socket.SocketKind, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        if kind == socket.SOCK_STREAM:
            other.listen()
        assert "another program serves" in refusal(f"ipc://{path}")
        assert [file.name for file in path.parent.iterdir()] == ["socket"]


def test_a_second_daemon_is_refused_and_the_first_goes_on(path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    gateway = serve(context, path)
    assert "another daemon serves" in refusal(f"ipc://{path}")
    assert_answers(context, gateway, path)
    gateway.close()


def test_what_was_put_there_meanwhile_outlives_us(path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    gateway = serve(context, path)
    for name in ("socket", "socket.lock"):
        path.with_name(name).unlink()
        path.with_name(name).write_text("precious")
    gateway.close()
    context.term()  # by now ZeroMQ has closed it, too
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == {
        "socket": "precious",
        "socket.lock": "precious",
    }


def test_one_that_comes_as_another_ends_is_refused_for_no_other_reason_than_that_one(path: Path) -> None:
    """It ends between two looks at its lock, which goes with it."""
    holder = IpcSocket(f"ipc://{path}")
    expected = refusal(f"ipc://{path}")
    holder.close()

    def serve_or_why_not(_: int) -> str:
        try:
            IpcSocket(f"ipc://{path}").close()
        except BadInput as refused:
            return str(refused)
        return expected

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(serve_or_why_not, range(4000))) == {expected}
    assert not list(path.parent.iterdir())


def test_more_clients_may_come_at_once_than_are_accepted_at_once(tmp_path: Path) -> None:
    listening = IpcSocket(f"ipc://{tmp_path}/socket")
    clients = [socket.socket(socket.AF_UNIX) for _ in range(500)]
    try:
        for client in clients:
            client.setblocking(False)
            client.connect(f"{tmp_path}/socket")  # or BlockingIOError
    finally:
        for client in clients:
            client.close()
        listening.close()
