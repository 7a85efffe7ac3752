"""How much of requests' bodies there may be in this process at once, over all connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shisha_rt.wire.exceptions import ResourceExhausted


class Room:
    """`limit_bytes` for all; one body by itself always has room."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0

    @contextlib.contextmanager
    def take(self, size_bytes: int) -> Iterator[None]:
        """Raises `ResourceExhausted` where there is none."""
        if self._taken_bytes and self._taken_bytes + size_bytes > self._limit_bytes:
            raise ResourceExhausted(f"{self._taken_bytes} bytes of requests are on their way; send again later")
        self._taken_bytes += size_bytes
        try:
            yield
        finally:
            self._taken_bytes -= size_bytes
