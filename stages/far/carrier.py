"""A line that carries messages with tensors beside them, in order, both ways, between a relay and its far end.

The rest of both is independent of the carrier's kind. ZeroMQ with CURVE (`zmq_carrier.py`) joins hosts: it costs about
1 ms of CPU a megabyte at each end more than plain TCP, and no third party can read or change the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from shisha_rt.process.codec import Codec, MessageT


class CarrierBroken(Exception):
    """No message can be sent or received any more; one line says why."""


class Carried(NamedTuple):
    """A message, and the bytes of each tensor beside it, which are valid until the next message is taken."""

    data: bytes
    tensors: Sequence[memoryview]

    def message(self, codec: Codec[MessageT]) -> MessageT:
        """The message decoded. Raises CarrierBroken if it is none of the codec's."""
        try:
            return codec.decode(self.data)
        except msgspec.MsgspecError as error:
            raise CarrierBroken(f"a message came that is none: {error}") from None


class Carrier(Protocol):
    """One end of a line, used by one thread."""

    def filenos(self) -> Sequence[int]:
        """Descriptors to poll: once one is readable, take messages until none is left."""
        ...

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        """Send in order, without waiting. Tensors must not change until the other end has answered. Raises
        CarrierBroken, also if too many messages wait because the other end does not read.
        """
        ...

    def take(self) -> Carried | None:
        """The next message, if any. Raises CarrierBroken once the other end is gone, after its last message."""
        ...

    def close(self) -> None: ...
