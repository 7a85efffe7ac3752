"""Rewrite an ONNX model into the one form that everything else works on, without changing what it computes.

What depends on no input is computed once, here; BatchNormalization is folded into the convolution before it; operators
that do nothing at inference are removed, and what is stated for one frame alone is rewritten (`model.one_frame`). Each
operator that remains must run for every frame, and has a unique name. Graph inputs and outputs keep their names.
Operators are in the order of their layers (`model.layers`), and within a layer in the file's order. So a layer is a run
of operators, and the order is still topological.

The trade-offs: a constant resized image, and others that ONNX's reference computes otherwise than ONNX Runtime, stay
operators, as most do on infinities, nan and -0.0; int8 models keep QuantizeLinear and DequantizeLinear on constants,
although these could be folded, because engines recognise integer kernels by them; and each reader has a
DequantizeLinear of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from shisha_rt.model.layers import layer_numbers
from shisha_rt.model.net import Net, attribute_of, declared, one_operator
from shisha_rt.model.one_frame import free_frames, remove_zero_states
from shisha_rt.model.open_shapes import NOTHING_SEEN, SeenTensor, all_values, static_shape
from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.subgraphs import (
    branch_taken,
    name_apart,
    new_name,
    reads,
    rename,
    rename_reads,
    subgraphs,
)

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_FOLD_LIMIT_ELEMENTS: Final = 1 << 28  # 1 GiB of FP32; a few bytes of Expand or ConstantOfShape can stand for terabytes
_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
# ONNX's reference, which folds, computes some cases of these otherwise than ONNX Runtime, which would run the file.
_COMPUTED_OTHERWISE: Final = frozenset(
    (
        *("AffineGrid", "Attention", "AveragePool", "BatchNormalization", "ConvTranspose", "GRU", "GridSample"),
        *("Hardmax", "LRN", "LSTM", "LogSoftmax", "LpNormalization", "LpPool", "MaxPool", "MaxUnpool", "RNN"),
        *("ReduceSumSquare", "Resize", "RoiAlign", "Softmax", "Upsample"),
    )
)
# On infinities, nan and -0.0 both agree only in what moves values, or computes as IEEE 754 says.
_ALIKE_ON_ANY_VALUE: Final = frozenset(
    (
        *("Abs", "Add", "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Div"),
        *("Equal", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual"),
        *("Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Mul", "Neg", "Pad", "Reshape", "Slice"),
        *("SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
# Dropout is random in training mode, and is removed otherwise.
_NEVER_FOLDED: Final = _RANDOM | _COMPUTED_OTHERWISE | {"Dropout", "QuantizeLinear", "DequantizeLinear"}


def clean(
    model: onnx.ModelProto, seen: Mapping[str, SeenTensor] = NOTHING_SEEN, *, strict: bool = True
) -> onnx.ModelProto:
    """The cleaned model, with a shape for every tensor whose shape is static or was seen. `model` is not changed.

    `model` must contain its weights, have fixed input dimensions and opset 7 or newer, and have passed the ONNX
    checker. `seen` and `strict` are as in `open_shapes.described_shapes`, which raises if shapes contradict each other.
    """
    net = replace(Net.of(model), seen=seen, strict=strict)
    name_apart(net.nodes, net.taken_names())
    _fold_constants(net)
    _remove_pass_through(net)
    remove_zero_states(net)
    free_frames(net)
    _fold_batch_normalization(net)
    _remove_dead(net)
    _dequantise_for_each_reader(net)
    _order_by_layer(net)
    _name_operators(net)
    described = net.described()
    net.known, net.outputs = list(described.value_info), list(described.output)
    return net.model(model)


def fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Only the first step of `clean`: turn constants, and what follows from them alone, into initialisers."""
    net = Net.of(model)
    name_apart(net.nodes, net.taken_names())
    _fold_constants(net)
    _remove_dead(net)
    return net.model(model)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with large initialisers declared as inputs: small enough for the ONNX checker and shape inference.

    Both serialise the model, which fails beyond 2 GiB and is slow well below.
    """
    return Net.of(model).light().model(model)


def _fold_constants(net: Net) -> None:
    """Fold constants until nothing changes: folded shapes and conditions may make later ones static."""
    while True:
        values = all_values(net.described())
        shapes = {value.name: shape for value in values if (shape := static_shape(value)) is not None}
        before = len(net.nodes)
        net.nodes = [node for node in net.nodes if not _fold(node, net, shapes)]
        is_smaller = len(net.nodes) < before
        took_branch = _take_branches(net)
        may_go_on = took_branch or any(node.op_type in ("Shape", "Size") for node in net.nodes)
        if not may_go_on or not (is_smaller or took_branch):
            return


def _take_branches(net: Net) -> bool:
    """Replace each If whose condition is a constant by the branch that it takes; return whether there was any."""
    left, taken = [], False
    for node in net.nodes:
        if node.op_type != "If" or node.domain or node.input[0] not in net.constants:
            left.append(node)
            continue
        branch = branch_taken(node, net.constants[node.input[0]])
        left += branch.node
        net.constants |= {weight.name: weight for weight in branch.initializer}
        taken = True
    net.nodes = left
    return taken


def _fold(node: onnx.NodeProto, net: Net, shapes: Mapping[str, Shape]) -> bool:
    """Turn the node's outputs into constants if they are known; return whether. Nodes that make graph outputs stay."""
    if node.domain or node.op_type in _NEVER_FOLDED or not net.output_names.isdisjoint(node.output):
        return False
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        values: Sequence[Array] | None = [_shape_or_size(node, shapes[node.input[0]])]
    elif not any(subgraphs(node)) and all(name in net.constants for name in node.input if name):
        small = all(math.prod(shapes.get(name, ())) <= _FOLD_LIMIT_ELEMENTS for name in node.output)
        values = _evaluate(node, net) if small or node.op_type == "Constant" else None
    else:
        return False
    if values is None:
        return False
    net.constants |= {
        name: numpy_helper.from_array(value, name) for name, value in zip(node.output, values, strict=True) if name
    }
    return True


