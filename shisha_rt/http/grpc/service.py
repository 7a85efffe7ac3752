"""The gRPC service: callers, requests, and errors in gRPC's form. The answers are those of HTTP in a different form."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller, check_version
from shisha_rt.http.faults import OUR_FAULT
from shisha_rt.http.grpc.infer import answer_message, given_parameters, read_request
from shisha_rt.http.grpc.messages import MESSAGES, METHODS, SERVICE, Method
from shisha_rt.http.guard import no_token, token_caller
from shisha_rt.http.inference.about import NO_CUDA, NO_LOGGING, NO_TRACING, About
from shisha_rt.http.inference.body import SLOWEST_BYTES_PER_S
from shisha_rt.http.inference.inferences import ROOM_BYTES, Inferences
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.exceptions import NotFound, ShishaError, error_for, malformed

log = logging.getLogger(__name__)

_LAST_ANSWERS_S: Final = 3.0
_RECEIVED_WITHIN_S: Final = 20.0
_UNREAD_S: Final = 30.0
_MOST_RECEIVED: Final = 64
"""The most requests being received at once, and the most open streams."""
_MOST_OF_A_STREAM: Final = 32
"""The most requests of a stream under way; the next is read when one is answered."""
_LEAST_MESSAGE_BYTES: Final = 4 << 20  # gRPC's own default
_MOST_CONNECTIONS: Final = 512
_HEAD_BYTES: Final = 64 << 10
_UNRECEIVED_BYTES: Final = 256 << 10
"""What gRPC takes of the requests of a connection before they are received: its window for flow control, which must not
grow by itself (to the whole message, measured) with how fast a connection is.
"""
_HANDSHAKE_S: Final = 10
_PING_S: Final = 30
"""A caller from whom nothing has come for so long is asked whether it is there, and has as long to answer. Of a host
that has vanished the kernel tells nothing, and its streams would be open for hours.
"""
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_KIND: Final = "shisha-kind"
"""The key of an error's kind in its trailing metadata."""

_InferRequest: Final = MESSAGES["ModelInferRequest"]

_Context: TypeAlias = Any
_AboutAnswer: TypeAlias = Callable[[Any, Caller], Awaitable[Mapping[str, Any]]]


async def serve_grpc(app_state: AppState, inferences: Inferences, listens: Callable[[], None]) -> None:
    """Serve until the daemon has given its last answers; `listens` is called once clients can connect."""
    settings = app_state.settings
    most_bytes = max(settings.max_message_bytes, _LEAST_MESSAGE_BYTES)
    server = grpc.aio.server(
        handlers=[_handlers(app_state, inferences, most_bytes)],
        options=[
            ("grpc.so_reuseport", 1),
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", _MOST_CONNECTIONS),
            ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
            ("grpc.max_metadata_size", _HEAD_BYTES),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", _UNRECEIVED_BYTES),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_S * 1000),
            ("grpc.keepalive_time_ms", _PING_S * 1000),
            ("grpc.http2.ping_timeout_ms", _PING_S * 1000),
        ],
    )
    for listener in settings.grpc:
        if listener.beyond:
            assert settings.key is not None
            assert settings.certificate is not None
            pair = Path(settings.key).read_bytes(), Path(settings.certificate).read_bytes()
            server.add_secure_port(listener.target, grpc.ssl_server_credentials([pair]))
        else:
            server.add_insecure_port(listener.target)
    await server.start()
    listens()
    await app_state.ending.wait()
    await server.stop(_LAST_ANSWERS_S)


