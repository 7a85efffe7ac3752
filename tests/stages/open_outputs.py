"""A compiled model with outputs whose shape depends on the data, as the reader would have it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.index import Crossing, ModelIndex
from shisha_rt.model.reader import index_file
from shisha_rt.tensors import Tensor
from stages.engines.onnxruntime.apart import take_apart
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from stages.engines.onnxruntime.parts import write_parts

SIZE: Final = 200
X = Tensor("x", (1, SIZE), "FP32")
MIDDLE = Tensor("middle", (1, SIZE), "FP32")
PLAIN = Tensor("plain", (1, SIZE), "FP32")
WHERE = Tensor("where", (2, SIZE), "INT64", open_axes=(1,))
POSITIVE = Tensor("positive", (SIZE,), "BOOL", open_axes=(0,))
INDEX: Final = ModelIndex(
    engine="test",
    form="as_is",
    layer_count=2,
    legal_cuts=(0,),
    node_layers=(0, 1, 1, 1, 1, 1),
    inputs=(X,),
    outputs=(PLAIN, WHERE, POSITIVE),
    crossing=(Crossing(MIDDLE, made=0, readers=(1,)),),
)


def write_open_model(folder: Path) -> None:
    """`plain` is the input, `where` has the positions of what is not 0, `positive` a truth for each of those values."""
    nodes = [
        helper.make_node("MatMul", ["x", "unit"], ["middle"]),
        helper.make_node("MatMul", ["middle", "unit"], ["plain"]),
        helper.make_node("NonZero", ["plain"], ["where"]),
        helper.make_node("Transpose", ["where"], ["turned"]),
        helper.make_node("GatherND", ["plain", "turned"], ["found"]),
        helper.make_node("Greater", ["found", "zero"], ["positive"]),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [
            helper.make_tensor_value_info("plain", TensorProto.FLOAT, PLAIN.shape),
            helper.make_tensor_value_info("where", TensorProto.INT64, [2, None]),
            helper.make_tensor_value_info("positive", TensorProto.BOOL, [None]),
        ],
        [
            numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "unit"),
            numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / MODEL_FILE)
    index_file.write_index(INDEX, folder)
    write_parts(take_apart(model, INDEX), folder)
