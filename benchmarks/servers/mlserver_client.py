"""Client of MLServer, in a separate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlserver.grpc import dataplane_pb2 as pb

from benchmarks.rigs.asking import Asking, obeying, raw_frame
from benchmarks.rigs.child_process import Child
from benchmarks.rigs.grpc_asking import GrpcAsker


def child(inputs: Sequence[Mapping[str, Any]], ports: Sequence[int], in_flight: int, model: str = "network") -> Child:
    request = pb.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="in", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(raw_frame(inputs))
    return obeying(Asking(GrpcAsker(f"127.0.0.1:{ports[0]}", request.SerializeToString())), in_flight)