def _handlers(app_state: AppState, inferences: Inferences, most_bytes: int) -> grpc.GenericRpcHandler:
    """Each method is a stream of bytes to gRPC, so that a caller is checked before any of its request is received, and
    what never ends, or is no message, is refused like any other bad request.
    """
    answers = _about_answers(About(app_state), inferences.files)
    inference = _Inference(app_state, inferences, most_bytes)
    guarded = partial(_guarded, app_state)
    handlers = {}
    behave: Callable[[Any, Caller, _Context], Awaitable[Any]]
    for method in METHODS:
        if method.streams:
            behave, handler = inference.stream, grpc.stream_stream_rpc_method_handler
        elif method.name == "ModelInfer":
            behave, handler = inference.single, grpc.stream_unary_rpc_method_handler
        else:
            behave, handler = _as_message(method, answers[method.name]), grpc.stream_unary_rpc_method_handler
        handlers[method.name] = handler(guarded(behave), None, method.answer.SerializeToString)
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _about_answers(about: About, files: SharedFiles) -> Mapping[str, _AboutAnswer]:
    """All methods but those of inference: each returns the fields of its answer's message, by name, as plain values."""

    async def model_ready(request: Any, _: Caller) -> Mapping[str, Any]:
        """As with Triton, an unknown model is not ready, which is no error."""
        try:
            return {"ready": await about.model_ready(_path_of(request.name, request.version))}
        except NotFound:
            return {"ready": False}

    async def statistics(request: Any, _: Caller) -> Mapping[str, Any]:
        return await about.statistics(_path_of(request.name, request.version) if request.name else {})

    async def load(request: Any, caller: Caller) -> Mapping[str, Any]:
        given = given_parameters(request.parameters)
        if "version" in given:  # it may come as a number
            given["version"] = str(given["version"])
        return await about.change(caller, "model_load", request.model_name, given)

    return {
        "ServerLive": lambda *_: _field("live", about.live()),
        "ServerReady": lambda *_: _field("ready", about.ready()),
        "ModelReady": model_ready,
        "ServerMetadata": lambda *_: about.server(),
        "ModelMetadata": lambda asked, _: about.model(_path_of(asked.name, asked.version)),
        "ModelConfig": lambda asked, _: _field("config", about.config(_path_of(asked.name, asked.version))),
        "ModelStatistics": statistics,
        "RepositoryIndex": lambda asked, _: _field("models", about.index(only_ready=asked.ready)),
        "RepositoryModelLoad": load,
        "RepositoryModelUnload": lambda asked, caller: about.change(caller, "model_unload", asked.model_name, {}),
        "TraceSetting": _refusing(NO_TRACING),
        "LogSettings": _refusing(NO_LOGGING),
        **_region_answers(files),
    }


def _region_answers(files: SharedFiles) -> Mapping[str, _AboutAnswer]:
    async def regions(request: Any, caller: Caller) -> Mapping[str, Any]:
        named = [files.named(caller, request.name)] if request.name else files.of(caller).values()
        return {"regions": {region.name: region.about for region in named}}

    async def register(request: Any, caller: Caller) -> Mapping[str, Any]:
        files.register(caller, request.name, request.key, request.offset, request.byte_size)
        return {}

    async def unregister(request: Any, caller: Caller) -> Mapping[str, Any]:
        files.unregister(caller, request.name or None)
        return {}

    async def nothing(_: Any, __: Caller) -> Mapping[str, Any]:
        return {}

    return {
        "SystemSharedMemoryStatus": regions,
        "SystemSharedMemoryRegister": register,
        "SystemSharedMemoryUnregister": unregister,
        "CudaSharedMemoryStatus": nothing,
        "CudaSharedMemoryRegister": _refusing(NO_CUDA),
        "CudaSharedMemoryUnregister": nothing,
    }


async def _field(name: str, value: Awaitable[object]) -> Mapping[str, Any]:
    return {name: await value}


def _refusing(why: str) -> _AboutAnswer:
    async def refuse(_: Any, __: Caller) -> Mapping[str, Any]:
        raise error_for(Error.NOT_OFFERED, why)

    return refuse


def _path_of(model: str, version: str) -> dict[str, str]:
    """The path parameters that HTTP would have: a model, and its version if one is asked for."""
    return {"model": model} | ({"version": version} if version else {})


def _as_message(method: Method, answer: _AboutAnswer) -> Callable[[Any, Caller, _Context], Awaitable[Any]]:
    async def behave(_requests: Any, caller: Caller, context: _Context) -> Any:
        request = await _received(context, method.request, nullcontext())
        return ParseDict(await answer(request, caller), method.answer(), ignore_unknown_fields=True)

    return behave


