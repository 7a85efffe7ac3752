"""A line on which the host process sends operations to a daemon, and receives the answers asynchronously."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import zmq

from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.protocol.header import decode_fields, encode_operation
from shisha_rt.protocol.multipart import receive_parts, send_parts

Fields: TypeAlias = Mapping[str, Any]
Then: TypeAlias = Callable[[Fields], None]
"""Called with the fields of the answer; an error answer is `{"error": {"code", "message"}}`."""

GONE: Final[Fields] = {"error": {"code": "UNAVAILABLE", "message": "the daemon has ended"}}


class AskingLine:
    """A line to one daemon; closing it answers all waiting calls with `GONE`. `answers`: how many have come so far."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, poller: Poller) -> None:
        self.answers = 0
        self._poller = poller
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Then] = {}
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        poller.watch_socket(self._socket, self._receive)

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    def ask(self, op: str, then: Then, **arguments: object) -> None:
        request_id = str(next(self._numbers))
        self._waiting[request_id] = then
        try:
            send_parts(self._socket, [encode_operation(op, request_id, arguments)], copy=True)
        except zmq.Again:
            del self._waiting[request_id]
            then(GONE)

    def _receive(self) -> Iterator[object]:
        while True:
            try:
                header = receive_parts(self._socket)[0]
            except zmq.Again:
                return
            self.answers += 1
            fields = decode_fields(header.buffer)
            then = self._waiting.pop(str(fields.get("id")), None)
            if then is not None:
                then(fields)
            yield from ()

    def close(self) -> None:
        self._poller.unwatch_socket(self._socket)
        self._socket.close()
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(GONE)


def refusal(fields: Fields) -> str | None:
    """The message of an error answer; None if the operation succeeded."""
    error = fields.get("error")
    return None if error is None else str(msgspec.to_builtins(error)["message"])
