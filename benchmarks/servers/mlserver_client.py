"""Client of MLServer, in a separate process: requests are encoded once, and sent and received as bytes."""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import grpc
import numpy as np
from mlserver.grpc import dataplane_pb2 as pb

from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking, obey

_REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class GrpcAsker:
    def __init__(self, port: int, request: bytes) -> None:
        options = [("grpc.max_receive_message_length", -1)]
        self._call = grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary(_METHOD)
        self._request = request
        self._came: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def send(self, number: int) -> None:
        self._call.future(self._request).add_done_callback(lambda call: self._came.put((number, _outcome(call))))

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        try:
            return [self._came.get(timeout=timeout_s) if timeout_s > 0 else self._came.get_nowait()]
        except queue.Empty:
            return []


def _outcome(call: Any) -> str:
    code = call.code()
    if code == grpc.StatusCode.OK:
        return ANSWERED
    return REFUSED if code in _REFUSALS else f"answered with {code}: {call.details()}"


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    generator = np.random.default_rng(0)
    frame = [generator.standard_normal(one["shape"]).astype(one["dtype"]) for one in settings["inputs"]]
    request = pb.ModelInferRequest(model_name=settings.get("model", "network"))
    tensor = request.inputs.add(name="in", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"".join(array.tobytes() for array in frame))
    asker = GrpcAsker(settings["ports"][0], request.SerializeToString())
    obey(Asking(asker), settings["in_flight"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
