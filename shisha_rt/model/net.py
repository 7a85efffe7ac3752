"""A graph taken apart for rewriting: `model.clean` works on it, and puts a model together from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import onnx
from onnx import helper

from shisha_rt.model.open_shapes import SeenTensor, described_shapes
from shisha_rt.model.subgraphs import all_nodes, reads

MIN_IR_VERSION: Final = 8  # from version 4 on initialisers need not be inputs too; 8 is what opset 15 came with
_SMALL_ELEMENTS: Final = 128  # enough for any shapes, axes or pads whose values shape inference needs


@dataclass
class Net:
    """`inputs`: of run time. `known`: what the file says of other tensors; `seen`: what a run of the model has shown.

    `strict` is as in `open_shapes.described_shapes`.
    """

    nodes: list[onnx.NodeProto]
    constants: dict[str, onnx.TensorProto]
    inputs: list[onnx.ValueInfoProto]
    outputs: list[onnx.ValueInfoProto]
    known: list[onnx.ValueInfoProto]
    opsets: list[onnx.OperatorSetIdProto]
    seen: Mapping[str, SeenTensor] = field(default_factory=dict)
    strict: bool = True

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Net:
        graph = model.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        nodes = list(map(deepcopy, graph.node))
        inputs = [value for value in graph.input if value.name not in constants]
        return cls(nodes, constants, inputs, list(graph.output), list(graph.value_info), list(model.opset_import))

    @property
    def output_names(self) -> set[str]:
        return {value.name for value in self.outputs}

    def use_counts(self) -> Counter[str]:
        """How often each tensor is read; being a graph output counts as one more."""
        counts = Counter(name for node in self.nodes for name in reads(node) if name)
        counts.update(self.output_names)
        return counts

    def names(self) -> set[str]:
        """Names of all tensors that anything reads or makes, subgraphs included."""
        inner = {name for node in all_nodes(self.nodes) for name in (*node.input, *node.output)}
        return inner | self.taken_names()

    def taken_names(self) -> set[str]:
        """Names of all tensors except those of subgraphs."""
        made = (name for node in self.nodes for name in node.output)
        return {*self.constants, *made, *(value.name for value in self.inputs)}

    def light(self) -> Net:
        """The same graph, sharing its nodes, with large constants declared as inputs."""
        # Not ByteSize(): that serialises the tensor.
        large = {name: tensor for name, tensor in self.constants.items() if math.prod(tensor.dims) > _SMALL_ELEMENTS}
        return replace(
            self,
            constants={name: tensor for name, tensor in self.constants.items() if name not in large},
            inputs=[*self.inputs, *map(declared, large.values())],
        )

    def described(self) -> onnx.GraphProto:
        """The graph after shape inference, without its large constants."""
        return described_shapes(self.light().model(onnx.ModelProto()), self.seen, strict=self.strict)

    def model(self, like: onnx.ModelProto) -> onnx.ModelProto:
        """Put the model together, with the name of `like` and its IR version, at least `MIN_IR_VERSION`."""
        inner = {name for node in self.nodes for name in node.output} - self.output_names
        model = onnx.ModelProto(ir_version=max(like.ir_version, MIN_IR_VERSION), opset_import=self.opsets)
        model.graph.name = like.graph.name or "graph"
        model.graph.node.extend(self.nodes)
        model.graph.input.extend(self.inputs)
        model.graph.output.extend(self.outputs)
        model.graph.value_info.extend(value for value in self.known if value.name in inner)
        model.graph.initializer.extend(self.constants.values())
        return model


def declared(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def one_operator(
    node: onnx.NodeProto, inputs: Sequence[onnx.ValueInfoProto], opsets: Sequence[onnx.OperatorSetIdProto], **how: Any
) -> onnx.ModelProto:
    """A model of this node alone, whose outputs are given no types. `how`: fields of the model."""
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "one_operator", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, **how)


def attribute_of(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of a node's attribute; text is bytes."""
    return next(
        (helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name), default
    )
