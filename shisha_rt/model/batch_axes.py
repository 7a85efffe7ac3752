"""What becomes of the batch axis in an operator, by rules for each type: see `batches`.

An operator without a rule, or that mixes frames by a reduction over the axis or a scale computed from all values,
computes one frame at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from shisha_rt.model.elementwise import BROADCAST
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.shards.local import permutation

Integers: TypeAlias = Mapping[str, tuple[int, ...]]
"""Values of small integer constants, by name."""
Axes: TypeAlias = tuple["int | None", ...]
"""Batch axis of each tensor of an operator; None for a tensor that is the same for all frames, or absent."""

_MORE_FRAMES: Final = 1024  # than any batch has: a Slice up to the end of so many is to the end of the axis


class MixesFrames(Exception):
    """An operator computes one frame at a time; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """An operator and the batch axes of its inputs. `batched`: positions of the inputs that may have one."""

    graph: Graph
    operator: Operator
    axes: Axes
    integers: Integers
    batched: Sequence[int]

    def shape(self, position: int) -> tuple[int, ...]:
        name = self.operator.inputs[position]
        return self.graph.tensor(name).shape if name else ()

    def made_shape(self, position: int = 0) -> tuple[int, ...]:
        return self.graph.tensors[self.operator.outputs[position]].shape

    def has(self, position: int) -> bool:
        return position < len(self.operator.inputs) and bool(self.operator.inputs[position])

    def listed(self, name: str, position: int) -> tuple[int, ...] | None:
        """Integers of attribute `name` or, in later opsets, of the input at `position`; None if neither is present.

        Raises MixesFrames if that input is no known constant.
        """
        value = self.operator.attributes.get(name)
        if isinstance(value, tuple):
            return value
        if not self.has(position):
            return None
        given = self.integers.get(self.operator.inputs[position])
        if given is None:
            raise MixesFrames(f"its {name} are not known beforehand")
        return given

    def all_outputs(self, axis: int | None) -> Axes:
        return (axis,) * len(self.operator.outputs)

    def check_shared(self) -> None:
        """Raise MixesFrames if an input that has to be the same for all frames has a batch axis."""
        for position, axis in enumerate(self.axes):
            if axis is not None and position not in self.batched:
                raise MixesFrames(f"{self.operator.inputs[position]!r} goes with the frame, expected a constant")

    def along(self, position: int = 0) -> int:
        """The batch axis of an input. Raises MixesFrames if it has none."""
        axis = self.axes[position]
        if axis is None:
            raise MixesFrames(f"{self.operator.inputs[position]!r} is the same for all frames, which the rest is not")
        return axis


def batch_axes_made(graph: Graph, operator: Operator, axes: Axes, integers: Integers) -> Axes:
    """Batch axes of an operator's outputs. Raises MixesFrames."""
    if all(axis is None for axis in axes):
        return (None,) * len(operator.outputs)
    kind = operator.op_type
    rule, batched = (_broadcast, _ALL) if kind in BROADCAST else _RULES.get(kind, (None, _ALL))
    if rule is None:
        raise MixesFrames(_WHY_NOT.get(kind, "it is not known to keep frames apart"))
    ends = _Ends(graph, operator, axes, integers, range(len(axes))[batched] if isinstance(batched, slice) else batched)
    ends.check_shared()
    made = rule(ends)
    for position, (name, axis) in enumerate(zip(operator.outputs, made, strict=False)):
        if name and axis is not None and axis >= len(ends.made_shape(position)):
            raise MixesFrames(f"{name!r} has no axis for frames")  # no rule does that for a graph that keeps its shapes
    return made


def _broadcast(ends: _Ends) -> Axes:
    """Counted from the end, the batch axis must be the same in all inputs that may have one."""
    made = ends.made_shape()
    from_end = {len(ends.shape(p)) - axis for p in ends.batched if (axis := ends.axes[p]) is not None}
    if len(from_end) != 1:
        raise MixesFrames("frames are along different axes of what it reads")
    (place,) = from_end
    axis = len(made) - place
    for position in ends.batched:
        shape = ends.shape(position)
        size = shape[-place] if len(shape) >= place else 1
        if ends.axes[position] is None and size != 1:
            raise MixesFrames("a constant differs along the axis of frames")
        if ends.axes[position] is not None and size != made[axis]:
            raise MixesFrames("frames are stretched along their axis")
    return ends.all_outputs(axis)


