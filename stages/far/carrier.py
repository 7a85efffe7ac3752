"""A line that carries messages with tensors beside them, in order, both ways, between a relay and its far end.

Nothing else of the two knows what it is made of. ZeroMQ with CURVE (`zmq_carrier.py`) joins hosts: beside plain TCP it
costs about 1 ms of CPU a megabyte at each end, and nobody else reads or writes what passes. A channel between two
processes of one host (`channel_carrier.py`) does, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class CarrierBroken(Exception):
    """Nothing more goes through; one line says why."""


class Carried(NamedTuple):
    """A message, and the bytes of each tensor beside it; these may be looked at until the next one is taken."""

    data: bytes
    tensors: Sequence[memoryview]


class Carrier(Protocol):
    """One end, of one thread."""

    def filenos(self) -> Sequence[int]:
        """Descriptors to wait for: once one is readable, messages are to be taken until none is left."""
        ...

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        """In order; it never waits. Tensors stay as they are until the other end has answered. Raises CarrierBroken,
        also where the other end has not taken much for long.
        """
        ...

    def take(self) -> Carried | None:
        """The next message, if one has come. Raises CarrierBroken at the other end's, after its last message."""
        ...

    def close(self) -> None: ...