async def _received(context: _Context, kind: type[Any], turn: AbstractAsyncContextManager[object]) -> Any:
    """The one request of a call, received in its turn. Raises `ShishaError`."""
    try:
        async with turn, asyncio.timeout(_RECEIVED_WITHIN_S):
            data = await context.read()
    except TimeoutError:
        raise error_for(Error.TOO_SLOW, f"the request was not received within {_RECEIVED_WITHIN_S:g} s") from None
    if data is grpc.aio.EOF:
        raise malformed("there is no request; expected one")
    return _parsed(kind, data)


def _parsed(kind: type[Any], data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise malformed(f"the request: expected a {kind.DESCRIPTOR.name}, as protobuf encodes it") from None


def _guarded(
    app_state: AppState, behave: Callable[[Any, Caller, _Context], Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """Check the caller before `behave`, make its error the call's, and count the call."""

    async def handle(request: Any, context: _Context) -> Any:
        code = "OK"
        try:
            return await behave(request, _caller(app_state, context), context)
        except (asyncio.CancelledError, grpc.aio.BaseError):  # the latter: the answer could not be written
            code = "CANCELLED"
            raise
        except Exception as failed:
            error = _told(failed)
            status = grpc_status(error)
            code = status.name
            await context.abort(status, error.message, ((_KIND, error.kind),))
        finally:
            app_state.count_rpc(code)

    return handle


def _caller(app_state: AppState, context: _Context) -> Caller:
    """The caller whose token is in the metadata `authorization`, if there is an allow-list. Raises ShishaError."""
    if app_state.users is None:
        return Caller("", Permission.OPERATOR, way="grpc")
    authorization = (_metadata(context, "authorization") or "").encode()
    caller = token_caller(app_state, authorization, "grpc")
    if caller is None:
        raise no_token(app_state, "grpc", "no token; expected the metadata authorization: Bearer TOKEN")
    return caller


def _metadata(context: _Context, name: str) -> str | None:
    """A value of a call's metadata, by its lower-case name; None if there is none."""
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), None)


def grpc_status(error: ShishaError) -> grpc.StatusCode:
    """The status of an error: its own gRPC code, except UNAUTHENTICATED for a missing or unknown token."""
    return grpc.StatusCode.UNAUTHENTICATED if error.kind == Error.UNKNOWN_TOKEN else grpc.StatusCode[error.code.value]


def _told(failed: Exception) -> ShishaError:
    """The error that the caller is told; an unexpected one is logged."""
    if isinstance(failed, ShishaError):
        return failed
    log.error("a request over gRPC has failed", exc_info=failed)
    return error_for(Error.FAILED, OUR_FAULT)


class _Inference:
    """`ModelInfer` and `ModelStreamInfer`. `most_bytes`: the largest request.

    Requests are read from the context: gRPC's iterator keeps the last one, and nothing frees a message that is kept.
    """

    def __init__(self, app_state: AppState, inferences: Inferences, most_bytes: int) -> None:
        self._app_state = app_state
        self._inferences = inferences
        self._receiving = asyncio.Semaphore(max(1, min(_MOST_RECEIVED, ROOM_BYTES // most_bytes)))
        self._streams = 0

    async def single(self, _requests: Any, caller: Caller, context: _Context) -> Any:
        request = await _received(context, _InferRequest, self._receiving)
        infer = self._infer(request, caller, context)
        del request
        answer = await infer
        self._count_until_read(answer.ByteSize(), context)
        return answer

    def _count_until_read(self, size_bytes: int, context: _Context) -> None:
        """Count the answer that this call is about to return until gRPC has sent it, when the call's task is done."""
        call = asyncio.current_task()
        assert call is not None
        with ExitStack() as counted:
            counted.enter_context(self._inferences.room.taken())(size_bytes)
            counted.enter_context(_cut_off_unless_read(context, size_bytes))
            until_done = counted.pop_all()
        call.add_done_callback(lambda _: until_done.close())

    async def stream(self, _requests: Any, caller: Caller, context: _Context) -> None:
        """Answer requests in order. A request's error is sent as its answer, and does not end the stream.

        A caller that reads nothing of its answers is cut off, as they would be kept for good.
        """
        if self._streams >= _MOST_RECEIVED:
            raise error_for(Error.TOO_MANY_CALLERS, f"{self._streams} streams are open; expected at most so many")
        self._streams += 1
        try:
            under_way = asyncio.Semaphore(_MOST_OF_A_STREAM)
            before: asyncio.Task[None] | None = None
            async with asyncio.TaskGroup() as group:
                while (data := await context.read()) is not grpc.aio.EOF:
                    await under_way.acquire()
                    answering = self._in_turn(data, caller, before, context)
                    del data
                    before = group.create_task(answering)
                    before.add_done_callback(lambda _: under_way.release())
        except BaseExceptionGroup as failed:  # an answer could not be written: the caller has gone
            raise failed.exceptions[0] from None
        finally:
            self._streams -= 1

    async def _in_turn(self, data: bytes, caller: Caller, before: asyncio.Task[None] | None, context: _Context) -> None:
        answer = MESSAGES["ModelStreamInferResponse"]()
        request_id = ""
        with self._inferences.room.taken() as take:
            try:
                request = _parsed(_InferRequest, data)
                del data
                request_id, infer = request.id, self._infer(request, caller, context)
                del request
                message = await infer
                take(message.ByteSize())
                answer.infer_response.CopyFrom(message)
                del message
                answer.infer_response.parameters["triton_final_response"].bool_param = True  # as Triton
            except Exception as failed:
                error = _told(failed)
                answer.error_message = error.message
                answer.infer_response.id = request_id
                self._app_state.count_rpc(grpc_status(error).name)
            if before is not None:
                await asyncio.wait({before})
            with _cut_off_unless_read(context, answer.ByteSize()):
                await context.write(answer)

    async def _infer(self, request: Any, caller: Caller, context: _Context) -> Any:
        path = _path_of(request.model_name, request.model_version)
        with self._inferences.room.taken() as take:
            came_bytes = request.ByteSize()
            take(came_bytes)
            client, signature = await self._app_state.model_of(path)
            self._app_state.refuse_if_full()
            asked, pieces = read_request(request, signature)
            del request
            given = iter(pieces)

            async def fill(room: memoryview) -> None:
                room[:] = next(given)

            take(max(0, asked.binary_bytes - came_bytes))
            frame = await self._inferences.tensors(client, asked, fill, caller)
            pieces.clear()
            traceparent, connection = _metadata(context, "traceparent"), context.peer()
            answer = await self._inferences.infer(client, asked, frame, caller, connection, traceparent)
        del frame
        check_version(path, answer.model_version)
        self._inferences.write(asked, answer, caller)
        return answer_message(signature, asked, answer)


@contextmanager
def _cut_off_unless_read(context: _Context, size_bytes: int) -> Iterator[None]:
    """End the caller's connection if this lasts longer than the caller may take to read so much.

    gRPC keeps what is not read of a call, however that is ended, for as long as the connection is there.
    """
    may_take_s = _UNREAD_S + size_bytes / SLOWEST_BYTES_PER_S
    unread = asyncio.get_running_loop().call_later(may_take_s, _cut_off, context.peer())
    try:
        yield
    finally:
        unread.cancel()


def _cut_off(peer: str) -> None:
    """Shut the connection of `peer` ("ipv4:HOST:PORT", "ipv6:%5BHOST%5D:PORT") down, which gRPC gives no way to do."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not path.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as end:
                if end.family in _FAMILIES:
                    peer_host, peer_port, *_ = end.getpeername()  # OSError: nobody is at the other end
                    if (peer_host.removeprefix("::ffff:"), str(peer_port)) == (host.strip("[]"), port):
                        end.shutdown(socket.SHUT_RDWR)
