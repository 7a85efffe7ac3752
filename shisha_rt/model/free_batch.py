"""Rewrite Reshape nodes so that they accept any number of frames, where `batches` says that frames stay apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from shisha_rt.model.batch_axes import Integers
from shisha_rt.model.subgraphs import new_name

_MOST_INTEGERS: Final = 64  # axes, starts and the like have one entry for each axis of a tensor


def integers_of(graph: onnx.GraphProto) -> Integers:
    """Values of the small integer constants that are stored in the model itself."""
    return {
        constant.name: tuple(numpy_helper.to_array(constant).reshape(-1).tolist())
        for constant in graph.initializer
        if constant.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
        and constant.data_location != onnx.TensorProto.EXTERNAL
        and math.prod(constant.dims) <= _MOST_INTEGERS
    }


def open_shape(shape: Sequence[int], axis: int) -> npt.NDArray[np.int64]:
    """One frame's `shape` as a Reshape has to state it to accept any number of frames along `axis`."""
    stated = np.array(shape, np.int64)
    stated[axis] = -1
    return stated


def free_batch(graph: onnx.GraphProto, reshaped: Mapping[int, int], shapes: Mapping[str, Sequence[int]]) -> None:
    """Make each Reshape in `reshaped` (node index to output axis) leave the size of that axis open, in place.

    `shapes`: the shapes of their outputs for one frame. For one frame the results stay the same.
    """
    taken = {value.name for value in (*graph.initializer, *graph.input)}
    taken |= {name for node in graph.node for name in node.output}
    for number, axis in reshaped.items():
        node = graph.node[number]
        shape = open_shape(shapes[node.output[0]], axis)
        name = new_name(f"{node.output[0]}:frames", taken)
        graph.initializer.append(numpy_helper.from_array(shape, name))
        node.input[1] = name
