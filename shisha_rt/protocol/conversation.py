"""The client's side of the protocol without a socket: what to send, and what a reply means.

Every request put in flight has exactly one outcome (a result, the fields of an answer, or an error), or is abandoned
and has none. A reply that matches nothing in flight is ignored; no request is ever sent twice. Both clients, blocking
and asyncio, use this class.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from shisha_rt.errors import Error
from shisha_rt.model.graph import Tensor
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol.exceptions import InvalidArgument, ShishaError, error_for, error_of, malformed
from shisha_rt.protocol.frame_tensors import Answer, Array, FrameTensors, Inputs, Lender, LentTensors, answer_of
from shisha_rt.protocol.header import (
    AnswerHead,
    Buffer,
    InferAnswerHeader,
    InferParameters,
    decode_fields,
    decode_head,
    decode_infer_answer,
    encode_operation,
)
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_HEADER_BYTES, MAX_INTEGER, MAX_NAME_LENGTH, MAX_PRIORITY
from shisha_rt.protocol.operations import INFER
from shisha_rt.protocol.request import check_operation
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NUMPY_OF

Stages: TypeAlias = Plan | Sequence[Mapping[str, Any]]
"""A plan, or its stages as `shisha-rt plan --json` prints them."""


def stages_of(plan: Stages) -> list[Mapping[str, Any]]:
    if isinstance(plan, Plan):
        return list(written(plan))
    return list(plan)


Fields: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Answer | Fields | ShishaError
RequestOutcome: TypeAlias = tuple[str, Outcome]
"""A request's id and its one outcome."""


class FrameTerms(NamedTuple):
    """What a frame is sent with, as in the clients' `infer`: `caller` is for proxies only."""

    stream: str | None = None
    sequence: int | None = None
    deadline_s: float | None = None
    priority: int = 0
    traceparent: str | None = None
    caller: str | None = None

    def parameters(self) -> InferParameters | None:
        """The parameters of the request's header; None if there are none. Raises `InvalidArgument`."""
        if self == _NO_TERMS:
            return None
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise malformed(f"priority {self.priority}; expected 1, the most urgent, to {MAX_PRIORITY}")
        if isinstance(self.sequence, Integral) and not 0 <= int(self.sequence) <= MAX_INTEGER:
            raise malformed(f"sequence {self.sequence}; expected 0 to {MAX_INTEGER}")
        deadline_s = self.deadline_s
        if deadline_s is not None and not 0 <= deadline_s <= MAX_DEADLINE_MS / 1e3:
            raise malformed(f"deadline_s {deadline_s}; expected 0 to {MAX_DEADLINE_MS / 1e3:g}")
        for name, text, least in (("stream", self.stream, 1), ("traceparent", self.traceparent, 0)):
            if text is not None and not (isinstance(text, str) and least <= len(text) <= MAX_NAME_LENGTH):
                expected = f"expected text of {least} to {MAX_NAME_LENGTH} characters"
                raise malformed(f"{name} {text!r:.80}; {expected}")
        deadline_ms = None if deadline_s is None else deadline_s * 1e3
        return InferParameters(self.stream, self.sequence, deadline_ms, self.priority, self.traceparent, self.caller)


_NO_TERMS: Final = FrameTerms()


class Outgoing(Struct, frozen=True, eq=False):
    """A request to be sent; in flight only after `Conversation.sent`. `losses`: of connections, when it was made."""

    id: str
    op: str
    parts: Sequence[Buffer]
    lent: LentTensors = LentTensors()
    losses: int = 0


class _Waiting(NamedTuple):
    op: str
    lent: LentTensors


class _MetadataTensor(Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]

    def tensor(self) -> Tensor:
        """Axes whose size is -1 are open."""
        open_axes = tuple(axis for axis, size in enumerate(self.shape) if size < 0)
        return Tensor(self.name, tuple(max(0, size) for size in self.shape), self.datatype, open_axes)