def _first_axis(ends: _Ends) -> Axes:
    """Operators that keep frames apart along axis 0 of every input that may have a batch axis."""
    for position in ends.batched:
        if ends.has(position) and ends.along(position) != 0:
            raise MixesFrames("frames are not along its first axis")
    for output, name in enumerate(ends.operator.outputs):
        if name and ends.made_shape(output)[:1] != ends.shape(0)[:1]:
            raise MixesFrames("its output's first axis is not its input's")
    return ends.all_outputs(0)


def _rows(ends: _Ends) -> Axes:
    if len(ends.shape(0)) != _ROWS_RANK:
        raise MixesFrames("it takes a row as it takes several")
    return _first_axis(ends)


def _pool(ends: _Ends) -> Axes:
    if any(ends.operator.outputs[1:2]):
        raise MixesFrames("its indices count over all frames")
    return _first_axis(ends)


def _resize(ends: _Ends) -> Axes:
    resized = ends.operator.attributes.get("axes")
    if ends.has(3) and not (isinstance(resized, tuple) and all(axis % len(ends.shape(0)) for axis in resized)):
        raise MixesFrames("it is told the size of all frames together")
    return _first_axis(ends)


def _batch_normalisation(ends: _Ends) -> Axes:
    if ends.operator.integer("training_mode", 0):
        raise MixesFrames("it normalises over all frames")
    return _first_axis(ends)


def _matrix_product(ends: _Ends) -> Axes:
    """The batch axis may be the rows or a leading dimension, not the dimension that is summed over."""
    if any(ends.operator.attributes.get(name, 0) for name in ("transBatchA", "transBatchB")):
        raise MixesFrames("it transposes leading dimensions")
    left, right = ends.batched
    a, b, made = ends.shape(left), ends.shape(right), ends.made_shape()
    of_a, of_b = ends.axes[left], ends.axes[right]
    if len(a) < 2:
        raise MixesFrames("its first operand is a vector")
    if of_b is None:
        assert of_a is not None
        summed = len(a) - (2 if ends.operator.integer("transA", 0) else 1)
        if of_a == summed:
            raise MixesFrames("it sums over the axis of frames")
        place = len(a) - of_a if of_a < len(a) - 2 else 2
        if place > 2 and len(b) >= place and b[-place] != 1:
            raise MixesFrames("a constant differs along the axis of frames")
        return (of_a,) if len(b) == 1 else (len(made) - place,)
    place = len(b) - of_b
    if place < 3 or (of_a is not None and len(a) - of_a != place):
        raise MixesFrames("frames are along different axes of what it reads")
    if of_a is None and len(a) >= place and a[-place] != 1:
        raise MixesFrames("a constant differs along the axis of frames")
    if of_a is not None and a[of_a] != b[of_b]:
        raise MixesFrames("frames are stretched along their axis")
    return (len(made) - place,)


def _einsum(ends: _Ends) -> Axes:
    """The batch axis has one label, and stays: in the output, and in constants at most along an axis of one."""
    terms, result = _labels(ends)
    along = {terms[position][axis] for position, axis in enumerate(ends.axes) if axis is not None}
    if len(along) != 1:
        raise MixesFrames("frames are along different axes of what it reads")
    (label,) = along
    if result.count(label) != 1:
        raise MixesFrames("it sums over the axis of frames")
    batch = result.index(label)
    for position, term in enumerate(terms):
        sizes = {size for each, size in zip(term, ends.shape(position), strict=True) if each == label}
        if term.count(label) > 1:
            raise MixesFrames("it reads a diagonal of the axis of frames")
        if ends.axes[position] is None and sizes - {1}:
            raise MixesFrames("a constant differs along the axis of frames")
        if ends.axes[position] is not None and sizes != {ends.made_shape()[batch]}:
            raise MixesFrames("frames are stretched along their axis")
    return (batch,)


