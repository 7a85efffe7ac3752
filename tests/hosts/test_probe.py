"""A link is measured over plain TCP, with whoever answers at the other end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shisha_rt.hosts.probe import probe

LISTENS = "127.0.0.1"


@contextlib.contextmanager
def one_who(answers: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of one who takes a connection and does so with it."""
    with socket.create_server((LISTENS, 0)) as listener:

        def take() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                answers(connection)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # for a thread that waits still
            thread.join()


def read_one(connection: socket.socket) -> bytes:
    """What it asks first, and wants a byte for."""
    return connection.recv(17, socket.MSG_WAITALL)


def test_a_far_host_answers_itself() -> None:
    pytest.importorskip("ray", reason="needs Ray: the extra `ray`")
    from shisha_rt.hosts.actor import FarHost

    far = FarHost()
    there, back = probe(far.about()[0], far.echo())
    for way in (there, back):
        assert 0 < way.latency_s < 1
        assert way.bytes_per_s > 1e6
    assert there.latency_s == back.latency_s


def test_the_second_who_comes_is_not_answered() -> None:
    pytest.importorskip("ray", reason="needs Ray: the extra `ray`")
    from shisha_rt.hosts.actor import FarHost

    far = FarHost()
    address, port = far.about()[0], far.echo()
    probe(address, port)
    with pytest.raises(ConnectionError):
        probe(address, port)


def test_one_who_hangs_up_at_once_is_an_error() -> None:
    with one_who(lambda _: None) as port, pytest.raises(ConnectionError):
        probe(LISTENS, port)


def test_one_who_hangs_up_later_is_an_error() -> None:
    def answers_once(connection: socket.socket) -> None:
        assert read_one(connection)[:8] == (1).to_bytes(8, "little")
        connection.sendall(b"\0")
        read_one(connection)

    with one_who(answers_once) as port, pytest.raises(ConnectionResetError, match="it hangs up"):
        probe(LISTENS, port)


@pytest.mark.parametrize("answers", [0, 1], ids=["at-all", "any-more"])
def test_one_who_does_not_answer_is_waited_for_so_long(answers: int) -> None:
    done = threading.Event()

    def stays(connection: socket.socket) -> None:
        for _ in range(answers):
            read_one(connection)
            connection.sendall(b"\0")
        done.wait()

    with one_who(stays) as port:
        with pytest.raises(TimeoutError):
            probe(LISTENS, port, patience_s=0.2)
        done.set()


def test_one_who_answers_a_byte_at_a_time_is_waited_for_so_long() -> None:
    """Each is in time, and all of them would take hours."""

    def drips(connection: socket.socket) -> None:
        while header := connection.recv(16, socket.MSG_WAITALL):
            there, back = int.from_bytes(header[:8], "little"), int.from_bytes(header[8:], "little")
            while there:
                there -= len(connection.recv(min(there, 1 << 20)))
            for _ in range(back):
                connection.sendall(b"\0")
                if back > 1:
                    time.sleep(0.01)

    with one_who(drips) as port, pytest.raises(TimeoutError):
        probe(LISTENS, port, patience_s=1.0)
