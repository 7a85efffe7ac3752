"""Client of a daemon over gRPC, with the Open Inference Protocol and raw contents, in a separate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.rigs.asking import Asking, obeying, random_inputs
from benchmarks.rigs.child_process import Child
from benchmarks.rigs.grpc_asking import GrpcAsker
from shisha_rt.http.grpc.messages import MESSAGES


def child(address: str, model: str, inputs: Sequence[Mapping[str, Any]], in_flight: int) -> Child:
    request = MESSAGES["ModelInferRequest"](model_name=model)
    for tensor in inputs:
        request.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
    request.raw_input_contents.extend(array.tobytes() for array in random_inputs(inputs).values())
    return obeying(Asking(GrpcAsker(address, request.SerializeToString())), in_flight)
