"""Client of MLServer, in a separate process: requests are encoded once, and sent and received as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from mlserver.grpc import dataplane_pb2 as pb

from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking, Came, obeying, raw_frame
from benchmarks.rigs.child_process import Child

_REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class GrpcAsker(Came):
    def __init__(self, port: int, request: bytes) -> None:
        super().__init__()
        options = [("grpc.max_receive_message_length", -1)]
        self._call = grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary(_METHOD)
        self._request = request

    def send(self, number: int) -> None:
        self._call.future(self._request).add_done_callback(lambda call: self._came.put((number, _outcome(call))))


def _outcome(call: Any) -> str:
    code = call.code()
    if code == grpc.StatusCode.OK:
        return ANSWERED
    return REFUSED if code in _REFUSALS else f"answered with {code}: {call.details()}"


def child(inputs: Sequence[Mapping[str, Any]], ports: Sequence[int], in_flight: int, model: str = "network") -> Child:
    request = pb.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="in", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(raw_frame(inputs))
    return obeying(Asking(GrpcAsker(ports[0], request.SerializeToString())), in_flight)
