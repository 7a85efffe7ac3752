"""A limit on the bytes of request bodies in this process at once, over all connections."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import error_for


class Room:
    """`limit_bytes`: for all requests together; a request that is the only one is never refused."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.taken_bytes = 0


class TakenRoom:
    """One request's share of `room`, returned when the context is left."""

    __slots__ = ("_room", "_taken_bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.taken_bytes -= self._taken_bytes

    def more(self, size_bytes: int) -> None:
        """Take `size_bytes` more. Raises `ResourceExhausted` if other requests have too much for that."""
        room = self._room
        if room.taken_bytes > self._taken_bytes and room.taken_bytes + size_bytes > room.limit_bytes:
            raise error_for(
                Error.TOO_MANY_BYTES, f"{room.taken_bytes} bytes of requests are on their way; send again later"
            )
        room.taken_bytes += size_bytes
        self._taken_bytes += size_bytes
