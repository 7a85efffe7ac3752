"""The cleaned model of a place with devices: each segment is cut out of it as an ONNX model of its own.

Any run of operators may be cut out. Its tensors keep the cleaned graph's names and are in the plain format, as no
engine has changed them. Weights stay in the file beside the model, to which a cut refers; an engine that cannot follow
the reference gets them embedded, at the cost of copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
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
from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.external_data import weight_datatype
from shisha_rt.model.reader.onnx_reader import load_clean
from shisha_rt.model.spans import ends_of, weight_bytes
from shisha_rt.model.subgraphs import reads
from shisha_rt.placement.segments import Segment
from shisha_rt.tensors import NUMPY_OF, Tensor, is_packed, size_bytes
from stages.engines.session import Ends


@dataclass(frozen=True, eq=False)
class CleanModel:
    """A graph and its ONNX model, usually the cleaned model that `Model.save` wrote.

    `proto`: the nodes and weights; large weights are in files of `folder`, as are the scales for int8, if any
    (`scales_file`). `partial`: tensors that are partial sums, to be added to other shards'.
    """

    folder: Path
    graph: Graph
    proto: onnx.ModelProto
    scales_file: str = field(default_factory=scales_file)
    partial: frozenset[str] = frozenset()

    @classmethod
    def read(cls, folder: Path, scales: str | None = None) -> CleanModel:
        """The cleaned model in a folder. `scales`: the name of a file of scales other than the usual one."""
        proto, graph = load_clean(folder)
        return cls(folder, graph, proto, scales or scales_file())

    @cached_property
    def constants(self) -> Mapping[str, onnx.TensorProto]:
        return {constant.name: constant for constant in self.proto.graph.initializer}

    def of_frames(self, count: int) -> CleanModel:
        """The model for batches of `count` frames. The operators must keep frames apart (`model/batches.py`)."""
        followed = follow_batch(self.graph, integers_of(self.proto.graph))
        proto = deepcopy(self.proto)
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
        return replace(self, graph=graph, proto=proto)

    @cached_property
    def scales(self) -> Mapping[str, int]:
        """Exponents of two for int8, by tensor; empty if none have been found for this model."""
        return read_scales(self.folder, self.scales_file) or {}

    def cut(self, segment: Segment) -> onnx.ModelProto:
        """The segment as a model; large weights are external data in `folder`.

        An input or output whose shape depends on the data has no shape.
        """
        nodes = self.proto.graph.node[segment.first : segment.last + 1]
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        graph = onnx.GraphProto(
            name="segment",
            node=nodes,
            initializer=[self.constants[name] for name in read if name in self.constants],
            input=[value_info(self.graph.tensors[name]) for name in segment.inputs],
            output=[value_info(self.graph.tensors[name]) for name in segment.outputs],
        )
        return self.model_of(graph)

    def ends(self, segment: Segment) -> Ends:
        inputs, outputs = (
            tuple(self.graph.tensors[name] for name in names) for names in (segment.inputs, segment.outputs)
        )
        return Ends(inputs, outputs)

    def graph_of(self, segment: Segment) -> Graph:
        operators = self.graph.operators[segment.first : segment.last + 1]
        return self.graph.part(operators, segment.inputs, segment.outputs)

    def part(self, operators: Sequence[int]) -> CleanModel:
        """Some operators, in ascending order, as a model of their own; they need not be adjacent."""
        ends = ends_of(self.graph, [(operator, operator) for operator in operators])
        graph = self.graph.part([self.graph.operators[operator] for operator in operators], *ends)
        nodes = [self.proto.graph.node[operator] for operator in operators]
        weights = [self.constants[name] for name in graph.constants]
        return replace(self, graph=graph, proto=self.model_of(onnx.GraphProto(node=nodes, initializer=weights)))

    def model_of(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        """`graph` as a model of the same IR and opset versions."""
        return onnx.ModelProto(ir_version=self.proto.ir_version, opset_import=self.proto.opset_import, graph=graph)

    def with_weights(self, cut: onnx.ModelProto) -> onnx.ModelProto:
        """The cut with all weights embedded. Serialising it fails beyond 2 GiB, protobuf's limit."""
        embedded = deepcopy(cut)
        for constant in embedded.graph.initializer:
            if constant.data_location == onnx.TensorProto.EXTERNAL:
                constant.CopyFrom(numpy_helper.from_array(self.array(constant.name), constant.name))
        return embedded

    def weight_bytes(self, segment: Segment) -> int:
        """Bytes of all constants that the segment reads, each counted once."""
        return weight_bytes(self.graph, segment.first, segment.last)

    def array(self, name: str) -> npt.NDArray[Any]:
        """A constant's values, read-only. External values are mapped, as `onnx` would read their whole file."""
        constant = self.constants[name]
        if constant.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(constant)
        where = {entry.key: entry.value for entry in constant.external_data}
        dtype = helper.tensor_dtype_to_np_dtype(constant.data_type)
        file, offset, dims = self.folder / where["location"], int(where.get("offset", 0)), tuple(constant.dims)
        if is_packed(datatype := weight_datatype(constant)):
            packed = np.memmap(file, np.uint8, "r", offset, size_bytes(datatype, dims)).tobytes()
            return numpy_helper.to_array(onnx.TensorProto(data_type=constant.data_type, dims=dims, raw_data=packed))
        return np.memmap(file, dtype, "r", offset, dims)


def value_info(tensor: Tensor, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    """The tensor's description, with `shape` or else its own; without any if its own depends on the data: an engine
    would warn of each tensor whose shape differs from the description.
    """
    element = helper.np_dtype_to_tensor_dtype(NUMPY_OF[tensor.datatype])
    own_shape = None if tensor.open_axes else tensor.shape
    return helper.make_tensor_value_info(tensor.name, element, shape or own_shape)


def _of_frames(tensor: Tensor, axis: int | None, count: int) -> Tensor:
    if axis is None or axis >= len(tensor.shape):
        return tensor
    shape = (size * count if position == axis else size for position, size in enumerate(tensor.shape))
    return structs.replace(tensor, shape=tuple(shape))
