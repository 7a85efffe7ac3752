"""The one format of messages between the daemon and its processes: msgpack arrays with a tag.

Only the declared types are decoded, and nothing is unpickled. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

MessageT = TypeVar("MessageT")

_ENCODER: Final = msgspec.msgpack.Encoder()


class Codec(Generic[MessageT]):
    """Encoder and decoder for messages of a `union` of types. `decode` raises `msgspec.MsgspecError` for anything else.

    Both are the library's own functions, called directly, as each part of a frame passes here.
    """

    def __init__(self, union: Any) -> None:
        decoder: msgspec.msgpack.Decoder[MessageT] = msgspec.msgpack.Decoder(union)
        self.encode: Final[Callable[[MessageT], bytes]] = _ENCODER.encode
        self.decode: Final[Callable[[bytes], MessageT]] = decoder.decode
