"""The two ends of the line between the daemon and one of its processes: a pair of connected SOCK_SEQPACKET sockets.

They keep messages apart and in order, and show when the other end is gone. The pair has no name: nothing to bind, to
guess or to clean up. Each incarnation has its own pair, so a message for a dead worker can never reach its successor. A
client's direct line (`daemon/front/lines.py`) is such a pair too, which the client asks for at a named socket.
(With ZeroMQ, whose input and output threads compete with the stages for the cores, the same messages cost about 150 us
more CPU for each frame.)

A message may have any size up to `LARGEST_BYTES`. A small message is sent as one datagram. The kernel refuses a
datagram larger than the socket's buffer, and silently truncates one larger than the reader's buffer. So a large message
is put into a memfd; the datagram has its size, and the memfd's descriptor as ancillary data ("beside" it). The memfd is
sealed, so that its content cannot change after the reader has checked it. A small message may carry a descriptor too;
a size of 0 then precedes the message in the datagram.

A process may also send heartbeats on its line (`Channel.beat`), at any time and from any thread. The receiving end
counts heartbeats and does not return them as messages.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import math
import os
import socket
import struct
import termios
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shisha_rt.process.readable import queued_bytes

SMALL_BYTES: Final = 32 << 10
LARGEST_BYTES: Final = 256 << 20
MAX_WAITING_BYTES: Final = 64 << 20

_ENTRY_BYTES: Final = 256  # memory for a queued message, besides its content
_SIZE: Final = struct.Struct("<Q")
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_FD_BYTES: Final = array.array("i").itemsize
_ONE_FD: Final = socket.CMSG_LEN(_FD_BYTES)  # CMSG_SPACE would have room for two
# Plain numbers: the socket module's own take a microsecond to combine.
_TRUNCATED: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_BLOCKING: Final = int(socket.MSG_CMSG_CLOEXEC)
_NONBLOCKING: Final = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_PEEKING: Final = int(_NONBLOCKING | socket.MSG_PEEK)
_NO_DESCRIPTOR: Final = int(socket.MSG_CTRUNC)
_SHORTAGES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS, errno.EFBIG, errno.ENOSPC}
)
"""Shortages of memory or descriptors, which may have passed when the message is tried again."""
GONE: Final = "the other end is gone"
BEAT: Final = b"\xc1"
"""A heartbeat. No message is this byte alone, as msgpack does not use it."""
BEAT_EVERY_S: Final = 1.0
_BEATS_AT_ONCE: Final = 64


class OtherEndGone(Exception):
    """There is nobody at the other end of a channel, and nothing of it is left to read."""


class ChannelBroken(Exception):
    """Nothing more goes through; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class _WithDescriptor:
    """A message in a sealed memfd, or a `small` message with a descriptor of its sender's choice. It owns `fd`."""

    fd: int
    size_bytes: int
    small: bytes = b""

    @property
    def beside(self) -> tuple[int, int, array.array[int]]:
        return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.fd])


