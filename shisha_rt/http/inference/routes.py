"""Every route of the protocol: inference, and the others, which have JSON in and out."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller, Path, check_version
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.about import NO_CUDA, NO_LOGGING, NO_TRACING, About
from shisha_rt.http.inference.answer import answer_parts
from shisha_rt.http.inference.body import Body, HungUp, read_json
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.request import raw_request, read_header
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.http.routing import Handler, HttpReply, HttpRoute, json_reply
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.frame_tensors import Answer
from shisha_rt.protocol.limits import MAX_NAME_LENGTH
from shisha_rt.protocol.operations import Count

_HEADER_LENGTH: Final = b"inference-header-content-length"
_ONE_PIECE_BYTES: Final = 64 << 10
_PACKED_LEVEL: Final = 1  # floats hardly compress
_REFUSED_ENCODING: Final = re.compile(rb"q\s*=\s*0(\.0*)?")
_MODEL: Final = "/v2/models/{model}(?:/versions/{version})?"


class _LoadAsked(msgspec.Struct, frozen=True):
    parameters: dict[str, Any] | None = None


class _IndexAsked(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _RegisterAsked(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
    byte_size: Count
    offset: Count | None = None


def inference_routes(app_state: AppState, inferences: Inferences) -> Sequence[HttpRoute]:
    about = About(app_state)
    return [
        HttpRoute(f"{_MODEL}/infer", _Infer(app_state, inferences), "POST"),
        HttpRoute("/v2/health/live", _health("live", lambda _: about.live())),
        HttpRoute("/v2/health/ready", _health("ready", lambda _: about.ready())),
        HttpRoute("/v2/models/stats", _tell(about.statistics)),
        HttpRoute(f"{_MODEL}/ready", _health("ready", about.model_ready)),
        HttpRoute(f"{_MODEL}/config", _tell(about.config)),
        HttpRoute(f"{_MODEL}/stats", _tell(about.statistics)),
        HttpRoute(_MODEL, _tell(about.model)),
        HttpRoute("/v2", _tell(lambda _: about.server())),
        HttpRoute("/v2(?:/models/{model})?/trace/setting", _refuse(NO_TRACING), "GET", "POST"),
        HttpRoute("/v2/logging", _refuse(NO_LOGGING), "GET", "POST"),
        *_repository_routes(about),
        *_region_routes("/v2/systemsharedmemory", inferences.files, _register(inferences.files)),
        *_region_routes("/v2/cudasharedmemory", SharedFiles(None), _refuse(NO_CUDA)),
    ]


class _Infer:
    """`POST v2/models/M/infer`: read a request's tensors, run one frame, and send its answer.

    Every frame over HTTP passes here. A tensor that comes as bytes is written piece by piece into memory shared with
    the daemon: it is not joined or copied again.
    """

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
        check_version(path, answer.model_version)
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
        if name in (b"gzip", b"deflate") and not _REFUSED_ENCODING.fullmatch(weight):
            return name
    return None


async def _packed(whole: bytes, packing: bytes) -> bytes:
    pack = gzip.compress if packing == b"gzip" else zlib.compress
    if len(whole) <= _ONE_PIECE_BYTES:
        return pack(whole, _PACKED_LEVEL)
    return await asyncio.to_thread(pack, whole, _PACKED_LEVEL)


def _tell(ask: Callable[[Path], Awaitable[object]]) -> Handler:
    async def handle(_exchange: Exchange, _caller: Caller | None, path: Path) -> HttpReply:
        return json_reply(await ask(path))

    return handle


def _health(field: str, ask: Callable[[Path], Awaitable[bool]]) -> Handler:
    """Answer 200 if `ask` says yes, else 503; the body says so, too, and names the model."""

    async def handle(_exchange: Exchange, _caller: Caller | None, path: Path) -> HttpReply:
        is_so = await ask(path)
        named = {"name": path["model"]} if path else {}
        return json_reply({**named, field: is_so}, 200 if is_so else 503)

    return handle


def _refuse(why: str) -> Handler:
    async def handle(_exchange: Exchange, _caller: Caller | None, _path: Path) -> HttpReply:
        raise error_for(Error.NOT_OFFERED, why)

    return handle


def _repository_routes(about: About) -> Sequence[HttpRoute]:
    async def index(exchange: Exchange, _: Caller | None, __: Path) -> HttpReply:
        """The repository: all models. With `{"ready":true}` only those that are ready."""
        asked = await read_json(exchange, _IndexAsked)
        return json_reply(await about.index(only_ready=bool(asked.ready)))

    async def load(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        """Load the newest version of a known model, or the file that the parameter `model` names."""
        asked = await read_json(exchange, _LoadAsked)
        return json_reply(await about.change(_known(caller), "model_load", path["model"], asked.parameters or {}))

    async def unload(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        await read_json(exchange, dict[str, Any])
        return json_reply(await about.change(_known(caller), "model_unload", path["model"], {}))

    return [
        HttpRoute("/v2/repository/index", index, "POST"),
        HttpRoute("/v2/repository/models/{model}/load", load, "POST"),
        HttpRoute("/v2/repository/models/{model}/unload", unload, "POST"),
    ]


def _region_routes(kind: str, files: SharedFiles, register: Handler) -> Sequence[HttpRoute]:
    """Regions of shared memory. Where it is off there are none, and unregistering one succeeds."""

    async def status(_: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        name = path.get("region")
        regions = files.of(_known(caller)).values() if name is None else [files.named(_known(caller), name)]
        return json_reply([region.about for region in regions])

    async def unregister(_: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        """One, or all of the caller's. It is no error if there is none."""
        files.unregister(_known(caller), path.get("region"))
        return json_reply({})

    return [
        HttpRoute(f"{kind}(?:/region/{{region}})?/status", status),
        HttpRoute(f"{kind}/region/{{region}}/register", register, "POST"),
        HttpRoute(f"{kind}(?:/region/{{region}})?/unregister", unregister, "POST"),
    ]


def _register(files: SharedFiles) -> Handler:
    async def register(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        asked = await read_json(exchange, _RegisterAsked)
        files.register(_known(caller), path["region"], asked.key, asked.offset or 0, asked.byte_size)
        return json_reply({})

    return register


def _known(caller: Caller | None) -> Caller:
    assert caller is not None  # only routes of the page are open to unknown callers
    return caller
