"""ONNX Runtime's optimised graph as a `Graph`, for splits of layers; and the block size of its blocked formats.

Most stages are assembled from parts (see `parts`), without `onnx`, which takes long to import. A shard's nodes are
written anew, with different attributes and slices of weights: so `onnx` is imported only if a layer is split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.external_data import weight_datatype
from shisha_rt.model.reader.onnx_reader import operator_of
from shisha_rt.model.shards.blocked import BLOCK, NCHWC
from shisha_rt.tensors import Tensor
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.options import base_options, open_session

MODEL_FILE: Final = "model.onnx"
_TENSORS_FILE: Final = "tensors.msgpack"


def write_tensors(specs: Iterable[Tensor], folder: Path) -> None:
    """Write the name, shape and datatype of every run-time tensor into the folder of the graph."""
    (folder / _TENSORS_FILE).write_bytes(msgspec.msgpack.encode(list(specs)))


def read_optimised(folder: Path) -> CleanModel:
    """Read the optimised graph of a folder that `write_tensors` has completed."""
    specs = msgspec.msgpack.decode((folder / _TENSORS_FILE).read_bytes(), type=list[Tensor])
    model = onnx.load(str(folder / MODEL_FILE), load_external_data=False)
    return CleanModel(folder, optimised_graph(model, {spec.name: spec for spec in specs}), model)


def optimised_graph(optimised: onnx.ModelProto, specs: Mapping[str, Tensor]) -> Graph:
    """The graph of `optimised`; `specs`: of every run-time tensor, inputs included."""
    graph = optimised.graph
    operators = tuple(operator_of(node) for node in graph.node)
    constants = {
        constant.name: Tensor(constant.name, tuple(constant.dims), weight_datatype(constant))
        for constant in graph.initializer
    }
    made = [name for operator in operators for name in operator.outputs if name]
    tensors = {}
    for name in (*(value.name for value in graph.input), *made):
        if name not in constants:
            tensors[name] = specs[name]
    return Graph(
        name=graph.name,
        operators=operators,
        inputs=tuple(tensors[value.name] for value in graph.input if value.name in tensors),
        outputs=tuple(tensors[value.name] for value in graph.output),
        tensors=tensors,
        constants=constants,
    )


@cache
def block_size() -> int:
    """Channels of a block on this processor; 0 if ONNX Runtime has no blocked formats here.

    No interface tells: it is where a conversion puts the first channel of an image's second row.
    """
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, BLOCK, 2, 1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC)], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(NCHWC, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        session = open_session(model.SerializeToString(), base_options())
    except Exception:  # the engine's errors have no common class: a processor without blocked formats
        return 0
    image = np.zeros((1, BLOCK, 2, 1), np.float32)
    image[0, 0, 1, 0] = 1
    return int(np.argmax(session.run(None, {"x": image})[0].ravel()))
