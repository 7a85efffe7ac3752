"""The regions lent to clients: which client may name which region, how much each may have, and when a region ends.

Bytes and regions are shared out as `core.fair_share` says. A region ends with its connection, once the frames that use
it have been answered; until then its descriptor stays open, whatever becomes of its client.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shisha_rt.core.fair_share import is_granted
from shisha_rt.errors import Error
from shisha_rt.process.lent import LentPiece, create_region
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.request import InferRequest, Lent

_TOKEN_BYTES: Final = 16


@dataclass(slots=True, eq=False)
class LentRegion:
    """`holder`: the process that asked for it. `client`: the ZeroMQ connection that first named it; None: none has.

    `users`: number of its pieces that unanswered frames use. `ended`: whether its connection has ended.
    """

    number: int
    token: str
    fd: int
    size_bytes: int
    holder: int
    client: Hashable = None
    users: int = 0
    ended: bool = False


class Regions:
    """Shared-memory regions lent to clients: at most `most`, of `most_bytes` together; `size_bytes` are lent now.

    `left`: the numbers of regions that have ended, which workers have not been told yet.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.size_bytes = 0
        self.left: list[int] = []
        self._by_token: dict[str, LentRegion] = {}
        self._by_number: dict[int, LentRegion] = {}
        self._numbers = itertools.count(1)

    @property
    def count(self) -> int:
        return len(self._by_number)

    @property
    def fds(self) -> Mapping[int, int]:
        return {number: region.fd for number, region in self._by_number.items()}

    def fd(self, number: int) -> int:
        return self._by_number[number].fd

    def create(self, holder: int, size_bytes: int) -> LentRegion:
        """Create a region for process `holder`. Raises `ShishaError` if a limit or the system does not allow it."""
        sizes = [region.size_bytes for region in self._by_number.values() if region.holder == holder]
        if not is_granted(1, held=len(sizes), held_by_all=self.count, room=self.most):
            raise _exhausted(f"{len(sizes)} regions of this process, {self.count} of all")
        if not is_granted(size_bytes, held=sum(sizes), held_by_all=self.size_bytes, room=self.most_bytes):
            raise _exhausted(f"{sum(sizes)} bytes of this process, {self.size_bytes} of all")
        try:
            fd = create_region(size_bytes)
        except OSError as error:
            raise error_for(Error.REGION_REFUSED, f"no region can be made: {error.strerror}") from None
        region = LentRegion(next(self._numbers), secrets.token_hex(_TOKEN_BYTES), fd, size_bytes, holder)
        self._by_token[region.token] = self._by_number[region.number] = region
        self.size_bytes += size_bytes
        return region

    def end(self, region: LentRegion) -> None:
        """End a region whose connection has ended: no new request may name the region."""
        region.ended = True
        del self._by_token[region.token]
        if not region.users:
            self._drop(region)

    def check(self, client: Hashable, request: InferRequest) -> None:
        """Raises `ShishaError` unless all pieces that the request names are inside regions of this client, or of none.

        From then on these regions are this client's.
        """
        for what, pieces in (("input", request.lent_in), ("output", request.lent_out)):
            for name, piece in pieces.items():
                region = self._by_token.get(piece.token)
                if region is None or region.client not in (None, client):
                    message = f"{what} {name!r}: no region of this connection has that token"
                    raise error_for(Error.UNKNOWN_REGION, message, request.id)
                if piece.offset_bytes + piece.size_bytes > region.size_bytes:
                    given = f"{piece.size_bytes} bytes from {piece.offset_bytes} on"
                    message = f"{what} {name!r}: {given}; its region has {region.size_bytes}"
                    raise error_for(Error.REGION_TOO_SMALL, message, request.id)
        for piece in (*request.lent_in.values(), *request.lent_out.values()):
            self._by_token[piece.token].client = client

    def hold(self, pieces: Mapping[str, Lent]) -> tuple[LentPiece, ...]:
        """Convert checked pieces to the form that workers get. Their regions stay until `release`."""
        held = []
        for name, piece in pieces.items():
            region = self._by_token[piece.token]
            region.users += 1
            held.append(LentPiece(name, region.number, piece.offset_bytes, piece.size_bytes))
        return tuple(held)

    def release(self, pieces: Iterable[LentPiece]) -> None:
        """Release the pieces of a frame that has been answered."""
        for piece in pieces:
            region = self._by_number[piece.region]
            region.users -= 1
            if region.ended and not region.users:
                self._drop(region)

    def _drop(self, region: LentRegion) -> None:
        os.close(region.fd)
        del self._by_number[region.number]
        self.left.append(region.number)
        self.size_bytes -= region.size_bytes

    def close(self) -> None:
        """Release all regions, at the daemon's end."""
        for region in self._by_number.values():
            os.close(region.fd)
        self._by_number.clear()
        self._by_token.clear()


def _exhausted(had: str) -> ShishaError:
    return error_for(Error.REGION_REFUSED, f"{had}: as much as is lent; send the tensors' bytes instead")
