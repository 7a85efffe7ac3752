"""Optimise a whole model once, offline, so that every stage cut from it afterwards is built in milliseconds.

Weights are reordered and prepacked into one file that all workers map: a stage has no private copy of them, and it
computes bit for bit what the whole optimised graph computes. The result depends on the processor and on the engine's
version, and must not be used with others.

The engine may crash on a model in that form (`align` mends the known causes), so there are other forms (`Form` in
`model/index.py`): the optimised graph with weights that each session packs by itself ("external"), and the cleaned
graph, of which each session optimises its own cut ("as_is") or runs it as it is ("unoptimised"). Only a run shows which
forms the engine can run.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from msgspec import structs

from shisha_rt.model.batches import follow_batch
from shisha_rt.model.compared import compared_values
from shisha_rt.model.free_batch import free_batch, integers_of
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import Form
from shisha_rt.model.indexing import cut_index, with_batches, with_splits
from shisha_rt.model.layers import group_layers, layer_of_operator
from shisha_rt.model.open_shapes import follows_values
from shisha_rt.model.reader import index_file
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean
from shisha_rt.model.subgraphs import make_constant_outputs, reads
from shisha_rt.tensors import NAME_OF, Tensor, of_no_size
from stages.engines.onnxruntime.align import align_weights
from stages.engines.onnxruntime.apart import take_apart, without_sizes
from stages.engines.onnxruntime.input_formats import convert_in_each_layer
from stages.engines.onnxruntime.mapping import map_nodes
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE, optimised_graph, write_tensors
from stages.engines.onnxruntime.options import as_built_options, open_session, optimising_options
from stages.engines.onnxruntime.parts import write_parts
from stages.noise import run_on_something

_ENGINE: Final = f"onnxruntime {ort.__version__}"
WEIGHTS_FILE: Final = "weights.bin"
_EMBED_BELOW_BYTES: Final = 1024  # shapes and axes must be in the graph itself: its type inference reads them
_AS_READ: Final[tuple[Form, ...]] = ("as_is", "unoptimised")
"""The forms in which stages are cut from the cleaned graph."""


def compile_into(model_folder: Path, target: Path, form: Form) -> None:
    """Write the cleaned model of `model_folder` in `form` to `target`: graph, weights, parts, index of its cuts."""
    graph = read_clean(model_folder)
    layers = group_layers(graph)
    needed = _needed_values(model_folder / CLEAN_FILE, graph)
    inputs = tuple(structs.replace(tensor, made_up=needed.get(tensor.name, 0)) for tensor in graph.inputs)
    cut_graph, node_layers = graph, layer_of_operator(layers)
    if form in _AS_READ:
        _link(model_folder, target)
        optimised = onnx.load(str(target / MODEL_FILE), load_external_data=False)
    else:
        optimised = _optimise(model_folder, target, form)
        node_layers = convert_in_each_layer(graph, optimised.graph, map_nodes(graph, layers, optimised.graph))
        (target / MODEL_FILE).write_bytes(optimised.SerializeToString())
        specs = {tensor.name: tensor for tensor in inputs} | _specs(optimised, graph, inputs, str(target))
        cut_graph = replace(optimised_graph(optimised, specs), inputs=inputs, outputs=graph.outputs)
    write_tensors(cut_graph.tensors.values(), target)
    index = structs.replace(cut_index(cut_graph, node_layers, len(layers), _ENGINE, form), inputs=inputs)
    followed = follow_batch(cut_graph, integers_of(optimised.graph))
    index = with_batches(with_splits(index, cut_graph, layers), cut_graph, followed)
    index_file.write_index(index, target)
    free_batch(optimised.graph, followed.reshaped, {name: tensor.shape for name, tensor in cut_graph.tensors.items()})
    write_parts(take_apart(optimised, index), target)


def _needed_values(file: Path, graph: Graph) -> dict[str, int]:
    """Values that inputs need for the model to run; empty if it runs on the usual made-up values."""
    compared = compared_values(onnx.load(str(file), load_external_data=False).graph)
    if not compared:
        return {}
    session = open_session(str(file), as_built_options(str(file.parent)))
    try:
        run_on_something(lambda feeds: session.run(None, feeds), graph.inputs)
    except Exception:  # whatever the engine raises
        return compared
    return {}


def _link(model_folder: Path, target: Path) -> None:
    """Link or copy the cleaned model into `target`, its weights under the name by which it refers to them."""
    weights = Path(CLEAN_FILE).with_suffix(".bin").name
    for name, link_name in ((CLEAN_FILE, MODEL_FILE), (weights, weights)):
        file, there = model_folder / name, target / link_name
        try:
            there.hardlink_to(file)
        except OSError:  # some file systems have no hard links
            shutil.copyfile(file, there)


def _optimise(model_folder: Path, target: Path, form: Form) -> onnx.ModelProto:
    """Have the engine write its own form of the model."""
    options = optimising_options(str(model_folder))
    options.optimized_model_filepath = str(target / MODEL_FILE)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("session.optimized_model_external_initializers_min_size_in_bytes", str(_EMBED_BELOW_BYTES)),
        ("session.save_external_prepacked_constant_initializers", "1" if form == "prepacked" else "0"),
    ):
        options.add_session_config_entry(key, value)
    try:
        open_session(str(model_folder / CLEAN_FILE), options)
    except Exception:  # whatever the engine raises
        unsized = without_sizes(onnx.load(str(model_folder / CLEAN_FILE), load_external_data=False))
        if unsized is None:
            raise
        open_session(unsized.SerializeToString(), options)
    if form == "prepacked" and (target / WEIGHTS_FILE).exists():
        align_weights(target / MODEL_FILE, target / WEIGHTS_FILE)
    optimised = onnx.load(str(target / MODEL_FILE), load_external_data=False)
    make_constant_outputs(optimised.graph)
    return optimised


def _specs(optimised: onnx.ModelProto, graph: Graph, inputs: Sequence[Tensor], folder: str) -> dict[str, Tensor]:
    """The specification of every tensor, from one run of the whole graph with all tensors as outputs.

    The optimiser records neither shape nor datatype for the tensors that it makes, and a blocked format pads its
    channels.
    """
    exposed = onnx.ModelProto()
    exposed.CopyFrom(optimised)
    outputs = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(
        onnx.ValueInfoProto(name=name)
        for node in exposed.graph.node
        for name in node.output
        if name and name not in outputs
    )
    session = open_session(exposed.SerializeToString(), as_built_options(folder))
    names = [value.name for value in session.get_outputs()]
    results: list[npt.NDArray[Any]] = run_on_something(lambda feeds: session.run(names, feeds), inputs)
    open_axes = _open_axes(optimised.graph, graph)
    return {
        name: Tensor(name, tuple(result.shape), NAME_OF[result.dtype], open_axes.get(name, ()))
        if isinstance(result, np.ndarray)
        else of_no_size(name)
        for name, result in zip(names, results, strict=True)
    }


def _open_axes(optimised: onnx.GraphProto, graph: Graph) -> dict[str, tuple[int, ...]]:
    """Open axes of the tensors whose size depends on the data.

    A tensor that the optimiser has made may be open along any axis; it is marked as open along axis 0.
    """
    axes = {tensor.name: tensor.open_axes for tensor in graph.tensors.values() if tensor.open_axes}
    constants = {weight.name for weight in optimised.initializer}
    for node in optimised.node:
        if follows_values(node, constants) or not axes.keys().isdisjoint(reads(node)):
            axes |= {name: (0,) for name in node.output if name not in graph.tensors}
    return axes
