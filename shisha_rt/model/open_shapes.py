"""Shapes of tensors: what inference finds, what one run of the model has shown, and what depends on the data.

Inference knows most shapes. Of the others some are static all the same (an operator that ONNX does not describe, a size
that was computed): a run shows them, and they hold for every frame. The rest differs from frame to frame: an operator
whose output's size follows from values (NonZero, TopK of a computed number), and what is made of that. Such a tensor
keeps its open axes, with the size that the run has shown, in the name of the dimension: `TENSOR:AXIS=SIZE`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx

from shisha_rt.model.subgraphs import reads
from shisha_rt.tensors import NUMPY_OF

_BY_VALUES: Final = frozenset(
    {
        *("Compress", "If", "ImageDecoder", "Loop", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"),
        *("ConcatFromSequence", "SequenceAt"),
    }
)
"""Operators whose output sizes depend on input values, unless inference finds them."""

_BY_VALUE_OF: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("ConstantOfShape", "BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
        **dict.fromkeys(("AffineGrid", "CenterCropPad", "Expand", "ExpandDims", "OneHot", "Reshape", "Split"), (1,)),
        **dict.fromkeys(("Squeeze", "Tile", "TopK", "Unsqueeze", "Upsample"), (1,)),
        **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), (1,)),
        **dict.fromkeys(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), (1,)),
        "Col2Im": (1, 2),
        "ConvTransposeWithDynamicPads": (2,),
        "CropAndResize": (3,),
        "DFT": (1, 2),
        "GroupQueryAttention": (6,),
        "MaxUnpool": (2,),
        "MelWeightMatrix": (0, 1),
        "Pad": (1, 3),
        "Range": (0, 1, 2),
        "Resize": (1, 2, 3),
        "STFT": (1, 3),
        "Slice": (1, 2, 3, 4),
    }
)
"""For each type of operator, the positions of the inputs whose values decide its output's size."""


_MOST_VALUES: Final = 1 << 20
"""The longest 1-d input for which inference may track values: shape vectors are short, and each value takes memory."""


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """What one run has shown of a tensor: its shape, and its datatype by a name of `tensors`."""

    shape: tuple[int, ...]
    datatype: str


NOTHING_SEEN: Final[Mapping[str, SeenTensor]] = MappingProxyType({})


def described_shapes(model: onnx.ModelProto, seen: Mapping[str, SeenTensor], *, strict: bool) -> onnx.GraphProto:
    """The graph of `model` with a type for every tensor whose shape is known, or was seen.

    `strict`: raises `onnx.shape_inference.InferenceError` where shapes or types contradict each other; else what
    inference cannot do is left to `seen`.
    """
    while True:
        graph = _inferred(model, strict=strict)
        static, open_ones = _found_out(graph, seen)
        if not static:
            break
        _state(model.graph, static)  # these shapes may let inference find others
    _state(graph, open_ones)
    return graph


def _inferred(model: onnx.ModelProto, *, strict: bool) -> onnx.GraphProto:
    # Data propagation would allocate an entry for each element of a 1-d input, although it knows none of them.
    few = all(
        len(value.type.tensor_type.shape.dim) != 1 or value.type.tensor_type.shape.dim[0].dim_value <= _MOST_VALUES
        for value in model.graph.input
    )
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=strict, strict_mode=strict, data_prop=few).graph
    except onnx.shape_inference.InferenceError:
        raise
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:  # such as a type that is none, or a vast size
        raise onnx.shape_inference.InferenceError(str(error)) from error


def _state(graph: onnx.GraphProto, values: Mapping[str, onnx.ValueInfoProto]) -> None:
    stated = {value.name: value for value in (*graph.value_info, *graph.output)}
    for name, value in values.items():
        if name in stated:
            stated[name].CopyFrom(value)
        else:
            graph.value_info.append(value)


def static_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Static shape of a value; None where the shape is not known, or some axis is open."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


def shape_with_open_axes(value: onnx.ValueInfoProto) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and open axes of a tensor as this module has written them down; None where neither is known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape, open_axes = [], []
    for axis, dim in enumerate(tensor.shape.dim):
        _, is_open, size = dim.dim_param.rpartition("=")
        if is_open:
            open_axes.append(axis)
        elif not dim.HasField("dim_value"):
            return None
        shape.append(int(size) if is_open else dim.dim_value)
    return tuple(shape), tuple(open_axes)


def unknown_tensors(graph: onnx.GraphProto, seen: Collection[str]) -> list[str]:
    """Names of the tensors that a run has to show: neither known nor seen yet. Sequences are not looked at."""
    known = {value.name for value in all_values(graph) if static_shape(value) is not None or is_no_tensor(value)}
    return [name for node in graph.node for name in node.output if name and name not in known and name not in seen]


def all_values(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return (*graph.input, *graph.value_info, *graph.output)


def is_no_tensor(value: onnx.ValueInfoProto) -> bool:
    """Whether it is a sequence or an optional."""
    return value.type.WhichOneof("value") not in (None, "tensor_type")


def _found_out(
    graph: onnx.GraphProto, seen: Mapping[str, SeenTensor]
) -> tuple[dict[str, onnx.ValueInfoProto], dict[str, onnx.ValueInfoProto]]:
    """Describe the tensors that shape inference does not know, as a run has `seen` them: static ones, and open ones.

    A tensor that the run has not seen is in neither.
    """
    values = {value.name: value for value in all_values(graph)}
    constants = {weight.name for weight in graph.initializer}
    static: dict[str, onnx.ValueInfoProto] = {}
    open_ones: dict[str, onnx.ValueInfoProto] = {}
    varying: set[str] = set()
    for node in graph.node:
        from_open = not varying.isdisjoint(reads(node)) or follows_values(node, constants)
        for name in filter(None, node.output):
            value = values.get(name, onnx.ValueInfoProto(name=name))
            if static_shape(value) is not None:
                continue
            if is_no_tensor(value) or (from_open and name not in seen):
                varying.add(name)
            elif from_open:
                varying.add(name)
                open_ones[name] = _described(name, _with_open_axes(value, seen[name].shape), seen[name].datatype)
            elif name in seen:
                static[name] = _described(name, seen[name].shape, seen[name].datatype)
    return static, open_ones


def follows_values(node: onnx.NodeProto, constants: Collection[str]) -> bool:
    """Whether the sizes of what a node makes depend on values that are no constants."""
    if node.op_type in _BY_VALUES:
        return True
    deciding = (node.input[position] for position in _BY_VALUE_OF.get(node.op_type, ()) if position < len(node.input))
    return any(name and name not in constants for name in deciding)


def _with_open_axes(value: onnx.ValueInfoProto, seen: tuple[int, ...]) -> list[int | str]:
    """The shape that was seen, its axes named (`TENSOR:AXIS=SIZE`) but for those whose size inference knows."""
    tensor = value.type.tensor_type
    known = list(tensor.shape.dim) if tensor.HasField("shape") else []
    return [
        size if len(known) == len(seen) and known[axis].HasField("dim_value") else f"{value.name}:{axis}={size}"
        for axis, size in enumerate(seen)
    ]


def _described(name: str, sizes: Sequence[int | str], datatype: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(NUMPY_OF[datatype]), sizes)
