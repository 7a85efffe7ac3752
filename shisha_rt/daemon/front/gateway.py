"""The daemon's ZeroMQ front end: turns messages into requests, and answers into messages. Each request has one reply.

A bad message is answered with an error, and affects nobody but its sender.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final

import zmq
from msgspec import Raw, Struct

from shisha_rt.daemon.front.public_socket import Message, PublicSocket
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.requests import Output, Ticket
from shisha_rt.daemon.front.security import Security
from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import (
    AnswerParameters,
    TensorData,
    TensorHeader,
    encode_answer,
    encode_error,
    encode_infer_answer,
    encode_moved,
    encode_outputs,
)
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.operations import INFER
from shisha_rt.protocol.request import InferRequest, OpRequest, parse
from shisha_rt.protocol.signature import Signature

_MOST_FOLLOWERS: Final = 4096
"""Most clients that are told of a take-over; a further one replaces the one that has waited longest."""
_MOST_ENCODED: Final = 64
"""Most choices of outputs whose encoded headers are kept."""


class Reply(Struct, eq=False):
    """The one reply to a request: where it goes, and how it is sent. `frames`: the numbers of the request's frames."""

    gateway: Gateway
    client: Hashable
    envelope: Sequence[bytes]
    request_id: str | None
    frames: tuple[int, ...] = ()

    def frames_of(self, request_id: str) -> tuple[int, ...]:
        """The numbers of the frames that this client waits for under that id."""
        other = self.gateway.waiting.get((self.client, request_id))
        return () if other is None else other.frames

    def send_fields(self, fields: Mapping[str, object]) -> None:
        assert self.request_id is not None
        self._send(encode_answer(self.request_id, fields))

    def send_error(self, error: ShishaError) -> None:
        self._send(encode_error(self.request_id, error))

    def send_frame(self, answer: Ticket) -> None:
        """Answer an inference: with its outputs, or with its error."""
        if answer.error is not None:
            self.send_error(error_for(answer.error, answer.message))
            return
        parameters = AnswerParameters(
            answer.epoch,
            answer.frame,
            _in_ms(answer.queue_s),
            _in_ms(answer.compute_s),
            answer.request.sequence,
            answer.epochs,
        )
        outputs = self.gateway.encoded_outputs(answer)
        signature = self.gateway.signature
        header = encode_infer_answer(answer.request.id, signature.model_name, signature.version, outputs, parameters)
        self._send(header, *[output.data for output in answer.outputs if output.lent is None])

    def _send(self, *parts: bytes) -> None:
        self.gateway.waiting.pop((self.client, self.request_id), None)
        self.gateway.answer(self.client, self.envelope, self.request_id, parts)


class Arrived(Struct, frozen=True):
    """A request that has been checked, and where its one reply goes."""

    request: InferRequest | OpRequest
    reply: Reply


class Gateway(PublicSocket):
    """The public endpoint of one model. `waiting`: replies due, by client and id. `regions`: what clients lend."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        signature: Signature,
        limits: Limits,
        regions: Regions,
        count: Callable[[str], None],
        security: Security | None = None,
    ) -> None:
        super().__init__(context, endpoint, limits, count, security)
        self.signature = signature
        self._regions = regions
        self.waiting: dict[tuple[Hashable, str | None], Reply] = {}
        self._followers: dict[Hashable, Sequence[bytes]] = {}  # envelopes by client, the latest client last
        self._is_replaced = False
        self._encoded: dict[tuple[int, tuple[str, ...]], Raw] = {}  # by layout and names of outputs

    def encoded_outputs(self, answer: Ticket) -> Raw:
        """The outputs of an answer, encoded for its header; encoded once if they are the same for every frame."""
        request = answer.request
        key, varies = (request.layout, request.outputs), bool(request.lent_out) or request.frames > 1
        encoded = None if varies else self._encoded.get(key)
        if encoded is None:
            encoded = encode_outputs([_header(output) for output in answer.outputs])
            varies |= any(output.lent is not None or output.tensor.open_axes for output in answer.outputs)
            if not varies and len(self._encoded) < _MOST_ENCODED:
                self._encoded[key] = encoded
        return encoded

    def receive(self) -> Iterator[Arrived]:
        """The requests that have come, up to a turn's worth; bad ones are answered here."""
        for message in self.messages():
            arrived = self.take(message)
            if arrived is not None:
                yield arrived

    def take(self, message: Message) -> Arrived | None:
        """The request of a message; None for a bad one, which is answered here."""
        client = message.client
        try:
            request = parse(message.payload, self.signature, self.limits)
            self.check(message, request.op if isinstance(request, OpRequest) else INFER, request.id)
            if isinstance(request, InferRequest) and (request.lent_in or request.lent_out):
                self._regions.check(client, request)
            if (client, request.id) in self.waiting:
                reason = f"header at id: {request.id!r} is waiting already; expected an id that no waiting request has"
                raise error_for(Error.ID_IN_USE, reason, request.id)
        except ShishaError as error:
            self.refuse(message, error)  # not by a `Reply`, which would end a waiting request with the same id
            return None
        reply = self.waiting[client, request.id] = Reply(self, client, message.envelope, request.id)
        return Arrived(request, reply)

    def follow(self, client: Hashable, envelope: Sequence[bytes]) -> None:
        """Have a client told when another daemon takes over; at once, if one has already."""
        if self._is_replaced:
            self.outbox.send(client, [*envelope, encode_moved()])
            return
        self._followers.pop(client, None)
        self._followers[client] = envelope
        if len(self._followers) > _MOST_FOLLOWERS:
            del self._followers[next(iter(self._followers))]

    def unfollow(self, client: Hashable) -> None:
        self._followers.pop(client, None)

    def send_away(self) -> None:
        """Tell clients that another daemon takes over; requests that they still send are answered as usual."""
        self._is_replaced = True
        for client, envelope in self._followers.items():
            self.outbox.send(client, [*envelope, encode_moved()])
        self._followers.clear()

    def awaiting(self) -> set[Hashable]:
        return {client for client, _ in self.waiting}


def _in_ms(seconds: float) -> float:
    """Milliseconds, to the microsecond."""
    return int(seconds * 1e6 + 0.5) / 1e3


def _header(output: Output) -> TensorHeader:
    lent = output.lent
    data = TensorData(len(output.data)) if lent is None else TensorData(None, *lent)
    return TensorHeader(output.tensor.name, output.shape, output.tensor.datatype, data)
