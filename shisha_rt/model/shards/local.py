"""Which operators can make a slice of their output from slices of their inputs, and which need whole inputs.

`needs_of` decides: it goes from the output to the inputs. `carried` goes from an input to the output and only proposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from shisha_rt.model.elementwise import BROADCAST
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.shards.blocked import BLOCK, NCHWC
from shisha_rt.model.shards.shards import Slice

Shape: TypeAlias = tuple[int, ...]
Attributes: TypeAlias = Mapping[str, int | tuple[int, ...]]

CONVOLVE: Final = frozenset({"Conv", "FusedConv"})
POOLING: Final = frozenset({"AveragePool", "LpPool", "MaxPool"})
PRODUCTS: Final = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "MatMul"})
_RESHAPING: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Needs:
    """What an operator needs for a slice of its output: of each input, by position, a slice, or all of it (None).

    `attributes`: those that change; `without`: those removed. `reshaped`: the second input is a shape: the slice's.
    """

    inputs: tuple[Slice | None, ...]
    attributes: Attributes = field(default_factory=dict)
    without: tuple[str, ...] = ()
    reshaped: bool = False


def needs_of(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """Slices of its inputs that an operator needs for the slice `wanted` of its output.

    None if the operator cannot make the slice alone: it would need all of an input of which it should need a part.
    """
    kind = operator.op_type
    if operator.domain not in ("", "com.microsoft", NCHWC):
        return None
    if any(graph.is_needed_beyond(name, set()) for name in operator.outputs[1:]):
        return None  # it makes more than one tensor
    if operator.attributes.get("channels_last", 0) and kind not in ("ReorderInput", "ReorderOutput"):
        return None
    rule = _RULES.get(kind, _broadcast if kind in BROADCAST else None)
    return None if rule is None else rule(graph, operator, wanted)


def carried(graph: Graph, operator: Operator, position: int, axis: int, unit: int) -> tuple[int, int] | None:
    """Output axis that corresponds to an input's `axis`, and the number of its positions that `unit` positions make.

    None if `unit` would divide a group of channels, or a slice of the input does not make a slice of the output.
    """
    kind = operator.op_type
    shape, made = (graph.tensor(name).shape for name in (operator.inputs[position], operator.outputs[0]))
    if kind in CONVOLVE or kind == "ConvTranspose":
        if axis != 1 or position != 0:
            return axis, unit
        groups = operator.integer("group", 1)
        of_group = shape[1] // groups
        return (1, unit // of_group * (made[1] // groups)) if unit % of_group == 0 else None
    if kind in PRODUCTS:
        return len(made) - len(shape) + axis, unit
    if kind in _RESHAPING:
        return _matching(shape, made, axis, unit)
    if kind == "Transpose":
        return permutation(graph, operator).index(axis), unit
    if kind in ("ReorderInput", "ReorderOutput") and operator.attributes.get("channels_last", 0):
        return (_from_last if kind == "ReorderInput" else _to_last)(axis, len(shape)), unit
    return len(made) - len(shape) + axis, unit


def _added(graph: Graph, operator: Operator, wanted: Slice, position: int) -> Slice | None:
    """Slice of an input that is broadcast to the output's shape; None: all of it."""
    name = operator.inputs[position]
    shape = graph.tensor(name).shape if name else ()
    axis = wanted.axis - (len(graph.tensor(operator.outputs[0]).shape) - len(shape))
    return Slice(axis, wanted.first, wanted.count) if axis >= 0 and shape[axis] > 1 else None


def _broadcast(graph: Graph, operator: Operator, wanted: Slice) -> Needs:
    return Needs(tuple(_added(graph, operator, wanted, position) for position in range(len(operator.inputs))))