def _labels(ends: _Ends) -> tuple[list[list[str]], list[str]]:
    """Labels of the axes of each input and of the output of an Einsum. Those that an ellipsis stands for are numbers.

    Without an output in the equation it is the labels that occur once, in alphabetical order.
    """
    equation = "".join(ends.operator.texts.get("equation", "").split())
    read, arrow, made = equation.partition("->")
    if not arrow:
        once = sorted(letter for letter in set(read) if letter.isalpha() and read.count(letter) == 1)
        made = "".join(["..." if "." in read else "", *once])
    shapes = [ends.shape(position) for position in range(len(ends.axes))]
    terms = [_labelled(term, len(shape)) for term, shape in zip(read.split(","), shapes, strict=False)]
    result = _labelled(made, len(ends.made_shape()))
    if [len(labels) for labels in (*terms, result)] != [len(shape) for shape in (*shapes, ends.made_shape())]:
        raise MixesFrames("its equation is not that of what it reads")
    return terms, result


def _labelled(term: str, rank: int) -> list[str]:
    """The labels of a term's axes; numbers in place of an ellipsis count from its end, as it broadcasts."""
    before, _, after = term.partition("...")
    hidden = rank - len(before) - len(after) if "..." in term else 0
    return [*before, *map(str, reversed(range(hidden))), *after]


def _gemm(ends: _Ends) -> Axes:
    _, added = ends.batched
    if ends.along(0) != (1 if ends.operator.integer("transA", 0) else 0):
        raise MixesFrames("it sums over the axis of frames")
    if ends.has(added):
        shape, axis = ends.shape(added), ends.axes[added]
        rows = shape[0] if len(shape) > 1 else 1
        if axis is None and rows != 1:
            raise MixesFrames("a constant differs along the axis of frames")
        if axis is not None and (axis != 0 or len(shape) != 2 or rows != ends.made_shape()[0]):
            raise MixesFrames("frames are along different axes of what it reads")
    return (0,)


def _normalised(ends: _Ends, default: int) -> Axes:
    """Operators that normalise over an axis or, in some versions, over it and all later axes."""
    batch = ends.along(0)
    if batch >= ends.operator.integer("axis", default) % len(ends.shape(0)):
        raise MixesFrames("it normalises over the axis of frames")
    place = len(ends.shape(0)) - batch
    for position in filter(ends.has, range(1, len(ends.axes))):
        shape = ends.shape(position)
        if len(shape) >= place and shape[-place] != 1:
            raise MixesFrames("a constant differs along the axis of frames")
    return ends.all_outputs(batch)


def _one_axis(ends: _Ends, default: int) -> Axes:
    """Operators that mix elements along one axis and keep all axes."""
    return _apart_from(ends, ends.operator.integer("axis", default))


def _cumulated(ends: _Ends) -> Axes:
    """As `_one_axis`, where an input says which."""
    (axis,) = ends.listed("axis", 1) or (0,)
    return _apart_from(ends, axis)


def _apart_from(ends: _Ends, axis: int) -> Axes:
    batch = ends.along(0)
    if batch == axis % len(ends.shape(0)):
        raise MixesFrames("it reads along the axis of frames")
    return ends.all_outputs(batch)


def _skip_normalisation(ends: _Ends) -> Axes:
    if ends.along(0) != ends.along(1) or ends.shape(0) != ends.shape(1) or ends.along(0) == len(ends.shape(0)) - 1:
        raise MixesFrames("frames are along different axes of what it reads")
    return tuple(ends.along(0) if name else None for name in ends.operator.outputs)


def _reduction(ends: _Ends) -> Axes:
    """Reduction over one axis (ArgMax, ArgMin) or several."""
    batch, rank = ends.along(0), len(ends.shape(0))
    if ends.operator.op_type in ("ArgMax", "ArgMin"):
        listed: tuple[int, ...] | None = (ends.operator.integer("axis", 0),)
    else:
        listed = ends.listed("axes", 1)
    if not listed:
        if ends.operator.integer("noop_with_empty_axes", 0):
            return (batch,)
        raise MixesFrames("it reduces all axes")
    reduced = {axis % rank for axis in listed}
    if batch in reduced:
        raise MixesFrames("it reduces the axis of frames")
    return (batch if ends.operator.integer("keepdims", 1) else batch - sum(axis < batch for axis in reduced),)


