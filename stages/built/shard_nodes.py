"""Shards and joins as ONNX models: a split (`model.shards`) applied to the nodes and weights of a saved graph.

A shard's convolution weights are mostly a byte range of the weight file that all workers map, in which filters, or
groups, follow one another. A shard has copies of weights that are not contiguous there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from shisha_rt.model.graph import Tensor
from shisha_rt.model.shards.shard_graphs import join_graph
from shisha_rt.model.shards.shards import Crop, Excerpt, PartialSum, Shard, ShardOperator, SplitRun
from shisha_rt.model.subgraphs import reads
from shisha_rt.tensors import NUMPY_OF
from stages.built.clean_model import CleanModel, value_info

_SLICE_TAKES_INPUTS: Final = 10  # from this opset on
_CLIP_TAKES_INPUTS: Final = 11
_PARAMETERS: Final[Mapping[str, tuple[tuple[str, float], ...]]] = {
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "LeakyRelu": (("alpha", 0.01),),
    "Clip": (("min", -np.inf), ("max", np.inf)),
}
"""Parameters of activations that can follow a sum: names, in the order of a fused operator's list, and defaults."""
_Nodes: TypeAlias = list[onnx.NodeProto]
_Constants: TypeAlias = list[onnx.TensorProto]
_SINGLE: Final = ("activation_alpha", "activation_beta", "activation_gamma")