def _convolution(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """Inputs: image, weights, bias, and (if fused) a tensor that is added."""
    if wanted.axis == 1:
        return _filters(graph, operator, wanted)
    windows = _sliding_windows(graph, operator)
    if wanted.axis == 0 or windows is None or operator.op_type == "ConvTranspose":
        return None
    first, count, attributes = _windowed(operator, wanted, windows)
    inputs: list[Slice | None] = [Slice(wanted.axis, first, count), None]
    if len(operator.inputs) > 2:
        inputs.append(None)
    if len(operator.inputs) > 3:
        inputs.append(wanted)
    return Needs(tuple(inputs), attributes, ("auto_pad",))


def _filters(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    groups = operator.integer("group", 1)
    made = graph.tensor(operator.outputs[0]).shape[1]
    image = graph.tensor(operator.inputs[0]).shape[1]
    transposed = operator.op_type == "ConvTranspose"
    rest = [Slice(0, wanted.first, wanted.count), wanted][: max(0, len(operator.inputs) - 2)]
    if groups == 1:
        return Needs((None, Slice(int(transposed), wanted.first, wanted.count), *rest))
    of_group = made // groups
    if wanted.first % of_group or wanted.count % of_group:
        return None
    first, count = wanted.first // of_group, wanted.count // of_group
    channels = image // groups
    data = Slice(1, first * channels, count * channels)
    weights = Slice(0, data.first, data.count) if transposed else Slice(0, wanted.first, wanted.count)
    return Needs((data, weights, *rest), {"group": count})


@dataclass(frozen=True, slots=True)
class _SlidingWindow:
    """One spatial dimension of a window. `reach`: positions spanned, with dilation; `before`: padding in front."""

    size_in: int
    size_out: int
    reach: int
    stride: int
    before: int

    @property
    def after(self) -> int:
        """Padding at the end that the last window needs: at most what the operator says."""
        return max(0, (self.size_out - 1) * self.stride + self.reach - self.size_in - self.before)

    def rows(self, first: int, end: int) -> tuple[int, int, int, int]:
        """For output rows from `first` to before `end`: first input row, end, padding before and after."""
        start = first * self.stride - self.before
        stop = (end - 1) * self.stride + self.reach - self.before
        return max(start, 0), min(stop, self.size_in), max(-start, 0), max(stop - self.size_in, 0)


def _sliding_windows(graph: Graph, operator: Operator) -> tuple[_SlidingWindow, ...] | None:
    """One for each spatial dimension of a convolution or a pooling; None if a window could be all padding."""
    image = graph.tensor(operator.inputs[0]).shape[2:]
    made = graph.tensor(operator.outputs[0]).shape[2:]
    ones = (1,) * len(image)
    attributes = operator.attributes
    kernel = _list(attributes, "kernel_shape") or graph.tensor(operator.inputs[1]).shape[2:]
    strides, dilations = _list(attributes, "strides") or ones, _list(attributes, "dilations") or ones
    pads = _list(attributes, "pads") or (0,) * (2 * len(image))
    how = operator.texts.get("auto_pad", "NOTSET")
    windows = []
    for axis, (size_in, size_out) in enumerate(zip(image, made, strict=True)):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        missing = max(0, (size_out - 1) * strides[axis] + reach - size_in)
        before = {"NOTSET": pads[axis], "VALID": 0, "SAME_UPPER": missing // 2}.get(how, missing - missing // 2)
        window = _SlidingWindow(size_in, size_out, reach, strides[axis], before)
        if window.before >= reach or window.after >= reach:
            return None
        windows.append(window)
    return tuple(windows)


def _list(attributes: Attributes, name: str) -> tuple[int, ...]:
    attribute = attributes.get(name, ())
    return attribute if isinstance(attribute, tuple) else (attribute,)


def _windowed(operator: Operator, wanted: Slice, windows: Sequence[_SlidingWindow]) -> tuple[int, int, Attributes]:
    """First row, number of rows and attributes of the input's slice; all padding is made explicit."""
    split = wanted.axis - 2
    before, after = [window.before for window in windows], [window.after for window in windows]
    first, end, before[split], after[split] = windows[split].rows(wanted.first, wanted.end)
    attributes: dict[str, int | tuple[int, ...]] = {"pads": (*before, *after)}
    if operator.attributes.get("ceil_mode", 0):
        attributes["ceil_mode"] = 0
    return first, end - first, attributes


def _pooling(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    if wanted.axis == 1:
        return Needs((wanted,))
    windows = _sliding_windows(graph, operator)
    counts_padding = operator.attributes.get("count_include_pad", 0) and operator.attributes.get("ceil_mode", 0)
    if wanted.axis == 0 or windows is None or counts_padding:  # padding that ceil_mode adds is never counted
        return None
    first, count, attributes = _windowed(operator, wanted, windows)
    return Needs((Slice(wanted.axis, first, count),), attributes, ("auto_pad",))


def _by_channel(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """Operators that treat each channel alike; not a Resize with given sizes, which include the number of channels."""
    if operator.op_type == "Upsample" and operator.domain != NCHWC:
        return None
    same = graph.tensor(operator.inputs[0]).shape[:2] == graph.tensor(operator.outputs[0]).shape[:2]
    if wanted.axis != 1 or not same or any(operator.inputs[3:]):
        return None
    return Needs((wanted, *(None,) * (len(operator.inputs) - 1)))


def _product(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    if operator.attributes.get("transBatchA", 0) or operator.attributes.get("transBatchB", 0):
        return None
    left, right, made = (graph.tensor(name).shape for name in (*operator.inputs[:2], operator.outputs[0]))
    rest = [_added(graph, operator, wanted, position) for position in range(2, len(operator.inputs))]
    if wanted.axis == len(made) - 1 and len(right) > 1:
        axis = len(right) - (2 if operator.attributes.get("transB", 0) else 1)
        return Needs((None, Slice(axis, wanted.first, wanted.count), *rest))
    if wanted.axis == len(made) - 2 and len(left) > 1 and len(right) > 1:
        axis = len(left) - (1 if operator.attributes.get("transA", 0) else 2)
        return Needs((Slice(axis, wanted.first, wanted.count), None, *rest))
    return None


def contraction(graph: Graph, operator: Operator, first: int, count: int) -> tuple[Slice, Slice]:
    """Slices of image (or left matrix) and weights for a shard that has part of the contracted dimension."""
    if operator.op_type in CONVOLVE:
        return Slice(1, first, count), Slice(1, first, count)
    if operator.op_type == "ConvTranspose":
        return Slice(1, first, count), Slice(0, first, count)
    left, right = (len(graph.tensor(name).shape) for name in operator.inputs[:2])
    left_axis = left - 2 if operator.attributes.get("transA", 0) and left > 1 else left - 1
    axis = right - 1 if operator.attributes.get("transB", 0) or right == 1 else right - 2
    return Slice(left_axis, first, count), Slice(axis, first, count)


def _reshaping(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """A slice of the output is one of the input if its elements are consecutive in both, per position before it."""
    given, made = (graph.tensor(name).shape for name in (operator.inputs[0], operator.outputs[0]))
    has_shape = operator.op_type == "Reshape"
    if has_shape and operator.inputs[1] not in graph.constants:
        return None
    outer, inner = math.prod(made[: wanted.axis]), math.prod(made[wanted.axis + 1 :])
    for axis in range(len(given)):
        behind = math.prod(given[axis + 1 :])
        if math.prod(given[:axis]) == outer and given[axis] > 1:
            if wanted.first * inner % behind or wanted.count * inner % behind:
                return None
            data = Slice(axis, wanted.first * inner // behind, wanted.count * inner // behind)
            return Needs((data, *(None,) * (len(operator.inputs) - 1)), reshaped=has_shape)
    return None


def _matching(given: Shape, made: Shape, axis: int, unit: int) -> tuple[int, int] | None:
    outer, behind = math.prod(given[:axis]), math.prod(given[axis + 1 :])
    for at in range(len(made)):
        inner = math.prod(made[at + 1 :])
        if math.prod(made[:at]) == outer and made[at] > 1:
            return (at, unit * behind // inner) if unit * behind % inner == 0 else None
    return None


def _normalisation(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    others = len(operator.inputs) - 1
    if operator.attributes.get("training_mode", 0) or not operator.attributes.get("spatial", 1):
        return None
    if wanted.axis == 1:
        return Needs((wanted, *(Slice(0, wanted.first, wanted.count),) * others))
    return None if operator.op_type == "InstanceNormalization" else Needs((wanted, *(None,) * others))


def _along_one_axis(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """Operators along one axis (in old opsets, also all later ones): earlier axes can be sliced. LRN reads channels."""
    rank = len(graph.tensor(operator.outputs[0]).shape)
    axis = operator.integer("axis", -1 if operator.op_type == "LayerNormalization" else 1) % rank
    if wanted.axis == axis or (wanted.axis > axis and operator.op_type not in ("LRN", "Concat")):
        return None
    if operator.op_type == "Concat":
        return Needs((wanted,) * len(operator.inputs))
    return Needs((wanted, *(None,) * (len(operator.inputs) - 1)))


def _reordering(graph: Graph, operator: Operator, wanted: Slice) -> Needs | None:
    """A change from or to a blocked format: the same positions; channels in full blocks, except at a plain end."""
    given, made = (graph.tensor(name).shape for name in (operator.inputs[0], operator.outputs[0]))
    into = operator.op_type == "ReorderInput"
    axis = wanted.axis
    if operator.attributes.get("channels_last", 0):
        axis = (_to_last if into else _from_last)(axis, len(made))
    channels = wanted.axis if into else axis
    if channels != 1:
        return Needs((Slice(axis, wanted.first, wanted.count),))
    if wanted.first % BLOCK or (wanted.count % BLOCK and wanted.end < made[wanted.axis]):
        return None
    end = given[axis] if wanted.end == made[wanted.axis] else wanted.end
    attributes: Attributes = {} if into else {"channels": wanted.count}
    return Needs((Slice(axis, wanted.first, end - wanted.first),), attributes)


def _from_last(axis: int, rank: int) -> int:
    """Map an axis of (N, ..., C) to the same axis of (N, C, ...)."""
    return axis and axis % (rank - 1) + 1


def _to_last(axis: int, rank: int) -> int:
    """Map an axis of (N, C, ...) to the same axis of (N, ..., C)."""
    return axis and (axis - 2) % (rank - 1) + 1


def _transpose(graph: Graph, operator: Operator, wanted: Slice) -> Needs:
    return Needs((Slice(permutation(graph, operator)[wanted.axis], wanted.first, wanted.count),))


def permutation(graph: Graph, operator: Operator) -> tuple[int, ...]:
    """The order in which a Transpose puts the axes of its input."""
    attribute = operator.attributes.get("perm", ())
    rank = len(graph.tensor(operator.inputs[0]).shape)
    return attribute if isinstance(attribute, tuple) and attribute else tuple(reversed(range(rank)))


_RULES: Final[Mapping[str, Callable[[Graph, Operator, Slice], Needs | None]]] = MappingProxyType(
    {
        **dict.fromkeys((*CONVOLVE, "ConvTranspose"), _convolution),
        **dict.fromkeys(PRODUCTS, _product),
        **dict.fromkeys(POOLING, _pooling),
        **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Resize", "Upsample"), _by_channel),
        **dict.fromkeys(_RESHAPING, _reshaping),
        **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _normalisation),
        **dict.fromkeys(("LRN", "LayerNormalization", "LogSoftmax", "Softmax", "Concat"), _along_one_axis),
        "Transpose": _transpose,
        **dict.fromkeys(("ReorderInput", "ReorderOutput"), _reordering),
    }
)
