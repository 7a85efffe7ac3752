"""The cleaned model of a place with devices: each segment is cut out of it as an ONNX model of its own.

Any run of operators may be cut out. Its tensors keep the cleaned graph's names and are in the plain format, as no
engine has changed them. Weights stay in the file beside the model, to which a cut refers; an engine that cannot follow
the reference gets them embedded, at the cost of copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from msgspec import structs
from onnx import helper, numpy_helper

from shisha_rt.messages.scales import read_scales, scales_file
from shisha_rt.model.batches import follow_batch
from shisha_rt.model.free_batch import free_batch, integers_of
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean
from shisha_rt.model.spans import ends_of
from shisha_rt.model.subgraphs import reads
from shisha_rt.placement.segments import Segment
from shisha_rt.tensors import NUMPY_OF


class CleanModel:
    """A cleaned model as `Model.save` left it. Its weights are in `folder`, and so are its `scales`, if it has any.

    `partial`: tensors that are partial sums, to be added to other shards'.
    """

    partial: frozenset[str] = frozenset()

    def __init__(self, folder: Path, scales: str = scales_file()) -> None:
        self.folder = folder
        self._scales_file = scales
        self._take(read_clean(folder), onnx.load(folder / CLEAN_FILE, load_external_data=False))

    @classmethod
    def of(cls, folder: Path, graph: Graph, proto: onnx.ModelProto) -> CleanModel:
        """The model of any graph, such as an engine's own; `proto`: its nodes and weights, large ones in `folder`."""
        loaded = cls.__new__(cls)
        loaded.folder, loaded._scales_file = folder, scales_file()
        loaded._take(graph, proto)
        return loaded

    def changed(self, graph: Graph, proto: onnx.ModelProto, partial: Iterable[str] = ()) -> CleanModel:
        """The model of another graph over the same files."""
        copied = copy(self)
        copied.partial = frozenset(partial)
        copied._take(graph, proto)
        return copied

    def of_frames(self, count: int) -> CleanModel:
        """The same for batches of `count` frames; right only if the operators keep frames apart (`model.batches`)."""
        followed = follow_batch(self.graph, integers_of(self.proto.graph))
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        shapes = {name: tensor.shape for name, tensor in self.graph.tensors.items()}
        free_batch(proto.graph, followed.reshaped, shapes)
        tensors = {
            name: _of_frames(tensor, followed.axes.get(name), count) for name, tensor in self.graph.tensors.items()
        }
        operators = tuple(
            replace(operator, inputs=reads(node))
            for operator, node in zip(self.graph.operators, proto.graph.node, strict=True)
        )
        added = {c.name: Tensor(c.name, tuple(c.dims), "INT64") for c in proto.graph.initializer}
        graph = replace(
            self.graph,
            operators=operators,
            inputs=tuple(tensors[tensor.name] for tensor in self.graph.inputs),
            outputs=tuple(tensors[tensor.name] for tensor in self.graph.outputs),
            tensors=tensors,
            constants={**added, **self.graph.constants},
        )
        return self.changed(graph, proto)

    def _take(self, graph: Graph, model: onnx.ModelProto) -> None:
        self.graph, self.proto = graph, model
        self._constants = {constant.name: constant for constant in model.graph.initializer}

    @cached_property
    def scales(self) -> Mapping[str, int]:
        """Exponents of two for int8, by tensor; empty if none have been found for this model."""
        return read_scales(self.folder, self._scales_file) or {}

    def cut(self, segment: Segment) -> onnx.ModelProto:
        """The segment's operators, from its inputs to its outputs; large weights are external data in `folder`.

        A tensor whose shape depends on the data has no shape there.
        """
        nodes = self.proto.graph.node[segment.first : segment.last + 1]
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        graph = onnx.GraphProto(
            name="segment",
            node=nodes,
            initializer=[self._constants[name] for name in read if name in self._constants],
            input=self._described(segment.inputs),
            output=self._described(segment.outputs),
        )
        return onnx.ModelProto(ir_version=self.proto.ir_version, opset_import=self.proto.opset_import, graph=graph)

    def graph_of(self, segment: Segment) -> Graph:
        """The segment's operators as a graph of their own."""
        return self._graph_of(self._operators(segment), segment.inputs, segment.outputs)

    def part(self, operators: Sequence[int]) -> CleanModel:
        """Some operators, in ascending order, as a model of their own; they need not be adjacent."""
        copied = copy(self)
        run_operators = [self.graph.operators[operator] for operator in operators]
        copied.graph = self._graph_of(
            run_operators, *ends_of(self.graph, [(operator, operator) for operator in operators])
        )
        copied.proto = onnx.ModelProto(
            ir_version=self.proto.ir_version,
            opset_import=self.proto.opset_import,
            graph=onnx.GraphProto(node=[self.proto.graph.node[operator] for operator in operators]),
        )
        return copied

    def with_weights(self, cut: onnx.ModelProto) -> onnx.ModelProto:
        """The cut with all weights embedded. Serialising it fails beyond 2 GiB, protobuf's limit."""
        model_proto = onnx.ModelProto()
        model_proto.CopyFrom(cut)
        for constant in model_proto.graph.initializer:
            if constant.data_location == onnx.TensorProto.EXTERNAL:
                constant.CopyFrom(numpy_helper.from_array(self.array(constant.name), constant.name))
        return model_proto

    def weight_bytes(self, segment: Segment) -> int:
        """Bytes of all constants that the segment reads, each counted once."""
        return sum(self.graph.constants[name].size_bytes for name in self._weights(self._operators(segment)))

    def array(self, name: str) -> npt.NDArray[Any]:
        """A constant's values, read-only; mapped from the file where they are external."""
        constant = self._constants[name]
        if constant.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(constant)
        where = {entry.key: entry.value for entry in constant.external_data}
        dtype = NUMPY_OF[self.graph.constants[name].datatype]
        return np.memmap(self.folder / where["location"], dtype, "r", int(where["offset"]), tuple(constant.dims))

    def _operators(self, segment: Segment) -> tuple[Operator, ...]:
        return self.graph.operators[segment.first : segment.last + 1]

    def _graph_of(self, operators: Sequence[Operator], inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        made = (name for operator in operators for name in operator.outputs if name)
        return Graph(
            name=self.graph.name,
            operators=tuple(operators),
            inputs=tuple(self.graph.tensors[name] for name in inputs),
            outputs=tuple(self.graph.tensors[name] for name in outputs),
            tensors={name: self.graph.tensors[name] for name in (*inputs, *made)},
            constants={name: self.graph.constants[name] for name in self._weights(operators)},
        )

    def _weights(self, operators: Iterable[Operator]) -> list[str]:
        """Names of the constants that the operators read, in the order of reading."""
        read = dict.fromkeys(name for operator in operators for name in operator.inputs)
        return [name for name in read if name in self._constants]

    def _described(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        tensors = (self.graph.tensors[name] for name in names)
        return [
            helper.make_tensor_value_info(
                tensor.name,
                helper.np_dtype_to_tensor_dtype(NUMPY_OF[tensor.datatype]),
                None if tensor.open_axes else tensor.shape,
            )
            for tensor in tensors
        ]


def _of_frames(tensor: Tensor, axis: int | None, count: int) -> Tensor:
    if axis is None or axis >= len(tensor.shape):
        return tensor
    shape = (size * count if position == axis else size for position, size in enumerate(tensor.shape))
    return structs.replace(tensor, shape=tuple(shape))