def _shape_or_size(node: onnx.NodeProto, shape: Shape) -> Array:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    # ONNX clamps `start` and `end` just as a Python slice does.
    return np.array(shape[attribute_of(node, "start", 0) : attribute_of(node, "end", len(shape))], np.int64)


def _evaluate(node: onnx.NodeProto, net: Net) -> list[Array] | None:
    """The node's outputs from constant inputs; None if onnx may compute them otherwise, or if they are no tensors."""
    names = [name for name in dict.fromkeys(node.input) if name]
    inputs = {name: numpy_helper.to_array(net.constants[name]) for name in names}
    model = one_operator(node, [declared(net.constants[name]) for name in names], net.opsets)
    from onnx.reference import ReferenceEvaluator  # slow to import, and most models do not need it

    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(model).run(None, inputs)
    except Exception:  # the evaluator raises whatever its operators do; left alone, the node runs in the engine
        return None
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):  # a sequence is a list
        return None
    if node.op_type not in _ALIKE_ON_ANY_VALUE and any(map(_has_odd_values, (*inputs.values(), *values))):
        return None
    replaced = iter(values)
    return [np.asarray(next(replaced)) if name else np.empty(0) for name in node.output]


def _has_odd_values(array: Array) -> bool:
    """Whether there is an infinity, nan or -0.0 among floats."""
    is_float = array.dtype.kind in "fV"  # bfloat16 is of kind V
    return is_float and not bool((np.isfinite(array) & ((array != 0) | ~np.signbit(array))).all())


def _remove_pass_through(net: Net) -> None:
    """Remove Identity, and Dropout in inference mode: their readers read their input instead."""
    uses, outputs = net.use_counts(), net.output_names
    kept = outputs | {value.name for value in net.inputs} | net.constants.keys()
    names: dict[str, str] = {}
    left = []
    for node in net.nodes:
        source = _followed(names, node.input[0]) if node.input else ""
        if not source or not _passes_through(node, net, uses) or (node.output[0] in outputs and source in kept):
            left.append(node)
        elif node.output[0] in outputs:
            names[source] = node.output[0]  # outputs keep their names: the producer's output is renamed
        else:
            names[node.output[0]] = source
    names = {name: _followed(names, name) for name in names}
    for node in left:
        rename(node, names)
    net.nodes = left


def _followed(names: dict[str, str], name: str) -> str:
    """The end of a chain of names; each name on the way is mapped straight to the end."""
    passed = []
    while name in names:
        passed.append(name)
        name = names[name]
    names.update(dict.fromkeys(passed, name))
    return name


def _passes_through(node: onnx.NodeProto, net: Net, uses: Mapping[str, int]) -> bool:
    if node.domain or any(uses[name] for name in node.output[1:]):
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type != "Dropout":
        return False
    training = node.input[2] if len(node.input) > 2 else ""
    return not training or (training in net.constants and not numpy_helper.to_array(net.constants[training]).any())


def _fold_batch_normalization(net: Net) -> None:
    """Fold BatchNormalization into a Conv or ConvTranspose whose output no other operator reads."""
    uses = net.use_counts()
    producers = {name: node for node in net.nodes for name in node.output if name}
    taken = net.names()
    left = []
    for node in net.nodes:
        is_norm = node.op_type == "BatchNormalization" and not node.domain
        conv = producers.get(node.input[0]) if is_norm else None
        if conv is not None and uses[node.input[0]] == 1 and _can_take(conv, node, net):
            _fold_into(conv, node, net, taken)
            producers[node.output[0]] = conv
        else:
            left.append(node)
    net.nodes = left


