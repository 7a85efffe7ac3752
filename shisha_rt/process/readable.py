"""Whether a descriptor can be read, and how much a socket holds."""

from __future__ import annotations

import array
import fcntl
import math
import select


def is_readable(fd: int, within_s: float) -> bool:
    """Wait up to `within_s` until `fd` can be read, or its other end is gone.

    By `poll`, as `select.select` takes no descriptor from 1024 on, and a daemon may have thousands.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(math.ceil(within_s * 1e3)))


def queued_bytes(fd: int, queue: int) -> int:
    """Bytes in a queue of a socket, which is one of `termios`. Raises OSError if the kernel does not report them.

    FIONREAD: received, and not read here yet. TIOCOUTQ: sent, and not read (UNIX) or acknowledged (TCP) by the peer.
    """
    count = array.array("i", [0])
    fcntl.ioctl(fd, queue, count)
    return count[0]
