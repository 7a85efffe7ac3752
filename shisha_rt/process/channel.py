"""The two ends of the line between the daemon and one of its processes: a pair of connected SOCK_SEQPACKET sockets.

They keep messages apart and in order, and show when the other end is gone. The pair has no name: nothing to bind, to
guess or to clean up. Each incarnation has its own pair, so a message for a dead worker can never reach its successor. A
client's direct line (`daemon/front/lines.py`) is the same, but for a name at which it is asked for.
(With ZeroMQ, whose input and output threads compete with the stages for the cores, the same messages cost about 150 us
more CPU for each frame.)

A message may have any size up to `LARGEST_BYTES`. A small one is a datagram as it is. A datagram larger than the
socket's buffer is refused, and one larger than the reader's is silently cut. So a larger message is put into a memfd,
and the datagram is its size, with the memfd's descriptor beside it. The memfd is sealed, so that the reader reads what
it has checked. A small message may have a descriptor of its own beside it; a size of 0 then precedes it.

A process may also give signs of life on its line (`Channel.beat`), at any time and from any thread. The other end
counts them, and passes none on.
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
_CUT: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_WAITING: Final = int(socket.MSG_CMSG_CLOEXEC)
_NOW: Final = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_PEEKED: Final = int(_NOW | socket.MSG_PEEK)
_LOST: Final = int(socket.MSG_CTRUNC)
_LATER: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS})
"""What the system lacks for a large message now may be there again later."""
GONE: Final = "the other end is gone"
BEAT: Final = b"\xc1"
"""A sign of life. No message is this byte alone, as msgpack does not use it."""
BEAT_EVERY_S: Final = 1.0
_BEATS_AT_ONCE: Final = 64


class ChannelBroken(Exception):
    """Nothing more goes through; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class _Large:
    """A message in a sealed memfd, or a `small` one with any descriptor beside it. `fd` is ours to close."""

    fd: int
    size_bytes: int
    small: bytes = b""

    @property
    def beside(self) -> tuple[int, int, array.array[int]]:
        return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.fd])


