"""Optimise a whole model once, offline, so that every stage cut from it afterwards is built in milliseconds.

Weights are reordered and prepacked into one file that all workers map: a stage has no private copy of them, and what
it computes is bit for bit what the whole optimised graph computes. The result depends on the processor and on the
engine's version: whoever keeps it must not use it on another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from shisha_rt.fabric import model_index
from shisha_rt.fabric.model_index import Crossing, ModelIndex, TensorSpec
from shisha_rt.graph.datatypes import NAME_OF, NUMPY_OF
from shisha_rt.graph.graph import Graph, Tensor
from shisha_rt.graph.layers import group_layers, layer_of_operator
from shisha_rt.graph.reader.onnx_reader import read_clean
from stages.engines.onnxruntime.mapping import Mapping, map_nodes
from stages.engines.onnxruntime.options import as_built_options, base_options

MODEL_FILE: Final = "optimised.onnx"
WEIGHTS_FILE: Final = "weights.bin"
_EMBED_BELOW_BYTES: Final = 1024  # shapes and axes must be in the graph itself: its type inference reads them


def compile_into(model_folder: Path, target: Path) -> None:
    """Optimise `model_folder`'s cleaned model into `target`: graph, weights, and the index of its cuts."""
    options = base_options(threads=1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(target / MODEL_FILE)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("session.optimized_model_external_initializers_min_size_in_bytes", str(_EMBED_BELOW_BYTES)),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(key, value)
    ort.InferenceSession(str(model_folder / "clean.onnx"), options, providers=["CPUExecutionProvider"])
    graph = read_clean(model_folder)
    optimised = onnx.load(str(target / MODEL_FILE), load_external_data=False)
    model_index.write_index(_index(graph, optimised, str(target)), target)


def _index(graph: Graph, optimised: onnx.ModelProto, folder: str) -> ModelIndex:
    layers = group_layers(graph)
    mapping = map_nodes(graph, layer_of_operator(layers), optimised.graph)
    specs = _specs(optimised, graph, folder)
    return ModelIndex(
        engine=f"onnxruntime {ort.__version__}",
        layer_count=len(layers),
        legal_cuts=mapping.legal_cuts,
        node_layers=mapping.node_layers,
        inputs=tuple(_spec(tensor) for tensor in graph.inputs),
        outputs=tuple(_spec(tensor) for tensor in graph.outputs),
        crossing=_crossing(optimised.graph, mapping, specs),
    )


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, tensor.datatype)


def _crossing(graph: onnx.GraphProto, mapping: Mapping, specs: dict[str, TensorSpec]) -> tuple[Crossing, ...]:
    """Tensors made on one side of some legal cut and read on the other, in the order in which they are made."""
    last_read: dict[str, int] = {}
    for node, layer in zip(graph.node, mapping.node_layers, strict=True):
        for name in node.input:
            last_read[name] = max(layer, last_read.get(name, layer))
    return tuple(
        Crossing(specs[name], layer, last_read[name])
        for node, layer in zip(graph.node, mapping.node_layers, strict=True)
        for name in node.output
        if any(layer <= cut < last_read.get(name, layer) for cut in mapping.legal_cuts)
    )


def _specs(optimised: onnx.ModelProto, graph: Graph, folder: str) -> dict[str, TensorSpec]:
    """Shape and datatype of every tensor, from one run of the whole graph with all of them as outputs.

    The optimiser records neither for the tensors that it makes, and a blocked format pads its channels.
    """
    exposed = onnx.ModelProto()
    exposed.CopyFrom(optimised)
    shown = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(
        onnx.ValueInfoProto(name=name)
        for node in exposed.graph.node
        for name in node.output
        if name and name not in shown
    )
    session = ort.InferenceSession(
        exposed.SerializeToString(), as_built_options(1, folder), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    results: list[npt.NDArray[Any]] = session.run(names, {t.name: _zeros(t) for t in graph.inputs})
    return {
        name: TensorSpec(name, tuple(result.shape), NAME_OF[result.dtype])
        for name, result in zip(names, results, strict=True)
    }


def _zeros(tensor: Tensor) -> npt.NDArray[Any]:
    return np.zeros(tensor.shape, NUMPY_OF[tensor.datatype])
