"""Shards and joins run for real, and put together with numpy as the arena would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from shisha_rt.model.graph import Graph
from shisha_rt.model.shards.rewrite import split_run
from shisha_rt.model.shards.shard_graphs import join_graph, shard_graph
from shisha_rt.model.shards.shards import Excerpt, Join, SplitRun
from shisha_rt.model.split import Axis
from shisha_rt.tensors import NAME_OF, Tensor
from stages.built.clean_model import CleanModel
from stages.built.shard_nodes import ShardedModel
from stages.engines.onnxruntime.optimised_graph import block_size, optimised_graph
from stages.engines.onnxruntime.options import as_built_options, base_options

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


class Whole:
    """A saved model as it stands, in `folder`: all of its tensors on one input, and its graph."""

    def __init__(self, model: onnx.ModelProto, folder: Path, graph: Graph | None = None, seed: int = 0) -> None:
        self.model = model
        self.folder = folder
        self.arrays = _all_tensors(model, folder, seed)
        specs = {name: Tensor(name, tuple(array.shape), NAME_OF[array.dtype]) for name, array in self.arrays.items()}
        self.graph = graph or optimised_graph(model, specs)
        self.sharded = ShardedModel(CleanModel(folder, self.graph, model), block_size())

    def split(
        self, operators: Sequence[int], axis: Axis, shares: Sequence[int], given: Arrays | None = None
    ) -> tuple[SplitRun, Arrays]:
        """The split, and what its shards and its join make of `given` tensors, or of the whole network's."""
        split = split_run(self.graph, operators, axis, shares)
        given = self.arrays if given is None else given
        rooms: Arrays = {}
        for part, shard in enumerate(split.shards):
            described = shard_graph(self.graph, split, part)
            feeds = {excerpt.name: self._cut(given[excerpt.name], excerpt) for excerpt in shard.reads}
            model = self.sharded.shard(split, part)
            assert _kinds(model) == [operator.op_type for operator in described.operators]
            made = _run(model, self.folder, feeds)
            for excerpt in shard.makes:
                value = made[excerpt.name]
                assert value.shape == described.tensors[excerpt.name].shape
                if excerpt.slice is None:
                    rooms[excerpt.name] = value
                    continue
                room = rooms.setdefault(excerpt.name, np.full_like(self.arrays[excerpt.name], np.nan))
                self._put(room, value, excerpt)
        if not split.join.is_empty:
            described = join_graph(self.graph, split)
            feeds = {
                tensor.name: rooms[tensor.name] if tensor.name in rooms else given[tensor.name]
                for tensor in described.inputs
            }
            model = self.sharded.join(split)
            assert _kinds(model) == [operator.op_type for operator in described.operators]
            rooms |= _run(model, self.folder, feeds)
        return split, rooms

    def unsplit(self, operators: Sequence[int], given: Arrays) -> Arrays:
        """What operators make as they are."""
        everything = SplitRun((), (), Join(None, tuple(operators)))
        return _run(self.sharded.join(everything), self.folder, given)

    def _cut(self, whole: Array, excerpt: Excerpt) -> Array:
        if excerpt.slice is None:
            return whole
        return np.ascontiguousarray(self._view(whole, excerpt)).reshape(excerpt.slice.shape_of(whole.shape))

    def _put(self, room: Array, value: Array, excerpt: Excerpt) -> None:
        assert excerpt.slice is not None
        view = self._view(room, excerpt)
        view[...] = value.reshape(view.shape)

    def _view(self, whole: Array, excerpt: Excerpt) -> Array:
        """Rows of a blocked tensor lie in each block of channels: [N][C/b][H][W][b]."""
        assert excerpt.slice is not None
        axis = excerpt.slice.axis
        if excerpt.blocked and axis > 1:
            batch, channels, *sizes = whole.shape
            whole = whole.reshape(batch, channels // block_size(), *sizes, block_size())
        return whole[(slice(None),) * axis + (slice(excerpt.slice.first, excerpt.slice.end),)]


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def optimised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """As ONNX Runtime leaves it, its weights in a file of `folder`."""
    path = folder / "written.onnx"
    onnx.save(model, str(path))
    return optimised_file(path, folder)


def optimised_file(path: Path, folder: Path) -> onnx.ModelProto:
    """The same of a model in a file."""
    options = base_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "64")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(str(folder / "optimised.onnx"), load_external_data=False)


def _run(model: onnx.ModelProto, folder: Path, feeds: Mapping[str, Array]) -> Arrays:
    session = ort.InferenceSession(
        model.SerializeToString(), as_built_options(str(folder)), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, given), strict=True))


def _all_tensors(model: onnx.ModelProto, folder: Path, seed: int) -> Arrays:
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    shown = {value.name for value in exposed.graph.output}
    for node in exposed.graph.node:
        exposed.graph.output.extend(onnx.ValueInfoProto(name=n) for n in node.output if n and n not in shown)
    rng = np.random.default_rng(seed)
    constants = {constant.name for constant in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name not in constants:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
    return feeds | _run(exposed, folder, feeds)
