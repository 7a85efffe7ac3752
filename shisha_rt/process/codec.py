"""The one format of internal messages: tagged msgpack arrays of declared types; nothing is unpickled. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

MessageT = TypeVar("MessageT")

_ENCODER: Final = msgspec.msgpack.Encoder()

EncodeHook = Callable[[Any], Any]
DecodeHook = Callable[[Any, Any], Any]


class Codec(Generic[MessageT]):
    """Encoder and decoder for messages of a `union` of types. `decode` raises `msgspec.MsgspecError` for anything else.

    Both are the library's own functions, called directly, as each part of a frame passes here. `hooks`: the library's,
    for values of types that it does not know.
    """

    def __init__(self, union: Any, hooks: tuple[EncodeHook, DecodeHook] | None = None) -> None:
        encode, decode = hooks or (None, None)
        decoder: msgspec.msgpack.Decoder[MessageT] = msgspec.msgpack.Decoder(union, dec_hook=decode)
        encoder = _ENCODER if encode is None else msgspec.msgpack.Encoder(enc_hook=encode)
        self.encode: Final[Callable[[MessageT], bytes]] = encoder.encode
        self.decode: Final[Callable[[bytes], MessageT]] = decoder.decode
