"""A network whose answer is its input, bit for bit: so an answer tells whose it is.

It is a real CNN all the same: blocked convolutions, a skip connection over two layers, a branch that is concatenated
again. All values are whole numbers below 2**24, so that every sum is exact whatever its order.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]

NAME: Final = "identity"
LAYERS: Final = 9
CHANNELS: Final = 16
SHAPE: Final = (1, CHANNELS, 4, 4)
_PRIME, _RANGE = 4099, 2**22


def frame_of(number: int, shape: tuple[int, ...] = SHAPE) -> Array:
    """The frame called `number` (below 2**22): every element differs, and no two frames share an element's value."""
    values = (number + _PRIME * np.arange(np.prod(shape))) % _RANGE
    return values.astype(np.float32).reshape(shape)


def write_identity_model(folder: Path, *, channels: int = CHANNELS, size: int = 4, name: str = NAME) -> Path:
    """`name`.onnx: x -> y of shape (1, channels, size, size), nine layers. More channels and size make it slower."""
    weights: dict[str, npt.NDArray[Any]] = {}
    nodes: list[onnx.NodeProto] = []
    permutation = np.random.default_rng(7).permutation(channels)
    swap = np.eye(channels, dtype=np.float32)[permutation]
    unit = np.eye(channels, dtype=np.float32)
    half = np.float32(0.5)

    def conv(source: str, target: str, matrix: Array, kernel: int = 1) -> None:
        """A convolution that multiplies each pixel's channels by `matrix`."""
        values = np.zeros((*matrix.shape, kernel, kernel), np.float32)
        values[:, :, kernel // 2, kernel // 2] = matrix
        weights[f"{target}_w"] = values
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [source, f"{target}_w"], [target], name=target, pads=pads))

    def light(op_type: str, sources: list[str], target: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(op_type, sources, [target], name=target, **attributes))

    conv("x", "c0", unit, kernel=3)
    light("Relu", ["c0"], "r0")
    conv("r0", "c1", swap)
    light("Relu", ["c1"], "r1")
    conv("r1", "c2", swap.T.copy(), kernel=3)
    light("Add", ["c2", "r0"], "sum")  # the skip connection: twice the input from here ...
    conv("sum", "c3", unit * half)  # ... to here
    light("Relu", ["c3"], "r3")
    conv("r3", "left", swap, kernel=3)
    conv("r3", "right", swap.T.copy())
    light("Concat", ["left", "right"], "both", axis=1)
    conv("both", "c6", np.hstack([swap.T, swap]) * half)
    light("MaxPool", ["c6"], "pooled", kernel_shape=[1, 1])
    conv("pooled", "c7", swap, kernel=3)
    light("Relu", ["c7"], "r7")
    conv("r7", "y", swap.T.copy())
    return _write(folder, name, nodes, weights, (1, channels, size, size))


def write_long_identity_model(folder: Path, layers: int) -> Path:
    """A chain of that many convolutions (an even number), each pair of which undoes what it does."""
    swap = np.eye(CHANNELS, dtype=np.float32)[np.random.default_rng(7).permutation(CHANNELS)]
    weights: dict[str, npt.NDArray[Any]] = {"there": swap[:, :, None, None], "back": swap.T.copy()[:, :, None, None]}
    names = ["x", *(f"c{i}" for i in range(1, layers)), "y"]
    nodes = [
        helper.make_node("Conv", [source, weight], [target], name=target)
        for (source, target), weight in zip(pairwise(names), layers // 2 * ["there", "back"], strict=True)
    ]
    return _write(folder, f"{NAME}{layers}", nodes, weights, SHAPE)


def write_branching_identity_model(folder: Path, size: int = 4) -> Path:
    """One convolution, three branches of three each, one that joins them: eleven layers, and `NAME`.onnx again.

    A join lies in the layer of the last branch; so of each branch two layers can run beside the others.
    """
    unit = np.eye(CHANNELS, dtype=np.float32)
    rng = np.random.default_rng(7)
    shares = (0.5, 0.25, 0.25)
    weights: dict[str, npt.NDArray[Any]] = {
        "unit": unit[:, :, None, None],
        "join": np.hstack([np.float32(share) * unit for share in shares])[:, :, None, None],
    }
    nodes = [helper.make_node("Conv", ["x", "unit"], ["begun"], name="begun")]
    for branch in "abc":  # each with permutations of its own: equal branches would be computed once
        first, second = (unit[rng.permutation(CHANNELS)] for _ in range(2))
        names = ["begun", *(f"{branch}{i}" for i in range(3))]
        for (source, target), matrix in zip(pairwise(names), (first, second, (second @ first).T), strict=True):
            weights[f"{target}_w"] = matrix[:, :, None, None].copy()
            nodes.append(helper.make_node("Conv", [source, f"{target}_w"], [target], name=target))
    nodes.append(helper.make_node("Concat", ["a2", "b2", "c2"], ["all"], name="all", axis=1))
    nodes.append(helper.make_node("Conv", ["all", "join"], ["y"], name="y"))
    return _write(folder, NAME, nodes, weights, (1, CHANNELS, size, size))


def _write(
    folder: Path, name: str, nodes: list[onnx.NodeProto], weights: dict[str, npt.NDArray[Any]], shape: tuple[int, ...]
) -> Path:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