class Channel:
    """One end of a line, used by one thread. It is `open` until it breaks or the other end is found to be gone; after
    that nothing is sent, but what the other end had sent before can still be received.

    `largest_bytes`: a larger message breaks the channel when it is received. `most_unread_bytes`: how much of the large
    messages sent by `try_send` the other end may leave unread; the socket's own limit counts only their descriptors.
    `waiting`: messages that are queued; flush them when the socket is writable again, or periodically. `beside`:
    received descriptors, for `take_beside`. `beats`: number of heartbeats received. `lacks`: why the last
    `try_send` failed for want of memory, room or descriptors, else empty; polling does not tell when there are some.
    `peeks`: what `take` does with a message whose descriptor this process has no room for. If set, `take` leaves the
    message in the socket and sets `lacks_descriptor`, which costs one more system call for each message; if not, the
    message is lost and the channel breaks.
    """

    def __init__(
        self, end: socket.socket, largest_bytes: int = LARGEST_BYTES, most_unread_bytes: float = math.inf
    ) -> None:
        self._end = end
        self._largest_bytes = largest_bytes
        self._most_unread_bytes = most_unread_bytes
        self._unread_bytes = 0  # large messages sent since the other end was last seen to have read everything
        self.waiting: deque[bytes | _WithDescriptor] = deque()
        self._waiting_bytes = 0
        self._reason = GONE
        self.beside: deque[int] = deque()
        self.open = True
        self.lacks = ""
        self.peeks = self.lacks_descriptor = False
        self.beats = 0

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """The daemon's end, which never blocks, and the end that a child is to inherit."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        return cls(ours), theirs

    @classmethod
    def inherited(cls, fd: int) -> Channel:
        """A child's end. Sending blocks while the socket's buffer is full: the daemon has no time for more messages."""
        end = socket.socket(fileno=fd)
        end.setblocking(True)
        return cls(end)

    @classmethod
    def of_loop(cls, fd: int) -> Channel:
        """The end of a child that has an event loop. Sending never blocks."""
        channel = cls.inherited(fd)
        channel._end.setblocking(False)
        return channel

    def fileno(self) -> int:
        return self._end.fileno()

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, data: bytes, beside: int | None = None) -> None:
        """Send a message. If the socket's buffer is full, queue the message until `flush` or the next `send`.

        `beside`: a descriptor to send with a small message; it is duplicated, and the caller still has to close it.
        Raises ChannelBroken.
        """
        if beside is not None:
            self._send_beside(data, beside)
            return
        if self.waiting or not self.open or not 0 < len(data) <= SMALL_BYTES:
            self._send_in_turn(data)
            return
        try:
            self._end.send(data)
        except BlockingIOError:
            self._put_off(data)
        except OSError as error:
            raise self._not_sent(error) from None

    def try_send(self, data: bytes) -> bool:
        """Send a message without queueing. Returns False if that is not possible now. Raises ChannelBroken.

        Do not use `send` on the same channel: `try_send` would overtake the messages that `send` has queued.
        """
        if not self.open:
            raise ChannelBroken(self._reason)
        self.lacks = ""
        try:
            if 0 < len(data) <= SMALL_BYTES:
                self._end.send(data)
            elif self._may_leave_unread(len(data)):
                self._send_large(data)
            else:
                return False
        except OSError as error:
            self.lacks = (error.strerror or "") if error.errno in _SHORTAGES else ""
            if isinstance(error, BlockingIOError) or self.lacks:
                return False
            raise self._not_sent(error) from None
        return True

    def _send_large(self, data: bytes) -> None:
        """Raises OSError."""
        message = _WithDescriptor(_memfd(data), len(data))
        try:
            self._transmit(message)
        finally:
            _close([message])
        self._unread_bytes += message.size_bytes

    def _may_leave_unread(self, size_bytes: int) -> bool:
        """Whether `most_unread_bytes` allows another large message. A single one may have any size. Raises OSError."""
        is_too_much = self._unread_bytes + size_bytes > self._most_unread_bytes
        if is_too_much and not queued_bytes(self.fileno(), termios.TIOCOUTQ):  # the other end has read everything
            self._unread_bytes = 0
        return not self._unread_bytes or self._unread_bytes + size_bytes <= self._most_unread_bytes

    def _transmit(self, message: bytes | _WithDescriptor) -> None:
        """Raises OSError."""
        if isinstance(message, bytes):
            self._end.send(message)
        else:
            self._end.sendmsg([_SIZE.pack(message.size_bytes), message.small], [message.beside])

    def beat(self) -> bool:
        """Send a heartbeat, unless the socket's buffer is full. Returns False if the other end is gone."""
        try:
            self._end.send(BEAT, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def flush(self) -> None:
        """Send queued messages, as far as the socket's buffer allows. Raises ChannelBroken."""
        if not self.open:
            raise ChannelBroken(self._reason)
        while self.waiting:
            message = self.waiting[0]
            try:
                self._transmit(message)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._not_sent(error) from None
            self.waiting.popleft()
            self._waiting_bytes -= _waiting_bytes(message)
            _close([message])

    def _send_in_turn(self, data: bytes) -> None:
        self.flush()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise self._broken(f"the other end does not read, and {self._waiting_bytes} bytes wait for it")
        small = 0 < len(data) <= SMALL_BYTES  # an empty datagram would mean the end
        self._put_off(data if small else self._in_memfd(data))
        self.flush()

    def _send_beside(self, data: bytes, beside: int) -> None:
        assert 0 < len(data) <= SMALL_BYTES - _SIZE.size
        self.flush()
        try:
            self._put_off(_WithDescriptor(os.dup(beside), 0, data))
        except OSError as error:
            raise self._broken(f"no descriptor for a message: {error.strerror}") from None
        self.flush()

    def _put_off(self, message: bytes | _WithDescriptor) -> None:
        self.waiting.append(message)
        self._waiting_bytes += _waiting_bytes(message)

    def _in_memfd(self, data: bytes) -> _WithDescriptor:
        if len(data) > LARGEST_BYTES:
            raise self._broken(f"a message of {len(data)} bytes, expected at most {LARGEST_BYTES}")
        try:
            return _WithDescriptor(_memfd(data), len(data))
        except OSError as error:
            raise self._broken(f"no memory for a message of {len(data)} bytes: {error.strerror}") from None

    def _not_sent(self, error: OSError) -> ChannelBroken:
        gone = isinstance(error, BrokenPipeError | ConnectionResetError)
        return self._broken(GONE if gone else f"a message could not be sent: {error.strerror}")

    # --- receiving --------------------------------------------------------------------------------------------

    def take_beside(self) -> int:
        """The descriptor that came with the last message; the caller has to close it. Raises ChannelBroken."""
        if not self.beside:
            raise self._broken("a message came without its descriptor")
        return self.beside.popleft()

    def receive(self) -> Iterator[bytes]:
        """Yield messages as `take` does, until it returns None. Raises ChannelBroken for a malformed datagram."""
        while (data := self.take()) is not None:
            yield data

    def take(self) -> bytes | None:
        """Receive the next message; None if there is none. Raises ChannelBroken for a malformed datagram.

        Also returns None after `_BEATS_AT_ONCE` heartbeats, so that a peer that sends nothing else cannot hold up the
        caller.
        """
        flags = _PEEKING if self.peeks else _NONBLOCKING
        self.lacks_descriptor = False
        for _ in range(_BEATS_AT_ONCE):
            try:
                data, beside, flags_set, _ = self._end.recvmsg(SMALL_BYTES, _ONE_FD, flags)
            except BlockingIOError:
                return None
            except ConnectionResetError:  # the other end closed without reading all; what it sent is still here
                continue
            if self.peeks:
                if flags_set & _NO_DESCRIPTOR and not beside:
                    self.lacks_descriptor = True
                    return None
                self._end.recv(1, _NONBLOCKING)  # discards the datagram that was peeked at
            message = self._message(data, beside, flags_set)
            if message is not BEAT:
                return message
        return None

    def wait(self) -> bytes:
        """Wait for a message, on a channel that blocks. Raises OtherEndGone; ChannelBroken."""
        while True:
            try:
                data, beside, flags_set, _ = self._end.recvmsg(SMALL_BYTES, _ONE_FD, _BLOCKING)
            except ConnectionResetError:
                continue
            message = self._message(data, beside, flags_set)
            if message is None:
                raise OtherEndGone
            if message is not BEAT:
                return message

    def _message(self, data: bytes, beside: Sequence[tuple[int, int, Any]], flags_set: int) -> bytes | None:
        """The message in a datagram or in the datagram's memfd, or BEAT; None if the other end is gone."""
        if not beside and not flags_set & _TRUNCATED:
            if data == BEAT:
                self.beats += 1
                return BEAT
            if data:
                return data
            self._break(GONE)
            return None
        fds = _descriptors(beside)
        try:
            if flags_set & _TRUNCATED or len(fds) != 1:
                raise ValueError("it was truncated, or had no single descriptor")
            if len(data) > _SIZE.size:
                self.beside.append(os.dup(fds[0]))
                return data[_SIZE.size :]
            return _read_memfd(fds[0], data, self._largest_bytes)
        except (OSError, ValueError) as error:
            raise self._broken(f"a datagram came that is no message: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)

    # --- the end ----------------------------------------------------------------------------------------------

    def _broken(self, reason: str) -> ChannelBroken:
        self._break(reason)
        return ChannelBroken(reason)

    def _break(self, reason: str) -> None:
        """Send nothing more, and drop all queued messages; the first reason stays."""
        if self.open:
            self.open, self._reason = False, reason
        _close(self.waiting)
        self.waiting.clear()
        while self.beside:
            os.close(self.beside.popleft())
        self._waiting_bytes = 0

    def close(self) -> None:
        self._break("this end is closed")
        self._end.close()

    def shut_down(self) -> None:
        """Close this end for all processes that have it: a forked child would keep the line alive."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self.close()


def _waiting_bytes(message: bytes | _WithDescriptor) -> int:
    return _ENTRY_BYTES + (len(message) if isinstance(message, bytes) else message.size_bytes)


def _close(messages: Iterable[bytes | _WithDescriptor]) -> None:
    for message in messages:
        if isinstance(message, _WithDescriptor):
            os.close(message.fd)


def _memfd(data: bytes) -> int:
    """Make a sealed memfd with these bytes. Raises OSError."""
    fd = os.memfd_create("shisha-rt-message", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def _read_memfd(fd: int, header: bytes, largest_bytes: int) -> bytes:
    """Read a message. Raises OSError if `fd` is no memfd, ValueError if it is not sealed or has the wrong size."""
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise ValueError("it is not sealed")
    size_bytes = os.fstat(fd).st_size
    if header != _SIZE.pack(size_bytes) or size_bytes > largest_bytes:
        raise ValueError(f"it has {size_bytes} bytes")
    with open(fd, "rb", buffering=0, closefd=False) as file:
        file.seek(0)  # the offset is shared with the sender
        data = file.read()
    if len(data) != size_bytes:
        raise ValueError(f"only {len(data)} of its {size_bytes} bytes could be read")
    return data


def _descriptors(beside: Iterable[tuple[int, int, Any]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % _FD_BYTES])
    return fds.tolist()
