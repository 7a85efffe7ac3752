"""What a file states for the one frame that it was exported for, rewritten to hold for any number of frames, in place.

Layers that have nothing else against it can then compute several frames in one run (`model.batches`). For one frame the
results stay the same, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.net import Net, attribute_of
from shisha_rt.model.open_shapes import all_values, static_shape
from shisha_rt.model.subgraphs import new_name

Shapes = Mapping[str, tuple[int, ...]]

_STATES_AT: Final = MappingProxyType({"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)})
"""Positions of the inputs that are initial states."""
_SEQUENCE_RANK: Final = 3  # frames, tokens, features
_MOST_ELEMENTS: Final = 1 << 22
"""Of a sequence: its tokens become a constant that is larger than it."""
_OLDEST_OPSET: Final = 11  # in older ones Pad has its pads as an attribute
_FLOATS: Final = (TensorProto.FLOAT, TensorProto.FLOAT16)


def remove_zero_states(net: Net) -> None:
    """Remove initial states that are zeros, the default: exporters write them for one frame."""
    for node in net.nodes:
        for position in () if node.domain else _STATES_AT.get(node.op_type, ()):
            state = net.constants.get(node.input[position]) if position < len(node.input) else None
            if state is not None and not numpy_helper.to_array(state).any():
                node.input[position] = ""
                while not node.input[-1]:
                    del node.input[-1]


def free_frames(net: Net) -> None:
    """Rewrite Concat operators that join constant tokens to a sequence, and Resize operators told all sizes."""
    if not any(_joins_tokens(node, net) or _is_told_sizes(node, net) for node in net.nodes):
        return
    values = all_values(net.described())
    shapes = {value.name: shape for value in values if (shape := static_shape(value)) is not None}
    taken = net.names()
    left: list[onnx.NodeProto] = []
    for node in net.nodes:
        if _joins_tokens(node, net):
            left += _with_tokens_added(node, net, shapes, taken)
        else:
            if _is_told_sizes(node, net):
                _state_scales(node, net, shapes, taken)
            left.append(node)
    net.nodes = left


def _joins_tokens(node: onnx.NodeProto, net: Net) -> bool:
    """Whether a node joins constants of one frame, such as a class token, to one sequence, within the frame."""
    if node.op_type != "Concat" or node.domain or attribute_of(node, "axis", 0) % _SEQUENCE_RANK == 0:
        return False
    if next(opset.version for opset in net.opsets if not opset.domain) < _OLDEST_OPSET:
        return False
    tokens = [net.constants[name] for name in node.input if name in net.constants]
    are_for_one = all(
        len(each.dims) == _SEQUENCE_RANK and each.dims[0] == 1 and each.data_type in _FLOATS for each in tokens
    )
    return bool(tokens) and len(tokens) == len(node.input) - 1 and are_for_one


def _with_tokens_added(node: onnx.NodeProto, net: Net, shapes: Shapes, taken: set[str]) -> Sequence[onnx.NodeProto]:
    """A Pad that makes room for the tokens, and an Add of them, which broadcasts where Concat does not.

    Beside the tokens -0.0 is added, which changes no number.
    """
    axis = attribute_of(node, "axis", 0) % _SEQUENCE_RANK
    (position,) = (at for at, name in enumerate(node.input) if name not in net.constants)
    sequence, shape = node.input[position], shapes.get(node.input[position])
    if shape is None or math.prod(shape) > _MOST_ELEMENTS:
        return [node]
    parts = [numpy_helper.to_array(net.constants[name]) for name in node.input if name != sequence]
    parts.insert(position, np.full(shape, -0.0, parts[0].dtype))
    lengths = [part.shape[axis] for part in parts]
    padded = new_name(f"{node.output[0]}/padded", taken)
    pads = np.zeros((2, _SEQUENCE_RANK), np.int64)
    pads[:, axis] = sum(lengths[:position]), sum(lengths[position + 1 :])
    room = _constant(net, f"{padded}/pads", pads.ravel(), taken)
    tokens = _constant(net, f"{node.output[0]}/tokens", np.concatenate(parts, axis), taken)
    return [
        helper.make_node("Pad", [sequence, room], [padded]),
        helper.make_node("Add", [padded, tokens], list(node.output), node.name),
    ]


def _is_told_sizes(node: onnx.NodeProto, net: Net) -> bool:
    """Whether a Resize is told the sizes of all axes, and nothing but scales follows from these."""
    return (
        node.op_type == "Resize"
        and not node.domain
        and len(node.input) > 3
        and node.input[3] in net.constants
        and attribute_of(node, "axes", None) is None
        and attribute_of(node, "keep_aspect_ratio_policy", b"stretch") == b"stretch"
        and attribute_of(node, "coordinate_transformation_mode", b"half_pixel") != b"tf_crop_and_resize"
    )


def _state_scales(node: onnx.NodeProto, net: Net, shapes: Shapes, taken: set[str]) -> None:
    """State the scales in place of the sizes, if these make the same sizes in single and in double precision.

    ONNX Runtime multiplies in single precision, ONNX's inference of shapes in double.
    """
    sizes = numpy_helper.to_array(net.constants[node.input[3]])
    given = np.array(shapes.get(node.input[0], ()), np.float32)
    if given.shape != sizes.shape or 0 in given or sizes[0] != given[0]:
        return
    scales = sizes.astype(np.float32) / given
    if all(np.array_equal(np.floor(scales * given.astype(kind)), sizes) for kind in (np.float32, np.float64)):
        node.input[2] = _constant(net, f"{node.output[0]}/scales", scales, taken)
        del node.input[3]


def _constant(net: Net, wish: str, value: npt.NDArray[Any], taken: set[str]) -> str:
    """Add a constant; return its name."""
    name = new_name(wish, taken)
    net.constants[name] = numpy_helper.from_array(value, name)
    return name
