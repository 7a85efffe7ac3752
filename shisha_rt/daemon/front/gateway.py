"""The ZeroMQ face of the daemon: messages to requests, answers to messages. One reply for every request.

A bad message costs its sender an error answer and nobody else anything.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import zmq

from shisha_rt.daemon.front.lock_file import lock_file
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.daemon.front.requests import Admission, Answer
from shisha_rt.errors import BadInput
from shisha_rt.graph.graph import Tensor
from shisha_rt.wire.codes import Code, WireError
from shisha_rt.wire.header import encode_answer, encode_error, encode_infer_answer
from shisha_rt.wire.limits import Limits
from shisha_rt.wire.request import InferRequest, OpRequest, Signature, parse, split_envelope

_MESSAGES_PER_TURN: Final = 32
_QUEUED_MESSAGES: Final = 64
_UNREAD_BYTES: Final = 64 << 20


class Reply:
    """Where one answer goes: a client, its envelope, and the request's id."""

    __slots__ = ("_done", "_envelope", "_gateway", "request_id")

    def __init__(
        self, gateway: Gateway, envelope: Sequence[bytes], request_id: str | None, done: Callable[[], None]
    ) -> None:
        self._gateway = gateway
        self._envelope = envelope
        self._done = done
        self.request_id = request_id

    def fields(self, fields: Mapping[str, object]) -> None:
        assert self.request_id is not None
        self._send(encode_answer(self.request_id, fields))

    def error(self, code: Code, message: str) -> None:
        self._send(encode_error(self.request_id, code, message))

    def frame(self, answer: Answer) -> None:
        if answer.code is not None:
            self.error(answer.code, answer.message)
            return
        header = encode_infer_answer(
            answer.request.id,
            self._gateway.signature.model_name,
            [self._gateway.outputs[name] for name in answer.outputs],
            epoch=answer.epoch,
            frame=answer.frame,
            queue_ms=round(answer.queue_s * 1e3, 3),
            compute_ms=round(answer.compute_s * 1e3, 3),
            sequence=answer.request.sequence,
        )
        self._send(header, *answer.outputs.values())

    def _send(self, *parts: bytes) -> None:
        self._done()
        self._gateway.outbox.send([*self._envelope, *parts])


class Gateway:
    """Binds the public endpoint. `on_operation` answers everything that is not a frame."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        signature: Signature,
        limits: Limits,
        undeliverable: Callable[[], None],
    ) -> None:
        self.signature = signature
        self.outputs: dict[str, Tensor] = {tensor.name: tensor for tensor in signature.outputs}
        self.limits = limits
        self._bound = endpoint
        self._lock = _lock_ipc(endpoint)
        self.socket = context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, limits.max_message_bytes),
            (zmq.HEARTBEAT_IVL, 2000),
            (zmq.HEARTBEAT_TIMEOUT, 10_000),
            (zmq.RCVHWM, _QUEUED_MESSAGES),
            (zmq.SNDHWM, _QUEUED_MESSAGES),
            (zmq.IPV6, "[" in endpoint),
        ):
            self.socket.setsockopt(option, value)
        try:
            self.socket.bind(_any_port(endpoint))
        except zmq.ZMQError as error:
            self.close()
            raise BadInput(f"endpoint {endpoint}: {error.strerror}; expected a free address of this machine") from None
        self.endpoint = str(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self.outbox = Outbox(self.socket, _UNREAD_BYTES, undeliverable)
        self._operations: set[tuple[bytes, str]] = set()

    def receive(self, admission: Admission, on_operation: Callable[[bytes, OpRequest, Reply], None]) -> None:
        """Take the messages that have come, up to a turn's worth."""
        for _ in range(_MESSAGES_PER_TURN):
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            self._take(frames[0].bytes, [frame.buffer for frame in frames[1:]], admission, on_operation)

    def _take(
        self,
        client: bytes,
        parts: Sequence[memoryview],
        admission: Admission,
        on_operation: Callable[[bytes, OpRequest, Reply], None],
    ) -> None:
        delimited, payload = split_envelope(parts)
        envelope = [client, b""] if delimited else [client]
        try:
            request = parse(payload, self.signature, self.limits)
        except WireError as error:
            Reply(self, envelope, error.request_id, _nothing).error(error.code, error.message)
            return
        if admission.is_waiting(client, request.id) or (client, request.id) in self._operations:
            message = f"header at id: {request.id!r} is waiting already; expected an id that no waiting request has"
            Reply(self, envelope, request.id, _nothing).error(Code.INVALID_ARGUMENT, message)
        elif isinstance(request, InferRequest):
            admission.submit(client, request, Reply(self, envelope, request.id, _nothing).frame)
        else:
            key = (client, request.id)
            self._operations.add(key)
            on_operation(client, request, Reply(self, envelope, request.id, lambda: self._operations.discard(key)))

    def close(self) -> None:
        self.socket.close()
        if self._lock is not None:
            path = Path(self._bound.removeprefix("ipc://"))
            for leftover in (path, path.with_name(path.name + ".lock")):
                leftover.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _nothing() -> None:
    pass


def check_endpoint(endpoint: str) -> None:
    """Only this machine may connect: loopback or ipc. Anything else would need CURVE, which is not built yet."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address and not address.startswith("@"):
        return
    host, _, port = address.rpartition(":")
    if transport != "tcp" or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"endpoint {endpoint!r}: expected tcp://127.0.0.1:PORT or ipc://PATH")
    local = host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(host.strip("[]")).is_loopback
    if not local:
        raise BadInput(f"endpoint {endpoint!r}: not a loopback address; other addresses need CURVE, "
                       "which is not built yet; expected tcp://127.0.0.1:PORT or ipc://PATH")  # fmt: skip


def _any_port(endpoint: str) -> str:
    """ZeroMQ writes `*` for any free port."""
    endpoint = endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:")
    return endpoint[:-1] + "*" if endpoint.startswith("tcp://") and endpoint.endswith(":0") else endpoint


def _lock_ipc(endpoint: str) -> int | None:
    """A second bind on an ipc path would silently steal it: whoever serves there holds a lock beside it."""
    if not endpoint.startswith("ipc://"):
        return None
    path = Path(endpoint.removeprefix("ipc://"))
    try:
        return lock_file(path.with_name(path.name + ".lock"))
    except BlockingIOError:
        raise BadInput(f"endpoint {endpoint}: another daemon serves there; expected a path of its own") from None
    except OSError as error:
        raise BadInput(f"endpoint {endpoint}: {error.strerror}; expected a path in a folder to write to") from None