class Channel:
    """One end of a line, used by one thread. It is `open` until it breaks or the other end is found to be gone; after
    that nothing is sent.

    What the other end had sent before can still be received. `beats`: how many signs of life it has given.
    `largest_bytes`: of a message to receive; a larger one breaks the channel. `most_unread_bytes`: of large messages
    that `try_send` has sent and the other end may leave unread; the socket's buffer counts only their descriptors.
    `lacks`: whether the last `try_send` failed as the system lacks something, which no descriptor signals the end of.
    `peeks`: `take` leaves a message unread, and sets `lacks_descriptor`, while this process may not have the message's
    descriptor; at one more system call a message. Without, such a message is lost and breaks the channel.
    """

    def __init__(
        self, end: socket.socket, largest_bytes: int = LARGEST_BYTES, most_unread_bytes: float = math.inf
    ) -> None:
        self._end = end
        self._largest_bytes = largest_bytes
        self._most_unread_bytes = most_unread_bytes
        self._unread_bytes = 0  # of large messages, since all were last seen to be read
        self._buffer = bytearray(SMALL_BYTES)
        self._buffers = [self._buffer]
        self._view = memoryview(self._buffer)
        self._waiting: deque[bytes | _Large] = deque()
        self._waiting_bytes = 0
        self._reason = GONE
        self._beside: deque[int] = deque()
        self.open = True
        self.lacks = False
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
        """A child's end. Sending may block: a daemon that does not read has no time for more messages."""
        end = socket.socket(fileno=fd)
        end.setblocking(True)
        return cls(end)

    @classmethod
    def of_loop(cls, fd: int) -> Channel:
        """The end of a child that has a loop, which never blocks."""
        channel = cls.inherited(fd)
        channel._end.setblocking(False)
        return channel

    def fileno(self) -> int:
        return self._end.fileno()

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, data: bytes, beside: int | None = None) -> None:
        """Send a message. If the socket's buffer is full it is queued, in order, until `flush` or the next message.

        `beside`: a descriptor that goes with a small message; it is duplicated, and stays the caller's. Raises
        ChannelBroken.
        """
        if beside is not None:
            self._send_beside(data, beside)
            return
        if self._waiting or not self.open or not 0 < len(data) <= SMALL_BYTES:
            self._send_in_turn(data)
            return
        try:
            self._end.send(data)
        except BlockingIOError:
            self._put_off(data)
        except OSError as error:
            raise self._not_sent(error) from None

    def try_send(self, data: bytes) -> bool:
        """Send a message at once; False, and nothing is queued, if that is not possible now. Raises ChannelBroken.

        Not to be mixed with `send`, whose queued messages it would overtake.
        """
        if not self.open:
            raise ChannelBroken(self._reason)
        message: bytes | _Large = data
        self.lacks = False
        try:
            if not 0 < len(data) <= SMALL_BYTES:
                if not self._may_leave_unread(len(data)):
                    return False
                message = _Large(_memfd(data), len(data))
            self._hand_over(message)
        except OSError as error:
            self.lacks = error.errno in _LATER
            if isinstance(error, BlockingIOError) or self.lacks:
                return False
            raise self._not_sent(error) from None
        finally:
            _close([message])
        if isinstance(message, _Large):
            self._unread_bytes += message.size_bytes
        return True

    def _may_leave_unread(self, size_bytes: int) -> bool:
        """Whether the other end may have one more large message of `size_bytes` to read. One alone may have any size.

        Raises OSError.
        """
        is_too_much = self._unread_bytes + size_bytes > self._most_unread_bytes
        if is_too_much and not queued_bytes(self.fileno(), termios.TIOCOUTQ):  # all has been read meanwhile
            self._unread_bytes = 0
        return not self._unread_bytes or self._unread_bytes + size_bytes <= self._most_unread_bytes

    def _hand_over(self, message: bytes | _Large) -> None:
        """Raises OSError."""
        if isinstance(message, bytes):
            self._end.send(message)
        else:
            self._end.sendmsg([_SIZE.pack(message.size_bytes), message.small], [message.beside])

    def beat(self) -> bool:
        """Give a sign of life, unless the socket's buffer is full. Returns False if the other end is gone."""
        try:
            self._end.send(BEAT, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    @property
    def waiting(self) -> bool:
        """Whether messages are queued: flush them when the socket is writable again, or periodically."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Send queued messages, as far as the socket's buffer allows. Raises ChannelBroken."""
        if not self.open:
            raise ChannelBroken(self._reason)
        while self._waiting:
            message = self._waiting[0]
            try:
                self._hand_over(message)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._not_sent(error) from None
            self._waiting.popleft()
            self._waiting_bytes -= _waiting_bytes(message)
            _close([message])

    def _send_in_turn(self, data: bytes) -> None:
        self.flush()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise self._broken(f"the other end does not read, and {self._waiting_bytes} bytes wait for it")
        small = 0 < len(data) <= SMALL_BYTES  # an empty datagram would mean the end
        self._put_off(data if small else self._large(data))
        self.flush()

    def _send_beside(self, data: bytes, beside: int) -> None:
        assert 0 < len(data) <= SMALL_BYTES - _SIZE.size
        self.flush()
        try:
            self._put_off(_Large(os.dup(beside), 0, data))
        except OSError as error:
            raise self._broken(f"no descriptor for a message: {error.strerror}") from None
        self.flush()

    def _put_off(self, message: bytes | _Large) -> None:
        self._waiting.append(message)
        self._waiting_bytes += _waiting_bytes(message)

    def _large(self, data: bytes) -> _Large:
        if len(data) > LARGEST_BYTES:
            raise self._broken(f"a message of {len(data)} bytes, expected at most {LARGEST_BYTES}")
        try:
            return _Large(_memfd(data), len(data))
        except OSError as error:
            raise self._broken(f"no memory for a message of {len(data)} bytes: {error.strerror}") from None

    def _not_sent(self, error: OSError) -> ChannelBroken:
        gone = isinstance(error, BrokenPipeError | ConnectionResetError)
        return self._broken(GONE if gone else f"a message could not be sent: {error.strerror}")

    # --- receiving --------------------------------------------------------------------------------------------

    @property
    def has_beside(self) -> bool:
        """Whether a message has come with a descriptor that was not taken yet."""
        return bool(self._beside)

    def take_beside(self) -> int:
        """The descriptor that came beside the message just received, the caller's to close. Raises ChannelBroken."""
        if not self._beside:
            raise self._broken("a message came without its descriptor")
        return self._beside.popleft()

    def receive(self) -> Iterator[bytes]:
        """Yield the messages that have come. Raises ChannelBroken for a malformed datagram."""
        while (data := self.take()) is not None:
            yield data

    def take(self) -> bytes | None:
        """The next message, or None if none has come. Raises ChannelBroken for a malformed datagram.

        None also after many signs of life: whoever gives them without pause must not hold the caller.
        """
        flags = _PEEKED if self.peeks else _NOW
        self.lacks_descriptor = False
        for _ in range(_BEATS_AT_ONCE):
            try:
                size, beside, said, _ = self._end.recvmsg_into(self._buffers, _ONE_FD, flags)
            except BlockingIOError:
                return None
            except ConnectionResetError:  # the other end went with unread messages; its own are still there
                continue
            if self.peeks:
                if said & _LOST and not beside:
                    self.lacks_descriptor = True
                    return None
                self._end.recv(1, _NOW)  # what has just been read
            data = self._message(size, beside, said)
            if data is not BEAT:
                return data
        return None

    def wait(self) -> bytes:
        """Wait for the next message; a child's end only. Raises EOFError if the other end is gone, ChannelBroken."""
        while True:
            try:
                size, beside, said, _ = self._end.recvmsg_into(self._buffers, _ONE_FD, _WAITING)
            except ConnectionResetError:
                continue
            data = self._message(size, beside, said)
            if data is None:
                raise EOFError
            if data is not BEAT:
                return data

    def _message(self, size: int, beside: Sequence[tuple[int, int, Any]], said: int) -> bytes | None:
        """The message that a datagram holds or refers to, or BEAT; None at the end of all messages."""
        if not beside and not said & _CUT:
            if size == 1 and self._buffer[0] == BEAT[0]:
                self.beats += 1
                return BEAT
            if size:
                return self._view[:size].tobytes()
            self._break(GONE)
            return None
        fds = _descriptors(beside)
        try:
            if said & _CUT or len(fds) != 1:
                raise ValueError("it was cut, or had other than one descriptor")
            if size > _SIZE.size:
                self._beside.append(os.dup(fds[0]))
                return self._view[_SIZE.size : size].tobytes()
            return _read_memfd(fds[0], self._view[:size].tobytes(), self._largest_bytes)
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
        _close(self._waiting)
        self._waiting.clear()
        while self._beside:
            os.close(self._beside.popleft())
        self._waiting_bytes = 0

    def close(self) -> None:
        self._break("this end is closed")
        self._end.close()

    def shut_down(self) -> None:
        """Close this end for all processes that have it: a forked child would keep the line alive."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self.close()


def _waiting_bytes(message: bytes | _Large) -> int:
    return _ENTRY_BYTES + (len(message) if isinstance(message, bytes) else message.size_bytes)


def _close(messages: Iterable[bytes | _Large]) -> None:
    for message in messages:
        if isinstance(message, _Large):
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
