"""A gateway that follows a script: a real ROUTER socket in a thread, which answers as the test tells it to.

It reads requests with `parse`, so that whatever the client sends is also checked against the daemon's own reading.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import zmq

from shisha_rt.errors import Error
from shisha_rt.model.graph import Tensor
from shisha_rt.plan.form import read
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import AnswerParameters, TensorHeader, encode_answer, encode_error, encode_infer_answer
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.operations import Arguments, Cancel, Events, PlanSet
from shisha_rt.protocol.request import InferRequest, OpRequest, parse, split_envelope
from shisha_rt.protocol.signature import Signature

SIGNATURE = Signature("double", (Tensor("x", (1, 3), "FP32"),), (Tensor("y", (1, 3), "FP32"),))


@dataclass(frozen=True)
class Frame:
    """A frame that came: whom to answer, and its first value."""

    envelope: Sequence[bytes]
    request: InferRequest

    @property
    def value(self) -> float:
        return float(np.frombuffer(self.request.tensors["x"], "<f4")[0])


class Gone(Exception):
    """Raised by a script: the gateway vanishes as if killed."""


Script = Callable[["Gateway", Frame], None]


def echo(gateway: Gateway, frame: Frame) -> None:
    gateway.answer(frame)


class Gateway:
    """Runs within its context. `asked` lists the operations that came, in order.

    `drains`: at its end all answers go out, as a daemon's that ends in an orderly way.
    """

    def __init__(
        self,
        script: Script = echo,
        *,
        endpoint: str = "tcp://127.0.0.1:*",
        instance: str = "first",
        drains: bool = False,
    ) -> None:
        self.script = script
        self.instance = instance
        self.held: list[Frame] = []
        self.asked: list[tuple[str, Arguments]] = []
        self.cancelled = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = -1 if drains else 0
        self._socket.ipv6 = "[" in endpoint
        self._socket.bind(endpoint)
        self.endpoint = str(self._socket.get_string(zmq.LAST_ENDPOINT)).rstrip("\0")
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind("inproc://stop")
        self._stopped = self._context.socket(zmq.PAIR)
        self._stopped.connect("inproc://stop")
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.send(b"")
        self._thread.join()
        self._stop.close(linger=0)
        self._stopped.close()
        self._context.term()
        if self._failure is not None:
            raise self._failure

    def answer(self, frame: Frame) -> None:
        """Twice the input, as frame number its first value."""
        request = frame.request
        doubled = 2 * np.frombuffer(request.tensors["x"], "<f4")
        outputs = tuple(map(TensorHeader.of, SIGNATURE.outputs))
        parameters = AnswerParameters(1, int(frame.value), 1.0, 2.0, request.sequence)
        header = encode_infer_answer(request.id, SIGNATURE.model_name, SIGNATURE.version, outputs, parameters)
        self._socket.send_multipart([*frame.envelope, header, doubled.tobytes()])

    def fail(self, frame: Frame, kind: Error, message: str = "as the script says") -> None:
        self.send(frame, encode_error(frame.request.id, error_for(kind, message)))

    def send(self, frame: Frame, *parts: bytes) -> None:
        self._socket.send_multipart([*frame.envelope, *parts])

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        try:
            while self._stopped not in dict(poller.poll()):
                self._serve()
        except Gone:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            self._socket.close()

    def _serve(self) -> None:
        identity, *rest = self._socket.recv_multipart()
        has_delimiter, parts = split_envelope(rest)
        envelope = [identity, b""] if has_delimiter else [identity]
        try:
            request = parse(parts, SIGNATURE, Limits())
        except ShishaError as error:
            self._socket.send_multipart([*envelope, encode_error(error.request_id, error)])
            return
        if isinstance(request, InferRequest):
            self.script(self, Frame(envelope, request))
            return
        self.asked.append((request.op, request.arguments))
        if request.op == "cancel":
            self.cancelled.set()
        self._socket.send_multipart([*envelope, encode_answer(request.id, self._fields(request))])

    def _fields(self, request: OpRequest) -> dict[str, object]:
        match request.arguments:
            case Cancel():
                return {"cancelled": False}
            case Events(since=since, limit=limit):
                return {"events": [{"number": since}], "next": since + limit}
            case PlanSet(stages=stages):
                return {"epoch": 2, "outcome": "live", "reason": str(read(stages))}
        fields: dict[str, dict[str, object]] = {
            "server_live": {"live": True},
            "server_ready": {"ready": False},
            "server_metadata": {"name": "shisha-rt", "instance": self.instance},
            "model_metadata": {
                "name": SIGNATURE.model_name,
                "versions": [],
                "platform": "onnx",
                "inputs": [_described(tensor) for tensor in SIGNATURE.inputs],
                "outputs": [_described(tensor) for tensor in SIGNATURE.outputs],
            },
            "status": {"status": {"state": "serving"}},
            "plan_get": {"epoch": 1, "stages": [{"first": 0, "last": 3, "places": ["fast0"], "service_s": None}]},
        }
        return fields[request.op]


def _described(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
