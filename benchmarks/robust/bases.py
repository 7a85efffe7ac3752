"""Base inputs of fuzzing: valid and small input of every kind, which together exercise most of the readers' code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.signature import Signature

SIGNATURE: Final = Signature(
    "m",
    (Tensor("x", (1, 4), "FP32"), Tensor("n", (2,), "INT64")),
    (Tensor("y", (1, 4), "FP32"), Tensor("z", (), "BOOL")),
)
"""Signature of the model that requests are for."""
LAYERS: Final = 6
PLACES: Final = ("a", "b", "c")
"""Places of the machine that plans are for."""


def requests() -> list[bytes]:
    """Requests, the parts of each packed as a list."""
    size = {"x": 16, "n": 16}
    inputs = [
        {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "datatype": tensor.datatype,
            "parameters": {"binary_data_size": size[tensor.name]},
        }
        for tensor in SIGNATURE.inputs
    ]
    lent = [tensor | {"parameters": {"shared_memory_region": "t", "shared_memory_byte_size": 16}} for tensor in inputs]
    plain: dict[str, Any] = {"op": "infer", "id": "1", "model_name": "m", "inputs": inputs}
    ordered = plain | {"parameters": {"stream": "s", "sequence": 3, "deadline_ms": 20.5}}
    chosen = plain | {"outputs": [{"name": "y", "parameters": {"binary_data": True}}], "inputs": inputs[::-1]}
    operations: list[dict[str, Any]] = [
        {"op": "status", "id": "1"},
        {"op": "events", "id": "1", "since": 3, "limit": 10},
        {"op": "cancel", "id": "1", "target": "7"},
        {"op": "place_set", "id": "1", "parameters": {"place": "a", "speed": 0.5}},
        {"op": "place_set", "id": "1", "place": "a", "down": True},
        {"op": "tuner_set", "id": "1", "alpha": 3, "strategy": "shisha", "objective": "latency"},
        *({"op": "plan_set", "id": "1", "stages": json.loads(plan)} for plan in plans()),
    ]
    raw = [bytes(16), bytes(16)]
    messages = [[_json(plain), *raw], [_json(ordered), *raw], [_json(chosen), *raw], [_json(plain | {"inputs": lent})]]
    return [msgspec.msgpack.encode(parts) for parts in (*messages, *([_json(operation)] for operation in operations))]


def answers() -> list[bytes]:
    """Messages of the daemon to a client that has asked for a frame and for its metadata."""
    outputs = [{"name": "y", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]
    result = {
        "id": "3",
        "model_name": "m",
        "outputs": outputs,
        "parameters": {"epoch": 1, "frame": 7, "queue_ms": 0.1, "compute_ms": 2},
    }
    tensors = [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    return [
        msgspec.msgpack.encode(parts)
        for parts in (
            [_json(result), bytes(16)],
            [_json({"id": "3", "error": {"code": "INTERNAL", "message": "m"}})],
            [_json({"id": "1", "instance": "i", "max_in_flight": 3, "shared_memory_socket": "/nowhere"})],
            [_json({"id": "2", "name": "m", "inputs": tensors, "outputs": tensors, "shapes": [{"x": [1, 4]}]})],
        )
    ]


def http_bodies() -> list[bytes]:
    """Bodies of `infer`, with JSON only or with binary data after it."""
    x = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
    n = {"name": "n", "shape": [2], "datatype": "INT64"}
    parameters = {"stream": "s", "sequence": 3, "deadline_ms": 10, "timeout": 5, "binary_data_output": True}
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 0}
    return [
        _json({"inputs": [x | {"data": [0.5, 1, -1e30, 3]}, n | {"data": [1, 2]}]}),
        _json({"id": "7", "inputs": [x | {"data": [[1, 2, 3, 4]]}, n | {"data": [1, 2]}], "parameters": parameters}),
        _json({"inputs": [x | {"parameters": {"binary_data_size": 16}}, n | {"parameters": region}],
               "outputs": [{"name": "y", "parameters": {"classification": 2}}, {"name": "z"}]}),
    ]  # fmt: skip


def plans() -> list[bytes]:
    """`stages`, as `plan --json` prints them."""
    split = {"first": 2, "last": 2, "axis": "channels", "shares": [2, 2]}
    return [
        _json([{"first": 0, "last": 2, "places": ["a"]}, {"first": 3, "last": 5, "places": ["b", "c"]}]),
        _json([{"first": 0, "last": 5, "places": [["a", "b"], "c"], "service_s": 1.0}]),
        _json([{"first": 0, "last": 0, "places": ["a"]}, {"layers": [[1, 1], [3, 4]], "places": ["b"], "after": [0]},
               {"layers": [[2, 2], [5, 5]], "places": ["c"], "after": [0, 1]}]),
        _json([{"first": 0, "last": 1, "places": ["a"]}, {"first": 2, "last": 2, "places": ["b"], "split": split},
               {"first": 2, "last": 2, "places": ["c"], "after": [0], "split": split},
               {"first": 2, "last": 5, "places": ["a"], "after": [1, 2], "split": split}]),
    ]  # fmt: skip


def costs() -> list[bytes]:
    """COSTS.json."""
    layers = [{"name": f"l{index}", "weight": 9 - index, "weight_bytes": 100, "live_bytes": 7} for index in range(5)]
    places: list[dict[str, Any]] = [{"name": "fast", "rank": 1, "memory_bytes": 1200}, {"name": "slow", "rank": 2}]
    plain = {"layers": layers, "places": places, "time_s": [[1, 3], [0.5, 2], [0.25, None], [2, 2], [1, 4]]}
    alike = [{"name": name, "rank": 1} for name in ("p", "q", "r")]
    times = [[1.0] * 3, [0.5] * 3, [0.25] * 3, [2.0] * 3, [1.0] * 3]
    teams = [{"places": ["p", "q"], "time_s": [0.6, 0.3, 0.2, 1.2, 0.6]}]
    return [
        _json(plain),
        _json(plain | {"transfer_s": [0.125, None, 0, 1e-3]}),
        _json({"layers": layers, "places": alike, "time_s": times, "teams": teams}),
    ]


def problems() -> list[bytes]:
    """PROBLEM.json."""
    nodes = [
        {"name": "a", "op": "Conv", "cost_s": {"cpu": 3.0, "pim": 1.0}},
        {"name": "b", "op": "Relu", "cost_s": {"cpu": 0.5}},
        {"name": "c", "op": "Conv", "cost_s": {"cpu": 2.0, "pim": 2.5}},
        {"name": "d", "cost_s": {"cpu": 1.0, "pim": 0.2}},
    ]
    tensors = [
        {"name": "t", "producer": "a", "consumers": ["b", "c"], "transfer_s": {"cpu->pim": 0.3, "pim->cpu": 0.2}},
        {"name": "u", "producer": "b", "consumers": ["d"], "transfer_s": {"cpu->pim": 0.1}},
        {"name": "v", "producer": "c", "consumers": ["d"], "transfer_s": {}},
    ]
    plain = {"devices": ["cpu", "pim"], "nodes": nodes, "tensors": tensors}
    memories = {"cpu": "dram", "pim": "dram"}
    groups = [{"nodes": ["b", "d"], "device": "cpu", "cost_s": 1.1}]
    return [
        _json(plain),
        _json(plain | {"groups": groups, "transfer_counting": "per_edge"}),
        _json(plain | {"memories": memories, "tensors": [tensor | {"transfer_s": {}} for tensor in tensors]}),
    ]


def shipped(kind: str) -> list[bytes]:
    """The files of machines, devices or daemons that come with the project."""
    return [path.read_bytes() for path in shipped_configs(kind).values()]


def models() -> list[bytes]:
    """ONNX files: convolutions, computed shapes, branches, integers, functions, sizes that depend on values."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape, np.float32)

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([make_node(op, ["x"], [op])], op, [], [_value(op, [1, 3])])

    ones = np.ones(4, np.float32)
    conv = _model(
        [make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
         make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]), make_node("Relu", ["n"], ["r"]),
         make_node("GlobalAveragePool", ["r"], ["g"]), make_node("Flatten", ["g"], ["f"]),
         make_node("Gemm", ["f", "v", "u"], ["y"])],
        {"x": ["N", 2, 6, 6]}, {"y": ["N", 3]},
        {"w": random(4, 2, 3, 3), "b": random(4), "s": ones, "v": random(4, 3), "u": random(3)},
    )  # fmt: skip
    shapes = _model(
        [make_node("Shape", ["x"], ["s"]), make_node("Gather", ["s", "i"], ["b"], axis=0),
         make_node("Constant", [], ["m"], value=numpy_helper.from_array(np.array([-1]))),
         make_node("Concat", ["b", "m"], ["t"], axis=0), make_node("Reshape", ["x", "t"], ["r"]),
         make_node("MatMul", ["r", "w"], ["y"])],
        {"x": [1, 4, 2]}, {"y": [1, 3]}, {"w": random(8, 3), "i": np.array([0])},
    )  # fmt: skip
    choice = _model(
        [make_node("ReduceSum", ["x"], ["s"], keepdims=0), make_node("Greater", ["s", "z"], ["c"]),
         make_node("If", ["c"], ["h"], then_branch=branch("Relu"), else_branch=branch("Neg")),
         make_node("Cast", ["h"], ["d"], to=TensorProto.DOUBLE), make_node("Cast", ["d"], ["y"], to=TensorProto.FLOAT)],
        {"x": [1, 3]}, {"y": [1, 3]}, {"z": np.array(0, np.float32)},
    )  # fmt: skip
    integers = _model(
        [make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), make_node("ConvInteger", ["q", "w", "z"], ["c"]),
         make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT), make_node("Mul", ["f", "s"], ["y"])],
        {"x": [1, 2, 5, 5]}, {"y": [1, 3, 3, 3]}, {"w": np.ones((3, 2, 3, 3), np.int8)},
    )  # fmt: skip
    function = _model(
        [make_node("Relu", ["x"], ["h"]), make_node("Twice", ["h"], ["y"], domain="own")], {"x": [1, 3]}, {"y": [1, 3]}
    )
    body = [make_node("Add", ["a", "a"], ["b"])]
    function.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    function.opset_import.append(helper.make_opsetid("own", 1))
    values = _model(
        [make_node("ConstantOfShape", ["s"], ["h"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0])),
         make_node("Range", ["a", "b", "c"], ["r"]), make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
         make_node("Add", ["h", "x"], ["m"]), make_node("Slice", ["m", "t", "e"], ["l"]),
         make_node("Add", ["l", "f"], ["y"])],
        {"x": [1, 3]}, {"y": [1, 3]},
        {"s": np.array([1, 3]), "a": np.array(0), "b": np.array(3), "c": np.array(1), "t": np.array([0]),
         "e": np.array([1])},
    )  # fmt: skip
    return [model.SerializeToString() for model in (conv, shapes, choice, integers, function, values)]


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [_value(name, shape) for name, shape in inputs.items()],
        [_value(name, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _value(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
