"""Waiting for a descriptor of any number: `select.select` takes none from 1024 on, and a daemon may have thousands."""

from __future__ import annotations

import math
import select


def is_readable(fd: int, within_s: float) -> bool:
    """Wait up to `within_s` until `fd` can be read, or its other end is gone."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(math.ceil(within_s * 1e3)))
