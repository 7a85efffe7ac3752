"""Every kind of line between the daemon and its processes keeps the same promises: one suite for all of them.

A line's other end says again what it hears, so that each message crosses in both directions.
"""

from __future__ import annotations

import array
import fcntl
import gc
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pytest

from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.fleet.supervisor import WorkerLink
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.messages import worker as m
from shisha_rt.process.channel import LARGEST_BYTES, SMALL_BYTES, Channel, ChannelBroken, OtherEndGone
from shisha_rt.process.codec import Codec
from tests.process.descriptors import open_descriptors
from tests.waiting import PATIENCE_S

KIB: Final = 1 << 10
MIB: Final = 1 << 20
SIZES: Final = (1, 8, SMALL_BYTES, SMALL_BYTES + 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB, 10 * MIB)

ECHO: Final = """
import os, sys
from msgspec import msgpack
from shisha_rt.process.channel import Channel

channel = Channel.inherited(int(sys.argv[1]))
channel.send(msgpack.encode(b"%d" % os.getpid()))
while True:
    channel.send(channel.wait())
"""


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    gc.collect()  # or what an earlier test has left in a cycle of references is closed meanwhile
    before = open_descriptors()
    yield
    assert open_descriptors() == before


# --- the kinds: when a line's interface changes, it is here ---------------------------------------------------


class Line(Protocol):
    def send(self, data: bytes) -> None: ...

    def heard(self) -> Iterable[bytes]:
        """What has come since the last call; sends what waits."""

    def pause(self) -> None:
        """The other end reads nothing, until it is to go on."""

    def go_on(self) -> None: ...

    def close(self) -> None: ...


class Echo:
    """A thread with the blocking end."""

    def __init__(self, end: socket.socket, reply: Callable[[bytes], bytes]) -> None:
        self.reads = threading.Event()
        self.reads.set()
        self._channel = Channel.inherited(end.detach())
        self._reply = reply
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OtherEndGone, ChannelBroken):
            while self.reads.wait():
                self._channel.send(self._reply(self._channel.wait()))
        self._channel.close()

    def join(self) -> None:
        self.reads.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class ChannelLine:
    def __init__(self, folder: Path) -> None:
        self.channel, theirs = Channel.pair()
        self._echo = Echo(theirs, lambda data: data)
        self.send = self.channel.send
        self.pause = self._echo.reads.clear
        self.go_on = self._echo.reads.set

    def heard(self) -> Iterable[bytes]:
        self.channel.flush()
        return self.channel.receive()

    def close(self) -> None:
        self.channel.close()
        self._echo.join()


class LinkLine:
    """What is said goes as a device's name, and comes back as a reason."""

    def __init__(self, folder: Path) -> None:
        self._poller = Poller()
        self._link = WorkerLink(self._poller)
        theirs = self._link.open(1)
        self._echo = Echo(theirs, self._reply)
        self.pause = self._echo.reads.clear
        self.go_on = self._echo.reads.set

    @staticmethod
    def _reply(data: bytes) -> bytes:
        order = m.TO_WORKER.decode(data)
        assert isinstance(order, m.Prepare)
        (said,) = order.placement
        return m.FROM_WORKER.encode(m.PrepareFailed(1, 0, 1, said))

    def send(self, data: bytes) -> None:
        hung = self._link.send(1, m.Prepare(1, 0, ((0, 0),), placement=(data.decode("latin-1"),)))
        if hung is not None:
            raise ChannelBroken(hung.reason)

    def heard(self) -> Iterable[bytes]:
        for message in self._link.receive(1):
            assert isinstance(message, m.PrepareFailed)
            yield message.reason.encode("latin-1")

    def close(self) -> None:
        self._link.close(1)
        self._poller.close()
        self._echo.join()


