"""A limit on the bytes of request bodies, and of gRPC's answers, in this process at once, over all connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import error_for


class Room:
    """`limit_bytes`: for all requests together; a request that is the only one is never refused."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.taken_bytes = 0

    @contextmanager
    def taken(self) -> Iterator[Callable[[int], None]]:
        """One request's share of the room, which is given back at the end of the context.

        Yields a function that takes more bytes. It raises `ResourceExhausted` if other requests have too much for that.
        """
        own_bytes = 0

        def more(size_bytes: int) -> None:
            nonlocal own_bytes
            if self.taken_bytes > own_bytes and self.taken_bytes + size_bytes > self._limit_bytes:
                on_their_way = f"{self.taken_bytes} bytes of requests are on their way; send again later"
                raise error_for(Error.TOO_MANY_BYTES, on_their_way)
            self.taken_bytes += size_bytes
            own_bytes += size_bytes

        try:
            yield more
        finally:
            self.taken_bytes -= own_bytes