def _transpose(ends: _Ends) -> Axes:
    return (permutation(ends.graph, ends.operator).index(ends.along(0)),)


def _reshape(ends: _Ends) -> Axes:
    """An output axis can be the batch axis if as many elements come before it as before the input's batch axis.

    If several can, it is the first, unless the shape up to and including the batch axis stays the same.
    """
    if not (ends.has(1) and ends.operator.inputs[1] in ends.graph.constants):
        raise MixesFrames("its shape is not known beforehand")
    batch, shape, made = ends.along(0), ends.shape(0), ends.made_shape()
    if 0 in (*shape, *made):
        raise MixesFrames("it has no elements")
    if made[: batch + 1] == shape[: batch + 1]:
        return (batch,)
    before = math.prod(shape[:batch])
    places = [axis for axis in range(len(made)) if math.prod(made[:axis]) == before]
    if not places:
        raise MixesFrames("it moves elements across the axis of frames")
    return (places[0],)


def _flatten(ends: _Ends) -> Axes:
    shape, batch = ends.shape(0), ends.along(0)
    axis = ends.operator.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    start = 0 if batch < axis else axis
    if math.prod(shape[start:batch]) != 1:
        raise MixesFrames("it moves elements across the axis of frames")
    return (0 if batch < axis else 1,)


def _squeeze(ends: _Ends) -> Axes:
    batch, rank = ends.along(0), len(ends.shape(0))
    listed = ends.listed("axes", 1)
    if not listed:
        raise MixesFrames("it drops every axis of one")
    dropped = {axis % rank for axis in listed}
    if batch in dropped:
        raise MixesFrames("it drops the axis of frames")
    return (batch - sum(axis < batch for axis in dropped),)


def _unsqueeze(ends: _Ends) -> Axes:
    rank = len(ends.made_shape())
    added = {axis % rank for axis in ends.listed("axes", 1) or ()}
    kept = [axis for axis in range(rank) if axis not in added]
    return (kept[ends.along(0)],)


def _concat(ends: _Ends) -> Axes:
    axes = {ends.along(position) for position in ends.batched}
    if len(axes) != 1:
        raise MixesFrames("frames are along different axes of what it reads")
    (batch,) = axes
    if batch == ends.operator.integer("axis", 1) % len(ends.made_shape()):
        raise MixesFrames("it joins along the axis of frames")
    return (batch,)


def _slice(ends: _Ends) -> Axes:
    batch, shape = ends.along(0), ends.shape(0)
    starts, to = ends.listed("starts", 1) or (), ends.listed("ends", 2) or ()
    steps = ends.listed("steps", 4) or (1,) * len(starts)
    axes = ends.listed("axes", 3) or tuple(range(len(starts)))
    for axis, start, end, step in zip(axes, starts, to, steps, strict=True):
        if axis % len(shape) == batch and (start != 0 or step != 1 or end < shape[batch] * _MORE_FRAMES):
            raise MixesFrames("it cuts the axis of frames")
    return (batch,)


def _gather(ends: _Ends, along: str = "axis") -> Axes:
    data, indices = ends.axes[:2]
    axis = ends.operator.integer(along, 0) % len(ends.shape(0))
    if data is None:
        return (axis + ends.along(1),)
    if indices is not None:
        raise MixesFrames("both its data and its indices go with the frame")
    if data == axis:
        raise MixesFrames("it reads along the axis of frames")
    return (data if data < axis else data - 1 + len(ends.shape(1)),)


def _gather_elements(ends: _Ends) -> Axes:
    batch = ends.along(0)
    if batch != ends.along(1) or batch == ends.operator.integer("axis", 0) % len(ends.shape(0)):
        raise MixesFrames("it reads along the axis of frames")
    if ends.shape(0)[batch] != ends.shape(1)[batch]:
        raise MixesFrames("frames of its indices do not lie beside those of its data")
    return (batch,)