class ShardedModel:
    """Shards and joins of `whole`, the cleaned graph or an engine's. `block`: channels of blocked formats, or 0."""

    def __init__(self, whole: CleanModel, block: int = 0) -> None:
        self._whole = whole
        self._block = block
        self._nodes = whole.proto.graph.node
        opsets = {entry.domain or "ai.onnx": entry.version for entry in whole.proto.opset_import}
        self._opset = opsets.get("ai.onnx", 1)

    def shard(self, split: SplitRun, part: int) -> onnx.ModelProto:
        """Shard `part` as a model, from the tensors that it reads to those that it makes.

        It has one node for each operator of `shard_graph`.
        """
        shard = split.shards[part]
        constants = [self._excerpt(name, constant) for name, constant in shard.constants.items()]
        constants += [_integers(name, values) for name, values in shard.vectors.items()]
        constants += [numpy_helper.from_array(np.zeros(1, NUMPY_OF[kind]), name) for name, kind in shard.zeros.items()]
        nodes = []
        for step in shard.steps:
            if isinstance(step, Crop):
                cropped, bounds = self._blocked_crop(step, shard) if step.blocked else self._crop(step)
                nodes += cropped
                constants += bounds
            else:
                nodes.append(_changed(self._nodes[step.index], step))
        ends = [[shard.tensors[excerpt.name] for excerpt in excerpts] for excerpts in (shard.reads, shard.makes)]
        return self._model(nodes, constants, *ends)

    def join(self, split: SplitRun, behind: Sequence[int] = ()) -> onnx.ModelProto:
        """The join as a model, with the operators `behind` it that are in the same stage."""
        nodes, constants = ([], []) if split.join.sum is None else self._sum(split.join.sum)
        nodes += (self._nodes[index] for index in (*split.join.operators, *behind))
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        constants += (self._whole.constants[name] for name in read if name in self._whole.constants)
        graph = join_graph(self._whole.graph, split, behind)
        return self._model(nodes, constants, graph.inputs, graph.outputs)

    def _model(
        self, nodes: _Nodes, constants: _Constants, inputs: Iterable[Tensor], outputs: Iterable[Tensor]
    ) -> onnx.ModelProto:
        ends = [map(value_info, inputs), map(value_info, outputs)]
        graph = onnx.GraphProto(name="shard", node=nodes, initializer=constants, input=ends[0], output=ends[1])
        return self._whole.model_of(graph)

    def _sum(self, total: PartialSum) -> tuple[_Nodes, _Constants]:
        before = f"{total.tensor}/sum" if total.activation else total.tensor
        nodes = [helper.make_node("Sum", total.parts, [before], f"{total.tensor}/sum")]
        constants: _Constants = []
        if total.activation:
            datatype = NUMPY_OF[self._whole.graph.tensors[total.tensor].datatype]
            values: dict[str, Any] = _parameters(self._nodes[total.index], total.activation)
            if total.activation == "Clip" and self._opset >= _CLIP_TAKES_INPUTS:
                constants = [numpy_helper.from_array(np.array(v, datatype), f"{before}/{n}") for n, v in values.items()]
                values = {}
            inputs = [before, *(constant.name for constant in constants)]
            name = f"{total.tensor}/{total.activation}"
            nodes.append(helper.make_node(total.activation, inputs, [total.tensor], name, **values))
        return nodes, constants

    def _crop(self, step: Crop) -> tuple[_Nodes, _Constants]:
        name = f"{step.result}/crop"  # `step.result` may be a node's name
        bounds = {"starts": step.slice.first, "ends": step.slice.end, "axes": step.slice.axis}
        if self._opset < _SLICE_TAKES_INPUTS:
            lists: dict[str, Any] = {name: [value] for name, value in bounds.items()}
            return [helper.make_node("Slice", [step.source], [step.result], name, **lists)], []
        constants = [_integers(f"{step.result}/{bound}", [value]) for bound, value in bounds.items()]
        names = [constant.name for constant in constants]
        return [helper.make_node("Slice", [step.source, *names], [step.result], name)], constants

    def _blocked_crop(self, step: Crop, shard: Shard) -> tuple[_Nodes, _Constants]:
        """Crop rows of a tensor in memory as [N][C/b][H][W][b]: reshape it to that, crop, and reshape it back."""
        images, channels, *sizes = shard.tensors[step.source].shape
        unfolded = _integers(f"{step.unfolded}/shape", (images, channels // self._block, *sizes, self._block))
        folded = _integers(f"{step.result}/shape", shard.tensors[step.result].shape)
        cropped, bounds = self._crop(Crop(step.unfolded, step.slice, step.folded))
        nodes = [
            helper.make_node("Reshape", [step.source, unfolded.name], [step.unfolded], step.unfolded),
            *cropped,
            helper.make_node("Reshape", [step.folded, folded.name], [step.result], f"{step.result}/shape"),
        ]
        return nodes, [unfolded, folded, *bounds]

    def _excerpt(self, name: str, excerpt: Excerpt) -> onnx.TensorProto:
        """A constant or a slice of one: if possible, as a range of its file."""
        source = self._whole.constants[excerpt.name]
        if excerpt.slice is None:
            return source
        return _byte_range(source, name, excerpt) or numpy_helper.from_array(self._cut(excerpt), name)

    def _cut(self, excerpt: Excerpt) -> npt.NDArray[Any]:
        assert excerpt.slice is not None, "only slices are cut"
        axis, first, end = excerpt.slice.axis, excerpt.slice.first, excerpt.slice.end
        whole = self._whole.array(excerpt.name)
        if excerpt.blocked and axis == 1:
            # Blocks of input channels are the axis after the filters' blocks: [O/b][I/b][H][W][b][b].
            filters, channels = whole.shape[:2]
            blocks = whole.reshape(filters // self._block, channels // self._block, -1)
            kept = blocks[:, first // self._block : end // self._block]
            return kept.reshape(filters, end - first, *whole.shape[2:])
        return np.ascontiguousarray(whole.take(range(first, end), axis))


def _integers(name: str, values: Sequence[int]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _parameters(node: onnx.NodeProto, activation: str) -> dict[str, float]:
    """Parameters of the activation that is fused into a node, from one list or from an attribute for each."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    listed = [*attributes["activation_params"].floats] if "activation_params" in attributes else []
    listed = listed or [attributes[name].f for name in _SINGLE if name in attributes]
    known = _PARAMETERS.get(activation, ())
    return {name: listed[at] if at < len(listed) else default for at, (name, default) in enumerate(known)}


def _changed(node: onnx.NodeProto, step: ShardOperator) -> onnx.NodeProto:
    gone = {*step.without, *step.attributes}
    return onnx.NodeProto(
        name=node.name,
        op_type=step.kind or node.op_type,
        domain="" if step.kind else node.domain,
        input=step.inputs[: len(node.input)],  # any further inputs are those that its subgraphs read
        output=step.outputs,
        attribute=[
            *(attribute for attribute in node.attribute if attribute.name not in gone),
            *(helper.make_attribute(name, value) for name, value in step.attributes.items()),
        ],
    )


def _byte_range(source: onnx.TensorProto, name: str, excerpt: Excerpt) -> onnx.TensorProto | None:
    """The slice as external data; None if the constant is not external, or the slice is not contiguous."""
    assert excerpt.slice is not None, "a whole constant is as it is"
    if source.data_location != onnx.TensorProto.EXTERNAL or any(size > 1 for size in source.dims[: excerpt.slice.axis]):
        return None
    where = {entry.key: entry.value for entry in source.external_data}
    itemsize = helper.tensor_dtype_to_np_dtype(source.data_type).itemsize
    of_one = itemsize * int(np.prod(source.dims[excerpt.slice.axis + 1 :], dtype=np.int64))
    tensor_proto = onnx.TensorProto(
        name=name,
        data_type=source.data_type,
        dims=excerpt.slice.shape_of(tuple(source.dims)),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in (
        ("location", where["location"]),
        ("offset", str(int(where.get("offset", 0)) + of_one * excerpt.slice.first)),
        ("length", str(of_one * excerpt.slice.count)),
    ):
        tensor_proto.external_data.add(key=key, value=value)
    return tensor_proto