class _ModelMetadata(Struct, frozen=True):
    name: str
    inputs: tuple[_MetadataTensor, ...]
    outputs: tuple[_MetadataTensor, ...]
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    most_frames: int = 1
    one_frame: str = ""
    versions: tuple[str, ...] = ()

    def signature(self) -> Signature:
        inputs, outputs = (tuple(end.tensor() for end in ends) for ends in (self.inputs, self.outputs))
        if any(shapes.keys() != {tensor.name for tensor in inputs} for shapes in self.shapes):
            raise ValueError("each of the shapes must name every input")
        shapes = tuple(
            tuple(msgspec.structs.replace(tensor, shape=shape_of[tensor.name], open_axes=()) for tensor in inputs)
            for shape_of in self.shapes
        )
        version = next(iter(self.versions), "1")
        return Signature(self.name, inputs, outputs, shapes, self.most_frames, self.one_frame, version)


class _Served(Struct, frozen=True):
    """A model of an address that serves several."""

    name: str
    endpoint: str | None = None


_SERVER_METADATA: Final = "server_metadata"
_MODEL_METADATA: Final = "model_metadata"
_PROBE: Final = "probe"
"""Not an operation, but in place of one: marks a `server_metadata` request whose outcome no caller awaits."""


class Conversation:
    """Requests in flight on one connection to one daemon, by id.

    `instance` (of the daemon) and `signature` (of its model) are None until `server_metadata` and `model_metadata` are
    answered, and again after a loss, as the next daemon may be a different one with a different model.

    `signature` is asked for again once an answer is of another version: an address that forwards requests does not say
    that another daemon has taken over.

    `local_socket`: path of the socket at which clients on the daemon's host may share memory with it, or have a direct
    line; None: there is none, or it is not known yet.

    `model`: the model that requests name, if an address serves several. `leads`: the address serves several models, so
    `leads_to` may name the model's own daemon. `moved`: another daemon takes over; this one still answers what it has
    been sent.

    `in_doubt`: the daemon may have been replaced by one that does not know the lent memory; a probe finds out.

    `lender`: shares memory with the daemon; None: none is shared. Memory lent for a frame is not reused before its
    answer has come, even if the frame is abandoned. The caller's own arrays in it are read-only while the call waits.
    """

    def __init__(self, lender: Lender | None = None, model: str | None = None) -> None:
        self.instance: str | None = None
        self.local_socket: str | None = None
        self.moved = self.leads = False
        self._model = model
        self._served: tuple[_Served, ...] = ()
        self.in_doubt = False
        self._lender = lender
        self._frames: FrameTensors | None = None
        self._is_superseded = False  # the signature
        self._losses = 0
        self._in_flight: dict[str, _Waiting] = {}
        self._abandoned: dict[str, LentTensors] = {}
        self._frozen: dict[int, int] = {}  # by id() of an array made read-only here: how many requests lend it
        self._numbers = itertools.count(1)
        self._stream_numbers = itertools.count(1)

    @property
    def in_flight(self) -> int:
        """The number of requests without an outcome, not counting a probe."""
        return sum(waiting.op != _PROBE for waiting in self._in_flight.values())

    @property
    def has_frames(self) -> bool:
        return any(waiting.op == INFER for waiting in self._in_flight.values())

    @property
    def signature(self) -> Signature | None:
        return None if self._frames is None else self._frames.signature

    @signature.setter
    def signature(self, signature: Signature) -> None:
        self._is_superseded = False
        if signature != self.signature:
            self._frames = FrameTensors(signature, self._lender)

    @property
    def to_ask(self) -> str | None:
        """The operation to ask next so that daemon and model are known; None if both are."""
        if self.instance is None:
            return _SERVER_METADATA
        return _MODEL_METADATA if self._frames is None or self._is_superseded else None

    @property
    def leads_to(self) -> str | None:
        """The endpoint of the model's own daemon, as reported by an address that serves several models."""
        served = [served for served in self._served if self._model in (None, served.name)]
        return served[0].endpoint if len(served) == 1 else None

    def ask(self, op: str, arguments: Mapping[str, object] | None = None) -> Outgoing:
        """Make a request other than `infer`. Raises `InvalidArgument` for arguments that `op` does not take."""
        request_id = self._new_id()
        if self._model is not None and op != _SERVER_METADATA:
            arguments = {"model_name": self._model, **(arguments or {})}
        header = encode_operation(op, request_id, arguments)
        if len(header) <= MAX_HEADER_BYTES:  # otherwise `check` refuses it
            check_operation(header)
        return Outgoing(request_id, op, [header])

    def infer(
        self,
        inputs: Inputs,
        terms: FrameTerms = _NO_TERMS,
        *,
        outputs: Sequence[str] = (),
        request_id: str | None = None,
    ) -> Outgoing:
        """Make an `infer` request; needs `signature`. Raises `InvalidArgument` for inputs that do not fit the model."""
        if self._frames is None:
            raise RuntimeError("the model's signature is not known yet")
        if request_id is None:
            request_id = self._new_id()
        elif not isinstance(request_id, str):
            raise malformed(f"request_id {request_id!r}; expected a str")
        elif len(request_id) > MAX_NAME_LENGTH:
            too_long = f"request_id: {len(request_id)} characters; expected at most {MAX_NAME_LENGTH}"
            raise error_for(Error.REQUEST_TOO_LARGE, too_long)
        self._check_id(request_id)
        outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        parts, lent = self._frames.request(request_id, inputs, terms.parameters(), outputs)
        return Outgoing(request_id, INFER, parts, lent, self._losses)

    def probe(self) -> Outgoing | None:
        """Make a request that shows whether the daemon is still the same one; None if one is in flight.

        No caller waits for its outcome. A daemon behind a proxy can be replaced without a connection being lost.
        """
        self.in_doubt = False
        if any(waiting.op == _PROBE for waiting in self._in_flight.values()):
            return None
        request_id = self._new_id()
        return Outgoing(request_id, _PROBE, [encode_operation(_SERVER_METADATA, request_id)])

    def check(self, outgoing: Outgoing) -> None:
        """Check a request to be sent. Raises `InvalidArgument` if its header is too large or its id in flight, and
        `Unavailable` if it uses memory that was lent on a connection lost since.
        """
        self._check_id(outgoing.id)  # another request with this id may have been sent since this one was made
        if (header_bytes := len(outgoing.parts[0])) > MAX_HEADER_BYTES:
            too_large = f"header: {header_bytes} bytes; expected at most {MAX_HEADER_BYTES}"
            raise error_for(Error.REQUEST_TOO_LARGE, too_large, outgoing.id)
        if outgoing.losses != self._losses and outgoing.lent:
            raise error_for(
                Error.CONNECTION_LOST,
                "the connection was lost before the request was sent; it has not been run",
                outgoing.id,
            )

    def sends(self, outgoing: Outgoing) -> None:
        """Note that a request is in flight; until its outcome its arrays in lent memory are read-only."""
        self._in_flight[outgoing.id] = _Waiting(outgoing.op, outgoing.lent)
        for array in outgoing.lent.inputs:
            self._freeze(array)

    def not_sent(self, outgoing: Outgoing) -> None:
        """Note that a request could not be sent after all; it may be sent later."""
        waiting = self._in_flight.pop(outgoing.id, None)
        if waiting is not None:
            self._thaw(waiting.lent)

    def abandon(self, request_id: str) -> bool:
        """Stop waiting for a request. Return whether there is something to cancel."""
        waiting = self._in_flight.pop(request_id, None)
        if waiting is None or waiting.op != INFER:
            return False
        self._thaw(waiting.lent)
        if waiting.lent:
            self._abandoned[request_id] = waiting.lent
        return True

    def receive(self, parts: Sequence[Buffer]) -> list[RequestOutcome]:
        """Return the outcomes that a message settles: none, its request's, or, if of a new daemon, all in flight."""
        result: InferAnswerHeader | None = None
        head: AnswerHead | InferAnswerHeader
        try:
            try:
                head = result = decode_infer_answer(parts[0])  # most messages are results
            except msgspec.ValidationError:
                head = decode_head(parts[0])
        except (IndexError, msgspec.MsgspecError, ValueError, RecursionError):
            return []
        if head.id is None:
            self.moved |= isinstance(head, AnswerHead) and head.moved
            return []
        waiting = self._in_flight.get(head.id)
        if waiting is None:
            self._abandoned.pop(head.id, None)
            return []
        op, lent = waiting
        self._thaw(lent)
        del self._in_flight[head.id]  # after that: `lose` thaws what Ctrl-C has left
        if op == INFER and result is not None:
            version = "" if (signature := self.signature) is None else signature.version
            self._is_superseded |= result.model_version not in ("", version)
            try:
                return [(head.id, answer_of(result, parts[1:], lent.rooms, version))]
            except ValueError:
                pass
        settled = self._settle(op, head, parts)
        self.in_doubt |= bool(lent) and any(isinstance(outcome, InvalidArgument) for _, outcome in settled)
        return settled

    def _settle(self, op: str, head: AnswerHead | InferAnswerHeader, parts: Sequence[Buffer]) -> list[RequestOutcome]:
        """Settle a request by an answer that is not a result."""
        assert head.id is not None
        outcome: Outcome
        lost: list[RequestOutcome] = []
        if isinstance(head, AnswerHead) and head.error is not None:
            outcome = error_of(head.error.code, head.error.message, head.id, head.error.kind)
        else:
            try:
                if op == INFER:
                    raise ValueError("no result")
                outcome = decode_fields(parts[0])
                del outcome["id"]
                lost = self._learn(op, outcome)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                outcome = error_for(Error.BROKEN_ANSWER, "the daemon's answer does not follow the protocol", head.id)
        return lost if op == _PROBE else [*lost, (head.id, outcome)]

    def lose(self, reason: str) -> list[RequestOutcome]:
        """End all requests in flight as `Unavailable`, and forget the daemon, which is gone."""
        lost: list[RequestOutcome] = [
            (request_id, error_for(Error.CONNECTION_LOST, reason, request_id))
            for request_id, waiting in self._in_flight.items()
            if waiting.op != _PROBE
        ]
        for waiting in self._in_flight.values():
            self._thaw(waiting.lent)
        self._in_flight.clear()
        self._abandoned.clear()
        if self._lender is not None:
            self._lender.forget()
        self._losses += 1
        self.instance = self.local_socket = self._frames = None
        self.moved = self.leads = False
        self._served = ()
        return lost

    def _freeze(self, array: Array) -> None:
        """Make an array read-only, so that numpy refuses writes. The owner's existing views stay writeable, and so does
        an array whose base is no buffer (from `as_strided` or DLPack): that could not be made writeable again.
        """
        if array.flags.writeable:
            with contextlib.suppress(ValueError):
                array.flags.writeable = True  # numpy refuses where it could not undo the next line
                array.flags.writeable = False
                self._frozen[id(array)] = 1
        elif id(array) in self._frozen:
            self._frozen[id(array)] += 1

    def _thaw(self, lent: LentTensors) -> None:
        for array in lent.inputs:
            times = self._frozen.get(id(array), 0)
            if times > 1:
                self._frozen[id(array)] = times - 1
            elif times:
                array.flags.writeable = True
                del self._frozen[id(array)]

    def _learn(self, op: str, fields: Fields) -> list[RequestOutcome]:
        """Note what an answer says of the daemon and its model; a new daemon ends all requests to the one before."""
        if op == _MODEL_METADATA:
            metadata = msgspec.convert(fields, _ModelMetadata)
            if any(tensor.datatype not in NUMPY_OF for tensor in metadata.inputs):
                raise ValueError("unknown datatype")
            self.signature = metadata.signature()
            return []
        if op not in (_SERVER_METADATA, _PROBE):
            return []
        instance = fields.get("instance")
        if not isinstance(instance, str):  # without, it would be asked again and again
            raise ValueError("the daemon does not say which it is")
        if instance == self.instance:
            return []
        changed = self.instance is not None
        lost = self.lose("the daemon was restarted while it had the request; it may have been run") if changed else []
        self.instance = instance
        self._served = msgspec.convert(fields.get("models", ()), tuple[_Served, ...])
        self.leads = bool(self._served)
        path = fields.get("shared_memory_socket")
        self.local_socket = path if isinstance(path, str) else None
        if self._lender is not None:
            self._lender.meet(self.local_socket, instance)
        return lost

    def new_stream(self) -> str:
        return f"stream-{next(self._stream_numbers)}"

    def _check_id(self, request_id: str) -> None:
        if request_id in self._in_flight or request_id in self._abandoned:
            raise error_for(Error.ID_IN_USE, f"request id {request_id!r} is already in flight")

    def _new_id(self) -> str:
        while (name := str(next(self._numbers))) in self._in_flight or name in self._abandoned:
            pass
        return name