def _pad(ends: _Ends) -> Axes:
    """As `_same_size`. What is cut off at one end and added at the other moves frames."""
    rank, pads = len(ends.shape(0)), ends.listed("pads", 1) or ()
    padded = ends.listed("axes", 3) or range(len(pads) // 2)
    if any(before and axis % rank == ends.along(0) for axis, before in zip(padded, pads, strict=False)):
        raise MixesFrames("it adds along the axis of frames")
    return _same_size(ends)


def _same_size(ends: _Ends) -> Axes:
    """Operators such as Tile: they may add nothing along the batch axis."""
    batch = ends.along(0)
    if ends.made_shape()[batch] != ends.shape(0)[batch]:
        raise MixesFrames("it adds along the axis of frames")
    return (batch,)


def _expand(ends: _Ends) -> Axes:
    made, place = ends.made_shape(), len(ends.shape(0)) - ends.along(0)
    if made[-place] != 1:
        raise MixesFrames("it is told the size of all frames together")
    return (len(made) - place,)


def _quantise(ends: _Ends) -> Axes:
    """Scales may differ along one other axis; those of blocks have all axes of what is scaled, frames among them."""
    batch, scales = ends.along(0), ends.shape(1)
    axis = ends.operator.integer("axis", 1) % len(ends.shape(0))
    if len(scales) > 1 or (math.prod(scales) > 1 and batch == axis):
        raise MixesFrames("a constant differs along the axis of frames")
    return (batch,)


def _recurrent(ends: _Ends) -> Axes:
    """Axis 0 is the sequence, axis 1 the frames."""
    if ends.operator.integer("layout", 0) or ends.along(0) != 1:
        raise MixesFrames("frames are not along its second axis")
    for position, expected in ((4, 0), (5, 1), (6, 1)):
        if ends.has(position) and ends.along(position) != expected:
            raise MixesFrames("frames are along different axes of what it reads")
    return tuple((2, 1, 1)[position] for position, _ in enumerate(ends.operator.outputs))


def _attention(ends: _Ends) -> Axes:
    """The batch axis is axis 0 of all inputs but weights. What is added to the products may be one for all frames."""
    kind = ends.operator.op_type if ends.operator.domain else ""
    weights, added = _WEIGHTS_AT[kind], _ADDED_AT[kind]
    for position in filter(ends.has, range(len(ends.axes))):
        shape, axis = ends.shape(position), ends.axes[position]
        if position in weights:
            if axis is not None:
                raise MixesFrames(f"{ends.operator.inputs[position]!r} goes with the frame, expected a constant")
        elif position == added and axis is None:
            if len(shape) == _ADDED_RANK and shape[0] != 1:
                raise MixesFrames("a constant differs along the axis of frames")
        elif ends.along(position) != 0 or (position == added and len(shape) != _ADDED_RANK):
            raise MixesFrames("frames are along different axes of what it reads")
        elif shape[0] != ends.shape(0)[0]:
            raise MixesFrames("frames of what it reads do not lie beside each other")
    return _first_axis(replace(ends, batched=_FIRST))


def _embedding(ends: _Ends) -> Axes:
    for position in filter(ends.has, (0, 1, 7)):
        ends.along(position)
    if any(ends.axes):
        raise MixesFrames("frames are not along its first axis")
    return ends.all_outputs(0)


_WEIGHTS_AT: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {"": (), "Attention": (1, 2), "MultiHeadAttention": (3,), "QAttention": (1, 2, 3, 4, 6, 7)}
)
_ADDED_AT: Final = MappingProxyType({"": 3, "Attention": 5, "MultiHeadAttention": 5, "QAttention": None})
_ADDED_RANK: Final = 4
_ALL: Final = slice(None)
_FIRST: Final = (0,)
_ROWS_RANK: Final = 2
_Rule: TypeAlias = Callable[[_Ends], Axes]
_BY_TYPES: Final[tuple[tuple[str, _Rule, tuple[int, ...] | slice], ...]] = (
    ("Conv FusedConv NhwcFusedConv", _first_axis, (0, 3)),
    ("ConvInteger ConvTranspose QLinearConv NhwcConv", _first_axis, _FIRST),
    ("DepthToSpace SpaceToDepth LRN InstanceNormalization GroupNormalization", _first_axis, _FIRST),
    ("GlobalAveragePool GlobalLpPool GlobalMaxPool AveragePool LpPool", _first_axis, _FIRST),
    ("QLinearAveragePool QLinearGlobalAveragePool ReorderInput ReorderOutput", _first_axis, _FIRST),
    ("MaxPool NhwcMaxPool", _pool, _FIRST),
    ("Resize Upsample", _resize, _FIRST),
    ("BatchNormalization", _batch_normalisation, _FIRST),
    ("GridSample", _first_axis, (0, 1)),
    ("DeformConv", _first_axis, (0, 2, 4)),
    ("MatMul FusedMatMul MatMulInteger MatMulIntegerToFloat", _matrix_product, (0, 1)),
    ("QLinearMatMul", _matrix_product, (0, 3)),
    ("Einsum", _einsum, _ALL),
    ("Gemm FusedGemm", _gemm, (0, 2)),
    ("QGemm", _gemm, (0, 6)),
    ("Softmax LogSoftmax Hardmax", partial(_normalised, default=1), _FIRST),
    ("QLinearSoftmax", partial(_normalised, default=-1), _FIRST),
    ("LayerNormalization SimplifiedLayerNormalization RMSNormalization", partial(_normalised, default=-1), _FIRST),
    ("SkipLayerNormalization SkipSimplifiedLayerNormalization", _skip_normalisation, (0, 1)),
    ("LpNormalization MatMulBnb4 MatMulNBits TopK", partial(_one_axis, default=-1), _FIRST),
    ("Split", partial(_one_axis, default=0), _FIRST),
    ("CumSum", _cumulated, _FIRST),
    ("ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean", _reduction, _FIRST),
    ("ReduceMin ReduceProd ReduceSum ReduceSumSquare", _reduction, _FIRST),
    ("Transpose", _transpose, _ALL),
    ("Reshape", _reshape, _FIRST),
    ("Flatten", _flatten, _ALL),
    ("Squeeze", _squeeze, _ALL),
    ("Unsqueeze", _unsqueeze, _ALL),
    ("Concat", _concat, _ALL),
    ("QLinearConcat", _concat, slice(2, None, 3)),
    ("Slice", _slice, _FIRST),
    ("Gather", _gather, _ALL),
    ("GatherBlockQuantized", partial(_gather, along="gather_axis"), (0, 1)),
    ("GatherElements", _gather_elements, (0, 1)),
    ("Pad", _pad, _FIRST),
    ("Tile Dropout QLinearLeakyRelu QLinearSigmoid", _same_size, _FIRST),
    ("Expand", _expand, _FIRST),
    ("QuantizeLinear DequantizeLinear", _quantise, _FIRST),
    ("QLinearAdd QLinearMul", _broadcast, (0, 3)),
    ("Binarizer Imputer LinearClassifier LinearRegressor Normalizer Scaler", _rows, _FIRST),
    ("SVMClassifier SVMRegressor TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", _rows, _FIRST),
    ("GRU LSTM RNN", _recurrent, (0, 4, 5, 6)),
    ("Attention MultiHeadAttention QAttention", _attention, _ALL),
    ("EmbedLayerNormalization", _embedding, _ALL),
)
"""Types of operators, their rule, and the positions of the inputs that may have a batch axis."""
_RULES: Final = {kind: (rule, batched) for kinds, rule, batched in _BY_TYPES for kind in kinds.split()}
_WHY_NOT: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"),
                        "its scale is of all frames together"),
        **dict.fromkeys(("If", "Loop", "Scan"), "what it runs depends on the data"),
        **dict.fromkeys(("NonMaxSuppression", "NonZero", "Unique", "Compress"), "its size depends on the data"),
        **dict.fromkeys(("Shape", "Size"), "it reads the size of all frames together"),
    }
)  # fmt: skip