def _can_take(conv: onnx.NodeProto, norm: onnx.NodeProto, net: Net) -> bool:
    if conv.op_type not in ("Conv", "ConvTranspose") or conv.domain:
        return False
    if attribute_of(norm, "training_mode", 0) or not attribute_of(norm, "spatial", 1) or any(norm.output[1:]):
        return False
    if not all(name in net.constants for name in (*conv.input[1:], *norm.input[1:]) if name):
        return False
    weight_dims = net.constants[conv.input[1]].dims
    if len(weight_dims) < 3 or len(norm.input) < 5:
        return False
    filters = weight_dims[0] if conv.op_type == "Conv" else weight_dims[1] * attribute_of(conv, "group", 1)
    return all(list(net.constants[name].dims) == [filters] for name in (*conv.input[2:], *norm.input[1:5]) if name)


def _fold_into(conv: onnx.NodeProto, norm: onnx.NodeProto, net: Net, taken: set[str]) -> None:
    """Make `conv` compute scale * (W x + b - mean) / sqrt(var + epsilon) + shift, with a new weight and bias.

    The old weight and bias may have other readers, so the new ones have new names.
    """
    weight = numpy_helper.to_array(net.constants[conv.input[1]])
    scale, shift, mean, var = (
        numpy_helper.to_array(net.constants[name]).astype(np.float64) for name in norm.input[1:5]
    )
    has_bias = len(conv.input) > 2 and conv.input[2]
    bias = numpy_helper.to_array(net.constants[conv.input[2]]).astype(np.float64) if has_bias else 0.0
    with np.errstate(all="ignore"):  # a variance may be negative: what is NaN then would be it in the engine, too
        factor = scale / np.sqrt(var + attribute_of(norm, "epsilon", 1e-5))
        new = {
            "weight": (weight * _per_filter(conv, weight, factor)).astype(weight.dtype),
            "bias": ((bias - mean) * factor + shift).astype(weight.dtype),
        }
    names = [conv.input[0]]
    for role, value in new.items():
        names.append(new_name(f"{norm.output[0]}/{role}", taken))
        net.constants[names[-1]] = numpy_helper.from_array(value, names[-1])
    del conv.input[:]
    conv.input.extend(names)
    conv.output[0] = norm.output[0]


def _per_filter(conv: onnx.NodeProto, weight: Array, factor: Array) -> Array:
    """Reshape `factor`, one for each filter, so that it multiplies `weight`.

    A Conv's weight is (filters, ...). A ConvTranspose's is (channels, filters / groups, ...), so the filter of an
    element also depends on its group.
    """
    ones = (1,) * (weight.ndim - 2)
    if conv.op_type == "Conv":
        return factor.reshape(-1, 1, *ones)
    groups = attribute_of(conv, "group", 1)
    return np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, axis=0).reshape(*weight.shape[:2], *ones)


def _dequantise_for_each_reader(net: Net) -> None:
    """Give each reader of dequantised floats a DequantizeLinear of its own; its first reader keeps the one there is.

    In a quantised graph (QDQ) floats are rounded to integers between operators. An engine computes an operator in
    integers if it sees both, the DequantizeLinear before it and the QuantizeLinear after it. In a stage that began with
    floats it would not see the first, and floats are four times as many bytes. A DequantizeLinear that makes a graph
    output keeps no other reader.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in net.nodes:
        for name in dict.fromkeys(reads(node)):
            readers.setdefault(name, []).append(node)
    outputs, taken = net.output_names, net.names()
    placed = []
    for node in net.nodes:
        placed.append(node)
        if node.op_type == DEQUANTIZE:
            (result,) = node.output
            for reader in readers.get(result, [])[0 if result in outputs else 1 :]:
                copy = deepcopy(node)
                copy.name, copy.output[0] = "", new_name(result, taken)
                placed.append(copy)
                rename_reads(reader, {result: copy.output[0]})
    net.nodes = placed


def _remove_dead(net: Net) -> None:
    """Remove operators, initialisers and inputs on which no graph output depends."""
    needed = net.output_names
    alive = []
    for node in reversed(net.nodes):
        if needed.intersection(node.output):
            alive.append(node)
            needed.update(reads(node))
    net.nodes = alive[::-1]
    net.constants = {name: tensor for name, tensor in net.constants.items() if name in needed}
    net.inputs = [value for value in net.inputs if value.name in needed]


def _order_by_layer(net: Net) -> None:
    """Order operators by layer; no operator depends on one of a higher layer."""
    nodes = [(node.op_type, reads(node), node.output) for node in net.nodes]
    numbers = layer_numbers(nodes, [value.name for value in net.inputs])
    net.nodes = [net.nodes[i] for i in sorted(range(len(numbers)), key=numbers.__getitem__)]


def _name_operators(net: Net) -> None:
    """Name operators that have no name, or the name of an earlier one."""
    taken = {node.name for node in net.nodes}
    seen = {""}
    for index, node in enumerate(net.nodes):
        if node.name in seen:
            node.name = new_name(f"{node.op_type}_{index}", taken)
        seen.add(node.name)
