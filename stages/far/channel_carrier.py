"""A carrier over a channel of this host, in which a message and its tensors are one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shisha_rt.process.channel import GONE, Channel, ChannelBroken
from stages.far.carrier import Carried, CarrierBroken

_PARTS: Final = msgspec.msgpack.Decoder(tuple[bytes, list[memoryview]])
_ENCODER: Final = msgspec.msgpack.Encoder()


class ChannelCarrier:
    """See `Carrier`; `channel` must be an end that does not block."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._broken = GONE

    def filenos(self) -> Sequence[int]:
        return [self._channel.fileno()]

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        try:
            self._channel.send(_ENCODER.encode((data, tensors)))
        except ChannelBroken as broken:
            self._broken = str(broken)
            raise CarrierBroken(self._broken) from None

    def take(self) -> Carried | None:
        try:
            if self._channel.waiting and self._channel.open:
                self._channel.flush()
        except ChannelBroken as broken:  # earlier messages can still be read
            self._broken = str(broken)
        try:
            message = self._channel.take()
        except ChannelBroken as broken:
            raise CarrierBroken(str(broken)) from None
        if message is None:
            if not self._channel.open:
                raise CarrierBroken(self._broken)
            return None
        try:
            return Carried(*_PARTS.decode(message))
        except msgspec.MsgspecError as error:
            raise CarrierBroken(f"a message came that is none: {error}") from None

    def close(self) -> None:
        self._channel.close()
