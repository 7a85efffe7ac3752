"""Whether descriptors can be read, and how much a socket holds."""

from __future__ import annotations

import fcntl
import math
import select
import sys
from collections.abc import Iterable


def await_ready(to_read: Iterable[int], within_s: float, to_write: Iterable[int] = ()) -> set[int]:
    """Wait up to `within_s` for one of these descriptors; return those that can be read, or whose other end is gone,
    and those of `to_write` that can be written.

    By `poll`, as `select.select` takes no descriptor from 1024 on, and a daemon may have thousands. Its children have
    the descriptors that they are passed under the daemon's numbers.
    """
    poll = select.poll()
    to_read, to_write = set(to_read), set(to_write)
    for fd in to_read | to_write:
        poll.register(fd, (select.POLLIN if fd in to_read else 0) | (select.POLLOUT if fd in to_write else 0))
    return {fd for fd, _ in poll.poll(math.ceil(max(0.0, within_s) * 1e3))}


def is_readable(fd: int, within_s: float) -> bool:
    """Wait up to `within_s` until `fd` can be read, or its other end is gone."""
    return bool(await_ready([fd], within_s))


def queued_bytes(fd: int, queue: int) -> int:
    """Bytes in a queue of a socket, which is one of `termios`. Raises OSError if the kernel does not report them.

    FIONREAD: received, and not read here yet. TIOCOUTQ: sent, and not read (UNIX) or acknowledged (TCP) by the peer.
    """
    return int.from_bytes(fcntl.ioctl(fd, queue, bytes(4)), sys.byteorder)