class ChildLine:
    def __init__(self, folder: Path) -> None:
        (folder / "echo_child.py").write_text(ECHO)
        self._poller = Poller()
        codec: Codec[bytes] = Codec(bytes)
        self._link = ChildLink(ChildProgram("echo_child", codec, codec), self._poller, str)
        self._link.start()
        self.send = self._link.send
        (pid,) = until_heard(self, 1)
        self._pid = int(pid)

    def pause(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def heard(self) -> Iterable[bytes]:
        self._link.look()
        for event in self._poller.poll(0.001):
            assert isinstance(event, bytes), event
            yield event

    def close(self) -> None:
        self._link.close()
        self._poller.close()


@pytest.fixture(params=[ChannelLine, LinkLine, ChildLine])
def line(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _no_descriptor_is_left: None
) -> Iterator[Line]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    line: Line = request.param(tmp_path)
    yield line
    line.close()


def until_heard(line: Line, count: int) -> list[bytes]:
    messages: list[bytes] = []
    give_up_s = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < give_up_s, f"only {len(messages)} messages of {count} came"
        messages += line.heard()
    return messages


def assert_same(messages: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Without a picture of megabytes where they differ."""
    assert [len(data) for data in messages] == [len(data) for data in expected]
    assert [i for i, (first, other) in enumerate(zip(messages, expected, strict=True)) if first != other] == []


# --- what each kind promises ----------------------------------------------------------------------------------


def test_each_size_arrives_whole_and_in_order_among_small_ones(line: Line) -> None:
    sent = [data for i, size in enumerate(SIZES) for data in (b"small %d" % i, content(size, i))]
    for data in sent:
        line.send(data)
    assert_same(until_heard(line, len(sent)), sent)


def test_nothing_is_lost_while_the_other_end_does_not_read(line: Line) -> None:
    sent = [content(64 * KIB, i) if i % 100 == 50 else b"%d %s" % (i, b"x" * 1000) for i in range(2000)]
    line.pause()
    for data in sent:
        line.send(data)
    messages = list(line.heard())
    assert len(messages) <= 1  # a thread had begun to wait for the first
    line.go_on()
    messages += until_heard(line, len(sent) - len(messages))
    assert_same(messages, sent)


# --- a channel's ends -----------------------------------------------------------------------------------------


@pytest.fixture
def closing(_no_descriptor_is_left: None) -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


Ends = tuple[Channel, Channel]


@pytest.fixture
def ends(closing: ExitStack) -> Ends:
    """The daemon's, and a child's."""
    ours, theirs = Channel.pair()
    other = Channel.inherited(theirs.detach())
    closing.callback(ours.close)
    closing.callback(other.close)
    return ours, other


@pytest.mark.parametrize("size", [100, SMALL_BYTES + 1])
@pytest.mark.parametrize("turned", [False, True])
def test_what_an_end_had_sent_before_it_went_is_received(ends: Ends, size: int, turned: bool) -> None:
    """Although it has left something unread, of which the kernel tells first."""
    ours, other = ends[::-1] if turned else ends
    said = [content(size, i) for i in range(3)]
    for data in said:
        other.send(data)
    ours.send(b"never read")
    other.close()
    for _ in range(2):
        with pytest.raises(ChannelBroken, match="is gone"):
            ours.send(b"too late")
    assert not ours.open
    assert list(ours.receive()) == said
    assert list(ours.receive()) == []


def test_what_a_handler_receives_amid_a_message_takes_the_place_of_none(loops: Ends) -> None:
    """As in a client's call within a signal's handler: an answer was lost to another one, in the same buffer."""
    sender, receiver = loops
    for message in (b"first", b"second"):
        assert sender.try_send(message)
    amid: list[bytes | None] = []

    def interrupt(_frame: object, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "").startswith("recvmsg"):
            sys.setprofile(None)
            amid.append(receiver.take())

    sys.setprofile(interrupt)
    try:
        taken = receiver.take()
    finally:
        sys.setprofile(None)
    assert (taken, amid) == (b"first", [b"second"])


def test_an_end_that_is_gone_is_seen_by_who_receives(ends: Ends) -> None:
    ours, other = ends
    other.close()
    assert ours.open
    assert list(ours.receive()) == []
    assert not ours.open
    with pytest.raises(ChannelBroken):
        ours.send(b"too late")


def test_an_end_that_is_gone_is_seen_by_who_waits(ends: Ends) -> None:
    ours, other = ends
    ours.send(b"last")
    other.send(b"never read")
    ours.close()
    assert other.wait() == b"last"
    with pytest.raises(OtherEndGone):
        other.wait()
    assert not other.open
    with pytest.raises(OtherEndGone):
        other.wait()


def test_what_waits_for_an_end_that_goes_is_closed(ends: Ends) -> None:
    ours, other = ends
    for _ in range(1000):
        ours.send(content(SMALL_BYTES + 1))
    assert ours.waiting
    other.close()
    with pytest.raises(ChannelBroken, match="is gone"):
        ours.flush()
    assert not ours.waiting


def test_a_process_that_is_killed_is_heard_out(closing: ExitStack) -> None:
    ours, theirs = Channel.pair()
    closing.callback(ours.close)
    with theirs:
        child = subprocess.Popen([sys.executable, "-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    ours.send(b"again")
    said: list[bytes] = []
    give_up_s = time.monotonic() + PATIENCE_S
    while len(said) < 2 and time.monotonic() < give_up_s:
        said += ours.receive()
    assert said == [msgspec.msgpack.encode(b"%d" % child.pid), b"again"]
    child.send_signal(signal.SIGSTOP)
    for _ in range(1000):
        ours.send(b"unread" * 1000)
    assert ours.waiting
    child.kill()
    child.wait()
    assert list(ours.receive()) == []
    assert not ours.open
    assert not ours.waiting


@pytest.mark.parametrize("size", [1, 1000, SMALL_BYTES + 1, MIB // 4])
def test_more_than_may_wait_breaks_it(monkeypatch: pytest.MonkeyPatch, closing: ExitStack, size: int) -> None:
    monkeypatch.setattr("shisha_rt.process.channel.MAX_WAITING_BYTES", MIB)
    ours, theirs = Channel.pair()
    closing.callback(ours.close)
    other = Channel.inherited(theirs.detach())
    closing.callback(other.close)
    sent = 0
    with pytest.raises(ChannelBroken, match=r"not read, and \d+ bytes wait for"):  # noqa: PT012
        while sent < 10_000:
            ours.send(b"x" * size)
            sent += 1
    assert sent * (size + 1000) > MIB
    assert not ours.open
    assert not ours.waiting
    with pytest.raises(ChannelBroken, match="does not read"):
        ours.send(b"x")
    other.send(b"what it says is heard all the same")
    assert list(ours.receive()) == [b"what it says is heard all the same"]


def test_a_message_may_be_empty_but_not_without_bounds(ends: Ends) -> None:
    ours, other = ends
    ours.send(b"")
    assert other.wait() == b""
    with pytest.raises(ChannelBroken, match="expected at most"):
        ours.send(bytes(LARGEST_BYTES + 1))


def test_an_end_that_is_closed_sends_no_more(ends: Ends) -> None:
    ours, _ = ends
    ours.close()
    ours.close()
    with pytest.raises(ChannelBroken, match="end is closed"):
        ours.send(b"x")


@pytest.fixture
def loops(closing: ExitStack) -> Ends:
    """Two ends that never wait: the daemon's, and that of a child with a loop."""
    ours, theirs = Channel.pair()
    other = Channel.of_loop(theirs.detach())
    closing.callback(ours.close)
    closing.callback(other.close)
    return ours, other


@pytest.mark.parametrize("size", [100, SMALL_BYTES, SMALL_BYTES + 1])
def test_what_cannot_be_sent_at_once_is_not_queued_and_can_be_later(loops: Ends, size: int) -> None:
    ours, other = loops
    assert other.take() is None
    sent = 0
    while other.try_send(content(size, sent)):
        sent += 1
    assert sent > 1
    assert not other.lacks
    assert not other.waiting
    assert list(ours.receive()) == [content(size, number) for number in range(sent)]
    assert other.try_send(b"")
    assert ours.take() == b""


def test_large_messages_that_nobody_reads_are_bounded(closing: ExitStack) -> None:
    """The socket's buffer counts only their descriptors, and would take hundreds of any size."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, other = Channel(ends[0]), Channel(ends[1], most_unread_bytes=200_000)
    closing.callback(ours.close)
    closing.callback(other.close)
    for _ in range(3):
        for number in range(2):
            assert other.try_send(content(80_000, number))
        assert not other.try_send(content(80_000, 2))
        assert other.try_send(b"a small one")
        assert ours.take() == content(80_000, 0)
        assert not other.try_send(content(80_000, 2))  # until all are read
        assert ours.take() == content(80_000, 1)
        assert ours.take() == b"a small one"
    assert other.try_send(bytes(500_000))  # one alone may have any size
    assert not other.try_send(content(80_000, 0))


def test_signs_of_life_without_pause_do_not_hold_the_reader(loops: Ends) -> None:
    ours, other = loops
    for _ in range(100):
        assert other.beat()
    assert other.try_send(b"after them")
    assert ours.take() is None
    assert ours.beats < 100
    assert ours.take() == b"after them"
    assert ours.beats == 100


def test_nothing_is_sent_to_an_end_that_is_gone(loops: Ends) -> None:
    ours, other = loops
    ours.close()
    for _ in range(2):
        with pytest.raises(ChannelBroken, match="is gone"):
            other.try_send(b"x")
    assert not other.open


# --- without descriptors --------------------------------------------------------------------------------------


@pytest.fixture
def no_more_descriptors() -> Iterator[Callable[[], None]]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def take() -> None:
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, limits[1]))

    yield take
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_large_message_without_a_descriptor_to_be_had_is_not_lost_in_silence(
    ends: Ends, no_more_descriptors: Callable[[], None]
) -> None:
    ours, other = ends
    ours.send(b"before")
    no_more_descriptors()
    with pytest.raises(ChannelBroken, match="a message of 40000 bytes: Too many open"):
        ours.send(bytes(40_000))
    assert not ours.open
    assert list(other.receive()) == [b"before"]


def test_a_large_message_waits_until_a_descriptor_is_to_be_had(
    loops: Ends, no_more_descriptors: Callable[[], None]
) -> None:
    ours, other = loops
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_more_descriptors()
    assert not ours.try_send(bytes(40_000))
    assert ours.lacks
    assert ours.try_send(b"a small one")
    assert not ours.lacks
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert ours.try_send(bytes(40_000))
    assert list(other.receive()) == [b"a small one", bytes(40_000)]


def test_a_large_message_that_cannot_be_taken_in_is_not_lost_in_silence(
    ends: Ends, no_more_descriptors: Callable[[], None]
) -> None:
    ours, other = ends
    other.send(bytes(40_000))
    no_more_descriptors()
    with pytest.raises(ChannelBroken, match="it was truncated"):
        list(ours.receive())
    assert not ours.open


# --- what is no message ---------------------------------------------------------------------------------------

SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def memfd(size: int, seals: int) -> int:
    fd = os.memfd_create("forged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def regular_file(size: int) -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())


def header(size: int) -> bytes:
    return struct.pack("<Q", size)


FORGED: Final[dict[str, Callable[[], tuple[bytes, list[int]]]]] = {
    "cut": lambda: (bytes(SMALL_BYTES + 1), []),
    "smaller than it says": lambda: (header(101), [memfd(100, SEALS)]),
    "larger than it says": lambda: (header(99), [memfd(100, SEALS)]),
    "larger than any": lambda: (header(LARGEST_BYTES + 1), [memfd(LARGEST_BYTES + 1, SEALS)]),
    "does not say": lambda: (b"\x01", [memfd(1, SEALS)]),
    "not sealed": lambda: (header(100), [memfd(100, 0)]),
    "may be written to": lambda: (header(100), [memfd(100, SEALS & ~fcntl.F_SEAL_WRITE)]),
    "may shrink": lambda: (header(100), [memfd(100, SEALS & ~fcntl.F_SEAL_SHRINK)]),
    "a file": lambda: (header(100), [regular_file(100)]),
    "an event": lambda: (header(0), [os.eventfd(0)]),
    "two": lambda: (header(100), [memfd(100, SEALS), memfd(100, SEALS)]),
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("waited_for", [False, True])
def test_what_is_no_message_is_refused(closing: ExitStack, forged: str, waited_for: bool) -> None:
    ours, theirs = Channel.pair()
    closing.callback(ours.close)
    closing.callback(theirs.close)
    data, fds = FORGED[forged]()
    theirs.send(b"before")
    theirs.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    for fd in fds:
        os.close(fd)
    coming = ours.receive()
    assert next(coming) == b"before"
    with pytest.raises(ChannelBroken, match="that is no message"):
        ours.wait() if waited_for else next(coming)
    assert not ours.open
    with pytest.raises(ChannelBroken, match="that is no message"):
        ours.send(b"x")
