"""Requests over gRPC on one connection, encoded once, and sent and received as bytes."""

from __future__ import annotations

from typing import Any

import grpc

from benchmarks.rigs.asking import ANSWERED, REFUSED, Came

_REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class GrpcAsker(Came):
    def __init__(self, address: str, request: bytes) -> None:
        super().__init__()
        options = [("grpc.max_receive_message_length", -1)]
        self._call = grpc.insecure_channel(address, options).unary_unary(_METHOD)
        self._request = request

    def send(self, number: int) -> None:
        self._call.future(self._request).add_done_callback(lambda call: self._came.put((number, _outcome(call))))


def _outcome(call: Any) -> str:
    code = call.code()
    if code == grpc.StatusCode.OK:
        return ANSWERED
    return REFUSED if code in _REFUSALS else f"answered with {code}: {call.details()}"
