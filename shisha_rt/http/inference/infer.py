"""`POST v2/models/M/infer`: read a request's tensors, run one frame, and send its answer.

Every frame over HTTP passes here. A tensor that comes as bytes is written piece by piece into memory shared with the
daemon: it is not joined or copied again.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Awaitable, Mapping
from typing import Final

from shisha_rt.http.app_state import AppState, Caller, Path
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.answer import answer_parts
from shisha_rt.http.inference.body import Body, HungUp
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.request import raw_request, read_header
from shisha_rt.protocol.frame_tensors import Answer

_HEADER_LENGTH: Final = b"inference-header-content-length"
_ONE_PIECE_BYTES: Final = 64 << 10
_PACKED_LEVEL: Final = 1  # floats hardly compress
_NONE_OF_IT: Final = re.compile(rb"q\s*=\s*0(\.0*)?")


class Infer:
    """The route of inference."""

    def __init__(self, app_state: AppState, inferences: Inferences) -> None:
        self._app_state = app_state
        self._inferences = inferences

    async def __call__(self, exchange: Exchange, caller: Caller | None, path: Path) -> None:
        assert caller is not None  # only routes of the page are open to unknown callers
        headers, inferences = exchange.headers_by_name, self._inferences
        client, signature = await self._app_state.model_of(path)
        size_bytes = _number(headers, b"content-length")
        body = Body(exchange, headers.get(b"content-encoding"), size_bytes)
        header_bytes = _number(headers, _HEADER_LENGTH)
        longest_bytes = inferences.longest(signature)
        if max(size_bytes or 0, header_bytes or 0) > longest_bytes:
            raise HttpFault(413, f"the body has more than {longest_bytes} bytes, which is the most of this model's")
        self._app_state.refuse_if_full()
        if body.is_packed:
            size_bytes = None
        with inferences.room.taken() as take:
            if header_bytes is None:
                if size_bytes is not None:
                    take(size_bytes)
                whole = await body.whole(longest_bytes, take if size_bytes is None else None)
                asked = read_header(whole, signature)
            elif header_bytes:
                take(header_bytes)
                asked = read_header(await body.exactly(header_bytes), signature)
            else:
                asked = raw_request(size_bytes, signature)
            if size_bytes is not None and header_bytes is not None:
                expected = header_bytes + asked.binary_bytes
                if size_bytes != expected:
                    raise HttpFault(400, f"the body has {size_bytes} bytes; expected {expected}, as its header says")
            take(asked.binary_bytes)
            frame = await inferences.tensors(client, asked, body.into, caller)
            await body.end()
            traceparent = headers.get(b"traceparent")
            trace = None if traceparent is None else traceparent.decode("latin-1")
            inferring = inferences.infer(client, asked, frame, caller, exchange.connection_name, trace)
            answer = await _unless_hung_up(inferring, exchange)
        del frame
        inferences.write(asked, answer, caller)
        header, raw = answer_parts(signature, asked, answer)
        await _send(exchange, header, raw, headers.get(b"accept-encoding"))


async def _unless_hung_up(inferring: Awaitable[Answer], exchange: Exchange) -> Answer:
    """Await an answer. If the caller disconnects, cancel the frame and raise HungUp."""
    running = asyncio.current_task()
    assert running is not None
    gone = False

    def cancel() -> None:
        nonlocal gone
        gone = True
        running.cancel()

    exchange.watch(cancel)
    try:
        return await inferring
    except asyncio.CancelledError:
        if not gone:
            raise
        running.uncancel()
        raise HungUp from None
    finally:
        exchange.watch(None)


def _number(headers: Mapping[bytes, bytes], name: bytes) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise HttpFault(400, f"{name.decode()} {text.decode('latin-1')!r}; expected a number")
    return int(text)


async def _send(exchange: Exchange, header: bytes, raw: list[memoryview], accepted: bytes | None) -> None:
    names = [(b"content-type", b"application/octet-stream" if raw else b"application/json")]
    if raw:
        names.append((_HEADER_LENGTH, b"%d" % len(header)))
    pieces: list[bytes | bytearray | memoryview] = [header, *raw]
    packing = None if accepted is None else _packing(accepted)
    if packing is not None:
        pieces = [await _packed(b"".join(pieces), packing)]
        names.append((b"content-encoding", packing))
    await exchange.answer(200, names, pieces)


def _packing(accepted: bytes) -> bytes | None:
    """The first accepted encoding that is supported; None if there is none."""
    for offer in accepted.lower().split(b","):
        name, _, weight = (part.strip() for part in offer.partition(b";"))
        if name in (b"gzip", b"deflate") and not _NONE_OF_IT.fullmatch(weight):
            return name
    return None


async def _packed(whole: bytes, packing: bytes) -> bytes:
    pack = gzip.compress if packing == b"gzip" else zlib.compress
    if len(whole) <= _ONE_PIECE_BYTES:
        return pack(whole, _PACKED_LEVEL)
    return await asyncio.to_thread(pack, whole, _PACKED_LEVEL)
