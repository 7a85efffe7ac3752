"""The axis of frames, operator by operator: where it goes, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.model.batch_axes import Axes, MixesFrames, batch_axes_made
from shisha_rt.model.batches import batches_in_words, follow_batch, layers_in_batches, lies_apart, why_not_together
from shisha_rt.model.free_batch import free_batch, integers_of
from shisha_rt.model.graph import Graph, Operator, Tensor
from tests.wording import says

Shape = tuple[int, ...]
Read = tuple[Shape, int | None] | None
"""An input's shape and where its frames are; None instead of an axis: a constant; None alone: absent."""
ORT_ATTENTION = "com.microsoft.Attention"
ORT_HEADS = "com.microsoft.MultiHeadAttention"
ORT_WEIGHTS: tuple[Read, ...] = (((8, 24), None), ((24,), None))
LSTM_WEIGHTS: tuple[Read, ...] = (((1, 8, 5), None), ((1, 8, 2), None))


def graph_of(
    op_type: str,
    read: Sequence[Shape],
    made: Shape,
    attributes: Mapping[str, int | tuple[int, ...]],
    constants: Mapping[str, Shape],
) -> Graph:
    """Inputs x0, x1, ... of frames, then constants."""
    inputs = tuple(Tensor(f"x{i}", shape, "FP32") for i, shape in enumerate(read))
    operator = Operator("op", op_type, "", (*(tensor.name for tensor in inputs), *constants), ("y",), attributes)
    output = Tensor("y", made, "FP32")
    tensors = {tensor.name: tensor for tensor in (*inputs, output)}
    weights = {name: Tensor(name, shape, "FP32") for name, shape in constants.items()}
    return Graph("one", (operator,), inputs, (output,), tensors, weights)


@pytest.mark.parametrize(
    ("op_type", "read", "made", "attributes", "constants", "integers", "axis"),
    [
        ("Relu", [(1, 3, 4)], (1, 3, 4), {}, {}, {}, 0),
        ("Add", [(1, 3, 4)], (1, 3, 4), {}, {"c": (3, 4)}, {}, 0),
        ("Add", [(1, 3, 4)], (1, 3, 4), {}, {"c": (1, 3, 4)}, {}, 0),
        ("Add", [(1, 3, 4), (1, 3, 4)], (1, 3, 4), {}, {}, {}, 0),
        ("Conv", [(1, 3, 8, 8)], (1, 4, 8, 8), {}, {"w": (4, 3, 3, 3), "b": (4,)}, {}, 0),
        ("MatMul", [(1, 7, 5)], (1, 7, 6), {}, {"w": (5, 6)}, {}, 0),
        ("MatMul", [(12, 5)], (12, 6), {}, {"w": (5, 6)}, {}, 0),
        ("MatMul", [(1, 2, 7, 5), (1, 2, 5, 3)], (1, 2, 7, 3), {}, {}, {}, 0),
        ("Gemm", [(1, 5)], (1, 6), {"transB": 1}, {"w": (6, 5), "b": (6,)}, {}, 0),
        ("Softmax", [(1, 10)], (1, 10), {"axis": -1}, {}, {}, 0),
        ("Transpose", [(1, 3, 4)], (3, 1, 4), {"perm": (1, 0, 2)}, {}, {}, 1),
        ("Reshape", [(1, 3, 4)], (1, 12), {}, {"s": (2,)}, {}, 0),
        ("Reshape", [(1, 3, 4)], (3, 4), {}, {"s": (2,)}, {}, 0),
        ("Reshape", [(12, 4)], (1, 12, 4), {}, {"s": (3,)}, {}, 0),
        ("Flatten", [(1, 3, 4)], (1, 12), {"axis": 1}, {}, {}, 0),
        ("Squeeze", [(1, 3, 1)], (1, 3), {}, {"a": (1,)}, {"a": (2,)}, 0),
        ("Unsqueeze", [(1, 3)], (1, 1, 3), {}, {"a": (1,)}, {"a": (0,)}, 1),
        ("Gather", [(1, 9, 4)], (1, 4), {"axis": 1}, {"i": ()}, {}, 0),
        ("ReduceMean", [(1, 3, 4)], (1, 3), {"axes": (2,), "keepdims": 0}, {}, {}, 0),
        ("ArgMax", [(1, 9)], (1,), {"axis": 1, "keepdims": 0}, {}, {}, 0),
        ("Concat", [(1, 3), (1, 4)], (1, 7), {"axis": 1}, {}, {}, 0),
        ("Slice", [(1, 3, 8)], (1, 3, 4), {}, {"s": (1,), "e": (1,), "a": (1,)},
         {"s": (0,), "e": (4,), "a": (2,)}, 0),
        ("Slice", [(1, 8)], (1, 8), {}, {"s": (2,), "e": (2,)}, {"s": (0, 0), "e": (10**9, 10**9)}, 0),
        ("Expand", [(1, 1, 4)], (1, 3, 4), {}, {"s": (3,)}, {}, 0),
        ("Resize", [(1, 3, 4, 4)], (1, 3, 8, 8), {"axes": (-2, 3)},
         {"roi": (0,), "scales": (0,), "sizes": (2,)}, {}, 0),
        ("CumSum", [(1, 3, 4)], (1, 3, 4), {}, {"a": ()}, {"a": (-1,)}, 0),
        ("MatMulNBits", [(1, 7, 64)], (1, 7, 9), {"K": 64, "N": 9}, {"w": (9, 2, 16), "s": (18,)}, {}, 0),
        ("MatMulBnb4", [(12, 64)], (12, 9), {"K": 64, "N": 9}, {"w": (288,), "s": (18,)}, {}, 0),
        ("SkipSimplifiedLayerNormalization", [(1, 7, 8), (1, 7, 8)], (1, 7, 8), {}, {"scale": (8,)}, {}, 0),
    ],
)  # fmt: skip
def test_frames_are_followed(
    op_type: str,
    read: Sequence[Shape],
    made: Shape,
    attributes: Mapping[str, int | tuple[int, ...]],
    constants: Mapping[str, Shape],
    integers: Mapping[str, tuple[int, ...]],
    axis: int,
) -> None:
    followed = follow_batch(graph_of(op_type, read, made, attributes, constants), integers)
    assert not followed.mixing
    assert followed.axes["y"] == axis
    assert followed.reshaped == ({0: axis} if op_type == "Reshape" else {})


@pytest.mark.parametrize(
    ("op_type", "read", "made", "attributes", "constants", "integers", "said"),
    [
        ("DynamicQuantizeLinear", [(1, 3)], (1, 3), {}, {}, {}, "its scale is"),
        ("NonMaxSuppression", [(1, 9, 4)], (3, 3), {}, {}, {}, "its size depends"),
        ("Frobnicate", [(1, 3)], (1, 3), {}, {}, {}, "not known"),
        ("Add", [(12, 4)], (12, 4), {}, {"c": (12, 4)}, {}, "a constant differs"),
        ("Add", [(1, 3), (1,)], (1, 3), {}, {}, {}, "along different axes"),
        ("Softmax", [(1, 10)], (1, 10), {"axis": 0}, {}, {}, "normalises over the"),
        ("ReduceMean", [(1, 3)], (1, 1), {"axes": (0, 1)}, {}, {}, "reduces the axis"),
        ("ReduceSum", [(1, 3)], (1, 1), {}, {"a": (1,)}, {}, "not known beforehand"),
        ("ReduceMax", [(1, 3)], (1, 1), {}, {}, {}, "reduces all axes"),
        ("Concat", [(1, 3), (1, 3)], (2, 3), {"axis": 0}, {}, {}, "joins along the"),
        ("Concat", [(1, 3)], (1, 7), {"axis": 1}, {"c": (1, 4)}, {}, "the same for"),
        ("Transpose", [()], (), {}, {}, {}, "no axis for"),
        ("Reshape", [(2, 6)], (3, 4), {}, {}, {}, "not known beforehand"),
        ("Squeeze", [(1, 3)], (3,), {}, {}, {}, "drops every axis"),
        ("Squeeze", [(1, 3)], (3,), {"axes": (0,)}, {}, {}, "drops the axis"),
        ("Gather", [(1, 9)], (9,), {"axis": 0}, {"i": ()}, {}, "reads along the"),
        ("Slice", [(1, 3)], (1, 3), {}, {"s": (1,), "e": (1,)}, {"s": (0,), "e": (1,)}, "cuts the axis"),
        ("Slice", [(10, 3)], (10, 3), {}, {"s": (1,), "e": (1,)}, {"s": (0,), "e": (600,)}, "cuts the axis"),
        ("Resize", [(1, 3, 4, 4)], (1, 3, 8, 8), {}, {"roi": (0,), "scales": (0,), "sizes": (4,)}, {}, "told the size"),
        ("Resize", [(1, 3)], (1, 8), {"axes": (0, 1)},
         {"roi": (0,), "scales": (0,), "sizes": (2,)}, {}, "told the size"),
        ("CumSum", [(1, 3)], (1, 3), {}, {"a": ()}, {"a": (-2,)}, "reads along the"),
        ("CumSum", [(1, 3)], (1, 3), {}, {"a": ()}, {}, "not known beforehand"),
        ("BatchNormalization", [(1, 3)], (1, 3), {"training_mode": 1}, {}, {}, "over all frames"),
        ("MatMulNBits", [(64,)], (9,), {"K": 64, "N": 9}, {"w": (9, 2, 16), "s": (18,)}, {}, "reads along the"),
    ],
)  # fmt: skip
def test_what_mixes_frames_says_why(
    op_type: str,
    read: Sequence[Shape],
    made: Shape,
    attributes: Mapping[str, int | tuple[int, ...]],
    constants: Mapping[str, Shape],
    integers: Mapping[str, tuple[int, ...]],
    said: str,
) -> None:
    followed = follow_batch(graph_of(op_type, read, made, attributes, constants), integers)
    assert said in followed.mixing[0]
    assert followed.mixing[0].startswith(f"{op_type}: ")
    assert followed.axes["y"] == 0, "behind it frames begin anew"


def axes_made(
    op_type: str,
    read: Sequence[Read],
    made: Sequence[Shape | None],
    attributes: Mapping[str, int | tuple[int, ...]] | None = None,
    integers: Mapping[str, tuple[int, ...]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> Axes:
    inputs = {f"x{i}": (Tensor(f"x{i}", of[0], "FP32"), of[1]) for i, of in enumerate(read) if of}
    outputs = {f"y{i}": Tensor(f"y{i}", shape, "FP32") for i, shape in enumerate(made) if shape is not None}
    names = [f"x{i}" if f"x{i}" in inputs else "" for i in range(len(read))]
    domain, _, kind = op_type.rpartition(".")
    operator = Operator(
        "op",
        kind,
        domain,
        tuple(names),
        tuple(f"y{i}" if f"y{i}" in outputs else "" for i in range(len(made))),
        attributes or {},
        texts or {},
    )
    moving = {name: tensor for name, (tensor, axis) in inputs.items() if axis is not None}
    constants = {name: tensor for name, (tensor, axis) in inputs.items() if axis is None}
    graph = Graph("one", (operator,), tuple(moving.values()), tuple(outputs.values()), moving | outputs, constants)
    axes = tuple(inputs[name][1] if name else None for name in names)
    return batch_axes_made(graph, operator, axes, integers or {})


@pytest.mark.parametrize(
    ("op_type", "read", "made", "attributes", "integers", "axis"),
    [
        ("Add", [((3, 1, 4), 1), ((4,), None)], (3, 1, 4), {}, {}, 1),
        ("Add", [((1, 4), 0), ((5, 1, 4), None)], (5, 1, 4), {}, {}, 1),
        ("Add", [((2, 4), 0), ((2, 4), 0)], (2, 4), {}, {}, 0),
        ("Add", [((2, 4), 0), ((1, 4), None)], (2, 4), {}, {}, 0),
        ("Add", [((2, 4), 0), ((1, 4), 0)], (2, 4), {}, {}, None),
        ("Clip", [((1, 4), 0), None, ((), None)], (1, 4), {}, {}, 0),
        ("Conv", [((1, 3, 8, 8), 0), ((4, 3, 3, 3), 0)], (1, 4, 6, 6), {}, {}, None),
        ("MaxPool", [((3, 1, 4), 0)], (3, 1, 2), {}, {}, 0),
        ("MaxPool", [((3, 1, 4), 1)], (3, 1, 2), {}, {}, None),
        ("Resize", [((1, 3, 4), 0), None, ((3,), None)], (1, 3, 8), {}, {}, 0),
        ("Resize", [((1, 3, 4), 0), None, ((3,), None)], (2, 3, 4), {}, {}, None),
        ("BatchNormalization", [((1, 3), 0), ((3,), None)], (1, 3), {}, {}, 0),
        ("MatMul", [((5,), None), ((1, 5, 6), 0)], (1, 6), {}, {}, None),
        ("MatMul", [((4, 1, 5), 1), ((5, 6), None)], (4, 1, 6), {}, {}, 1),
        ("MatMul", [((2, 1, 4, 5), 1), ((5, 6), None)], (2, 1, 4, 6), {}, {}, 1),
        ("MatMul", [((7, 1, 5), 1), ((5,), None)], (7, 1), {}, {}, 1),
        ("MatMul", [((5, 1), 1), ((1, 6), None)], (5, 6), {}, {}, None),
        ("MatMul", [((1, 4, 5), 0), ((1, 5, 6), None)], (1, 4, 6), {}, {}, 0),
        ("MatMul", [((1, 4, 5), 0), ((2, 5, 6), None)], (2, 4, 6), {}, {}, None),
        ("MatMul", [((4, 1, 5), 1), ((4, 5, 6), None)], (4, 1, 6), {}, {}, 1),
        ("MatMul", [((3, 4), None), ((1, 4, 5), 0)], (1, 3, 5), {}, {}, 0),
        ("MatMul", [((1, 3, 4), None), ((1, 4, 5), 0)], (1, 3, 5), {}, {}, 0),
        ("MatMul", [((2, 3, 4), None), ((1, 4, 5), 0)], (2, 3, 5), {}, {}, None),
        ("MatMul", [((3, 4), None), ((4, 1), 1)], (3, 1), {}, {}, None),
        ("MatMul", [((1, 1), None), ((1, 5), 0)], (1, 5), {}, {}, None),
        ("MatMul", [((2, 3, 4), 0), ((2, 4, 5), 0)], (2, 3, 5), {}, {}, 0),
        ("MatMul", [((2, 1, 3, 4), 1), ((2, 1, 4, 5), 1)], (2, 1, 3, 5), {}, {}, 1),
        ("MatMul", [((1, 1, 3, 4), 0), ((1, 1, 4, 5), 1)], (1, 1, 3, 5), {}, {}, None),
        ("MatMul", [((1, 3, 4), 0), ((2, 4, 5), 0)], (2, 3, 5), {}, {}, None),
        ("FusedMatMul", [((5, 1), 1), ((5, 6), None)], (1, 6), {"transA": 1}, {}, 0),
        ("FusedMatMul", [((1, 5), 0), ((1, 6), None)], (5, 6), {"transA": 1}, {}, None),
        ("FusedMatMul", [((3, 1, 4), 0), ((1, 4, 5), None)], (1, 3, 5), {"transBatchA": 1}, {}, None),
        ("Gemm", [((5, 1), 1), ((5, 6), None)], (1, 6), {"transA": 1}, {}, 0),
        ("Gemm", [((5, 1), 0), ((5, 6), None)], (1, 6), {"transA": 1}, {}, None),
        ("Gemm", [((5, 1), 1), ((1, 6), None)], (5, 6), {}, {}, None),
        ("Gemm", [((3, 5), 0), ((5, 6), None), ((3, 6), None)], (3, 6), {}, {}, None),
        ("Gemm", [((3, 5), 0), ((5, 6), None), ((1, 6), None)], (3, 6), {}, {}, 0),
        ("Gemm", [((3, 5), 0), ((5, 6), None), ((3, 6), 0)], (3, 6), {}, {}, 0),
        ("Gemm", [((3, 5), 0), ((5, 6), None), ((1, 6), 0)], (3, 6), {}, {}, None),
        ("Gemm", [((1, 5), 0), ((5, 1), None), ((1, 1), 1)], (1, 1), {}, {}, None),
        ("Gemm", [((1, 5), 0), ((5, 1), None), ((1,), 0)], (1, 1), {}, {}, None),
        ("Softmax", [((1, 4), 0)], (1, 4), {}, {}, 0),
        ("Softmax", [((3, 1, 4), 1)], (3, 1, 4), {"axis": 2}, {}, 1),
        ("Softmax", [((3, 1, 4), 1)], (3, 1, 4), {}, {}, None),
        ("LayerNormalization", [((3, 1, 4), 1)], (3, 1, 4), {}, {}, 1),
        ("LayerNormalization", [((3, 1), 1)], (3, 1), {}, {}, None),
        ("GatherBlockQuantized", [((50, 16), None), ((1, 7), 0), ((50, 2), None)], (1, 7, 32), {}, {}, 0),
        ("GatherBlockQuantized", [((4, 50, 16), None), ((1, 7), 0), ((4, 50, 2), None)], (4, 1, 7, 32),
         {"gather_axis": 1}, {}, 1),
        ("Scaler", [((2, 4), 0)], (2, 4), {}, {}, 0),
        ("TreeEnsembleRegressor", [((1,), 0)], (1, 1), {}, {}, None),
        ("SkipLayerNormalization", [((1, 4, 8), 0), ((1, 4, 8), 0)], (1, 4, 8), {}, {}, 0),
        ("SkipLayerNormalization", [((1, 1, 8), 0), ((1, 1, 8), 1)], (1, 1, 8), {}, {}, None),
        ("SkipLayerNormalization", [((1, 4, 8), 0), ((1, 1, 8), 0)], (1, 4, 8), {}, {}, None),
        ("SkipLayerNormalization", [((4, 8, 1), 2), ((4, 8, 1), 2)], (4, 8, 1), {}, {}, None),
        ("LpNormalization", [((1, 4), 0)], (1, 4), {}, {}, 0),
        ("LpNormalization", [((4, 1), 1)], (4, 1), {}, {}, None),
        ("Split", [((1, 4), 0)], (1, 4), {"axis": 1}, {}, 0),
        ("Split", [((1, 4), 0)], (1, 4), {}, {}, None),
        ("ReduceMean", [((3, 1, 4), 1)], (1, 4), {"axes": (0,), "keepdims": 0}, {}, 0),
        ("ReduceMean", [((3, 1, 4), 1)], (3, 1), {"axes": (-1,), "keepdims": 0}, {}, 1),
        ("ReduceMean", [((3, 1, 4), 1)], (1, 1, 4), {"axes": (0,)}, {}, 1),
        ("ReduceSum", [((3, 1), 1)], (3, 1), {"noop_with_empty_axes": 1}, {}, 1),
        ("ArgMax", [((3, 1), 1)], (1,), {"keepdims": 0}, {}, 0),
        ("Transpose", [((1, 3, 4), 0)], (4, 3, 1), {}, {}, 2),
        ("Reshape", [((1, 1, 4), 1), ((4,), None)], (1, 1, 2, 2), {}, {}, 1),
        ("Reshape", [((2, 1, 6), 1), ((2,), None)], (2, 6), {}, {}, 1),
        ("Reshape", [((2, 1, 6), 1), ((2,), None)], (3, 4), {}, {}, None),
        ("Reshape", [((1, 0), 0), ((2,), None)], (1, 0), {}, {}, None),
        ("Reshape", [((1, 4), 0), ((2,), 0)], (2, 2), {}, {}, None),
        ("Flatten", [((3, 1, 4), 1)], (3, 4), {}, {}, 1),
        ("Flatten", [((1, 3, 4), 0)], (3, 4), {"axis": -1}, {}, 0),
        ("Flatten", [((1, 3), 0)], (1, 3), {"axis": 0}, {}, 1),
        ("Flatten", [((3, 1, 4), 1)], (3, 4), {"axis": 2}, {}, None),
        ("Flatten", [((3, 4, 1), 2)], (3, 4), {}, {}, None),
        ("Squeeze", [((1, 1, 3), 1)], (1, 3), {"axes": (-3,)}, {}, 0),
        ("Squeeze", [((1, 3, 1), 0)], (1, 3), {"axes": (-1,)}, {}, 0),
        ("Unsqueeze", [((3, 1), 1)], (1, 3, 1), {"axes": (-3,)}, {}, 2),
        ("Concat", [((1, 3), 0), ((1, 4), 0)], (1, 7), {}, {}, 0),
        ("Concat", [((3, 1), 1), ((3, 1), 1)], (6, 1), {"axis": 0}, {}, 1),
        ("Concat", [((1, 1), 0), ((1, 1), 1)], (1, 2), {"axis": -1}, {}, None),
        ("Concat", [((3, 1), 1), ((3, 1), 1)], (3, 2), {"axis": -1}, {}, None),
        ("Slice", [((3, 1), 1)], (2, 1), {"axes": (0,), "starts": (1,), "ends": (3,)}, {}, 1),
        ("Slice", [((9, 3), 0)], (8, 3), {"starts": (1,), "ends": (2**31,)}, {}, None),
        ("Slice", [((3, 1), 1)], (3, 1), {"axes": (-1,), "starts": (0,), "ends": (1,)}, {}, None),
        ("Slice", [((3, 1), 1)] + 4 * [((1,), None)], (3, 1), {},
         {"x1": (0,), "x2": (9999,), "x3": (1,), "x4": (2,)}, None),
        ("Gather", [((9, 4), None), ((7, 1), 1)], (7, 1, 4), {}, {}, 1),
        ("Gather", [((4, 9), None), ((1, 7), 0)], (4, 1, 7), {"axis": -1}, {}, 1),
        ("Gather", [((9, 1), 1), ((5, 2, 3), None)], (5, 2, 3, 1), {}, {}, 3),
        ("Gather", [((1, 9), 0), ((5, 2), None)], (1, 5, 2), {"axis": 1}, {}, 0),
        ("Gather", [((1, 9), 0), ((1, 2), 0)], (1, 1, 2), {"axis": 1}, {}, None),
        ("GatherElements", [((1, 5), 0), ((1, 3), 0)], (1, 3), {"axis": 1}, {}, 0),
        ("GatherElements", [((1, 5), 0), ((1, 5), 0)], (1, 5), {}, {}, None),
        # Of two frames, the second one's indices would lie beside the rows that the first one does not read.
        ("GatherElements", [((4, 5), 0), ((2, 3), 0)], (2, 3), {"axis": 1}, {}, None),
        ("GatherElements", [((1, 1, 5), 0), ((1, 1, 5), 1)], (1, 1, 5), {"axis": 2}, {}, None),
        ("Pad", [((1, 3), 0)], (1, 5), {}, {}, 0),
        ("Pad", [((3, 1), 1)], (3, 3), {}, {}, None),
        ("Pad", [((1, 3), 0)], (1, 5), {"pads": (0, 1, 0, 1)}, {}, 0),
        ("Pad", [((2, 3), 0)], (2, 3), {"pads": (-1, 0, 1, 0)}, {}, None),
        ("Pad", [((2, 3), 0), ((4,), None)], (2, 3), {}, {"x1": (1, 0, -1, 0)}, None),
        ("Pad", [((1, 3), 0), ((2,), None), None, ((1,), None)], (1, 4), {}, {"x1": (1, 0), "x3": (-1,)}, 0),
        ("Pad", [((2, 3), 0), ((2,), None), None, ((1,), None)], (2, 3), {}, {"x1": (1, -1), "x3": (-2,)}, None),
        ("Pad", [((2, 3), 0), ((4,), None)], (2, 3), {}, {}, None),
        ("LayerNormalization", [((2, 3, 4), 0), *2 * [((1, 3, 4), None)]], (2, 3, 4), {}, {}, 0),
        ("LayerNormalization", [((2, 3, 4), 0), *2 * [((2, 1, 4), None)]], (2, 3, 4), {}, {}, None),
        ("RMSNormalization", [((3, 1, 4), 1), ((3, 1, 4), None)], (3, 1, 4), {}, {}, 1),
        ("Expand", [((4, 1), 1), ((3,), None)], (2, 4, 1), {}, {}, 2),
        ("Expand", [((1, 4), 0), ((2,), None)], (2, 4), {}, {}, None),
        ("DequantizeLinear", [((1, 4), 0), ((4,), None)], (1, 4), {}, {}, 0),
        ("DequantizeLinear", [((3, 4), 1), ((4,), None)], (3, 4), {"axis": -1}, {}, None),
        ("DequantizeLinear", [((3, 1), 1), ((1,), None)], (3, 1), {}, {}, 1),
        ("DequantizeLinear", [((1, 8), 0), ((1, 2), None)], (1, 8), {"block_size": 4}, {}, None),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS], (7, 1, 1, 2), {}, {}, 2),
        ("LSTM", [((7, 1, 5), 0), *LSTM_WEIGHTS], (7, 1, 1, 2), {}, {}, None),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS], (7, 1, 1, 2), {"layout": 1}, {}, None),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS, None, ((1,), 0)], (7, 1, 1, 2), {}, {}, 2),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS, None, ((1,), None)], (7, 1, 1, 2), {}, {}, None),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS, None, None, *2 * [((1, 1, 2), 1)]], (7, 1, 1, 2), {}, {}, 2),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS, None, None, ((1, 1, 2), 0)], (7, 1, 1, 2), {}, {}, None),
        ("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS, None, None, None, ((1, 1, 2), 0)], (7, 1, 1, 2), {}, {}, None),
        (ORT_ATTENTION, [((1, 4, 8), 0), ((8, 24), None), ((24,), None)], (1, 4, 8), {}, {}, 0),
        (ORT_ATTENTION, [((1, 4, 8), 1), ((8, 24), None), ((24,), None)], (1, 4, 8), {}, {}, None),
        (ORT_ATTENTION, [((1, 4, 8), 0), ((8, 24), None), ((24,), None), ((1, 4), None)], (1, 4, 8), {}, {}, None),
        (ORT_ATTENTION, [((1, 4, 8), 0), ((8, 24), None), ((24,), None), ((1, 4), 0)], (1, 4, 8), {}, {}, 0),
        (ORT_ATTENTION, [((1, 4, 8), 0), ((8, 24), 0)], (1, 4, 8), {}, {}, None),
        ("Attention", [*3 * [((1, 4, 8), 0)]], (1, 4, 8), {}, {}, 0),
        ("Attention", [*3 * [((1, 4, 8), 0)], ((4, 4), None)], (1, 4, 8), {}, {}, 0),
        ("Attention", [*3 * [((1, 4, 8), 0)], ((1, 1, 4, 4), 0)], (1, 4, 8), {}, {}, 0),
        ("Attention", [*3 * [((1, 4, 8), 0)], ((1, 4), 0)], (1, 4, 8), {}, {}, None),
        ("Attention", [*3 * [((2, 4, 8), 0)], ((2, 1, 4, 4), None)], (2, 4, 8), {}, {}, None),
        ("Attention", [((1, 4, 8), 0), *2 * [((1, 4, 8), None)]], (1, 4, 8), {}, {}, None),
        ("Attention", [*3 * [((1, 4, 8), 0)], None, *2 * [((1, 2, 3, 4), 0)]], (1, 4, 8), {}, {}, 0),
        ("QLinearSoftmax", [((1, 9), 0), *4 * [((), None)]], (1, 9), {"axis": -1}, {}, 0),
        ("QLinearSoftmax", [((1, 9), 0), *4 * [((), None)]], (1, 9), {"axis": 0}, {}, None),
        # A frame's ends and starts of two sequences: those of two frames are not the ends of four, and then the starts.
        (ORT_ATTENTION, [((2, 4, 8), 0), *ORT_WEIGHTS, ((4,), 0)], (2, 4, 8), {}, {}, None),
        (ORT_ATTENTION, [((1, 4, 8), 0), *ORT_WEIGHTS, None, None, ((1, 2, 4, 4), None)], (1, 4, 8), {}, {}, 0),
        (ORT_ATTENTION, [((2, 4, 8), 0), *ORT_WEIGHTS, None, None, ((2, 2, 4, 4), None)], (2, 4, 8), {}, {}, None),
        ("Attention", [*3 * [((2, 4, 8), 0)], ((1, 1, 4, 4), 0)], (2, 4, 8), {}, {}, None),
        (ORT_HEADS, [*3 * [((1, 4, 8), 0)], ((24,), None)], (1, 4, 8), {}, {}, 0),
        (ORT_HEADS, [*3 * [((1, 4, 8), 0)], ((24,), 0)], (1, 4, 8), {}, {}, None),
        (ORT_HEADS, [((1, 4, 8), 0), *2 * [((1, 5, 8), None)]], (1, 4, 8), {}, {}, None),
        (ORT_HEADS, [*3 * [((1, 4, 8), 0)], None, ((1, 4), None)], (1, 4, 8), {}, {}, None),
        (ORT_HEADS, [*3 * [((1, 4, 8), 0)], None, ((1, 4), 0)], (1, 4, 8), {}, {}, 0),
        ("EmbedLayerNormalization", [((1, 4), 0), ((1, 4), None), ((9, 8), None)], (1, 4, 8), {}, {}, None),
        ("EmbedLayerNormalization", [((1, 4), 0), None, ((9, 8), None)], (1, 4, 8), {}, {}, 0),
        ("EmbedLayerNormalization", [((1, 4), None), ((1, 4), 0)], (1, 4, 8), {}, {}, None),
        ("EmbedLayerNormalization", [((4, 1), 1), None, ((9, 8), None)], (4, 1, 8), {}, {}, None),
    ],
)  # fmt: skip
def test_frames_may_come_along_any_axis(
    op_type: str,
    read: Sequence[Read],
    made: Shape,
    attributes: Mapping[str, int | tuple[int, ...]],
    integers: Mapping[str, tuple[int, ...]],
    axis: int | None,
) -> None:
    """`axis`: of the output; None: frames are mixed."""
    if axis is None:
        with pytest.raises(MixesFrames):
            axes_made(op_type, read, [made], attributes, integers)
    else:
        assert axes_made(op_type, read, [made], attributes, integers)[0] == axis


@pytest.mark.parametrize(
    ("equation", "read", "made", "axis"),
    [
        ("bij,jk->bik", [((1, 3, 4), 0), ((4, 5), None)], (1, 3, 5), 0),
        ("bhid, bhjd -> bhij", [((1, 2, 3, 4), 0), ((1, 2, 5, 4), 0)], (1, 2, 3, 5), 0),
        ("ibd,hd->hib", [((3, 1, 4), 1), ((2, 4), None)], (2, 3, 1), 2),
        ("bij,bjk->bik", [((1, 3, 4), 0), ((1, 4, 5), None)], (1, 3, 5), 0),
        ("bij,bjk->bik", [((2, 3, 4), 0), ((2, 4, 5), None)], (2, 3, 5), None),
        ("bij,bjk->bik", [((1, 3, 4), 0), ((2, 4, 5), 0)], (2, 3, 5), None),
        ("bij,bjk->bik", [((1, 1, 4), 0), ((1, 4, 5), 1)], (1, 1, 5), None),
        ("bij->ij", [((1, 3, 4), 0)], (3, 4), None),
        ("bij->bbj", [((1, 1, 4), 0)], (1, 1, 4), None),
        ("bbj->bj", [((1, 1, 4), 0)], (1, 4), None),
        ("...ij,jk->...ik", [((1, 2, 3, 4), 0), ((4, 5), None)], (1, 2, 3, 5), 0),
        ("i...,...k->...ik", [((3, 1, 2), 1), ((2, 4), None)], (1, 2, 3, 4), 0),
        ("bij,jk", [((1, 3, 4), 0), ((4, 5), None)], (1, 3, 5), 0),
        ("jbi,kj", [((4, 1, 3), 1), ((5, 4), None)], (1, 3, 5), 0),
        ("...ij,jk", [((1, 3, 4), 0), ((4, 5), None)], (1, 3, 5), 0),
        ("bij,jk->bik", [((1, 3, 4), 0), ((2, 4, 5), None)], (1, 3, 5), None),
        ("bij->bij", [((1, 3, 4), 0), ((4, 5), None)], (1, 3, 5), None),
    ],
)
def test_the_equation_says_where_frames_go(equation: str, read: Sequence[Read], made: Shape, axis: int | None) -> None:
    """`axis`: of the output; None: frames are mixed, or the equation is no such one."""
    if axis is None:
        with pytest.raises(MixesFrames):
            axes_made("Einsum", read, [made], texts={"equation": equation})
    else:
        assert axes_made("Einsum", read, [made], texts={"equation": equation}) == (axis,)


def test_each_output_has_its_frames_along_an_axis_of_its_own() -> None:
    states = [(7, 1, 1, 2), (1, 1, 2), (1, 1, 2)]
    assert axes_made("LSTM", [((7, 1, 5), 1), *LSTM_WEIGHTS], states) == (2, 1, 1)
    summed = [(1, 4, 8), None, None, (1, 4, 8)]
    assert axes_made("SkipLayerNormalization", [((1, 4, 8), 0), ((1, 4, 8), 0)], summed) == (0, None, None, 0)
    assert axes_made("MaxPool", [((1, 3, 4), 0)], [(1, 3, 2), None])[0] == 0
    with pytest.raises(MixesFrames, match="indices"):
        axes_made("MaxPool", [((1, 3, 4), 0)], [(1, 3, 2), (1, 3, 2)])


def test_what_follows_from_constants_alone_is_the_same_for_all_frames() -> None:
    assert axes_made("Frobnicate", [((1, 3), None), None], [(1, 3), (1,)]) == (None, None)


def test_what_has_frames_behind_each_other_only_inside_a_stage_ties_layers() -> None:
    """Between the second and the third operator frames are along the second axis, of sequences first."""
    names = ["x", "a", "b", "y"]
    shapes = {"x": (1, 5, 4), "a": (1, 5, 4), "b": (5, 1, 4), "y": (1, 5, 4)}
    tensors = {name: Tensor(name, shapes[name], "FP32") for name in names}
    operators = (
        Operator("first", "Relu", "", ("x",), ("a",), {}),
        Operator("turned", "Transpose", "", ("a",), ("b",), {"perm": (1, 0, 2)}),
        Operator("back", "Transpose", "", ("b",), ("y",), {"perm": (1, 0, 2)}),
    )
    graph = Graph("turned", operators, (tensors["x"],), (tensors["y"],), tensors, {})
    layers = layers_in_batches(graph, (0, 1, 2), 3, follow_batch(graph, {}))
    assert layers.mixing == ("", "", "")
    assert layers.tied == ((1, 2),)
    assert not layers.whole
    assert not why_not_together(((0, 2),), layers.mixing, layers.tied)
    assert not why_not_together(((0, 0),), layers.mixing, layers.tied)
    assert "1, 2 do not lie" in why_not_together(((0, 1),), layers.mixing, layers.tied)


@pytest.mark.parametrize(
    ("shape", "perm", "apart"),
    [((1, 3, 4), (1, 0, 2), False), ((1, 1, 4), (1, 0, 2), True), ((1, 3, 4), (0, 2, 1), True)],
)
def test_a_request_of_several_frames_needs_outputs_with_frames_first(shape: Shape, perm: Shape, apart: bool) -> None:
    made = tuple(shape[axis] for axis in perm)
    graph = graph_of("Transpose", [shape], made, {"perm": perm}, {})
    layers = layers_in_batches(graph, (0,), 1, follow_batch(graph, {}))
    assert bool(layers.mixing[0]) != apart
    assert bool(layers.whole) == (perm[0] != 0)


def test_a_layer_mixes_frames_for_its_first_reason_and_an_output_that_is_an_input_has_no_layer() -> None:
    x, y, s = Tensor("x", (1, 4), "FP32"), Tensor("y", (1, 4), "FP32"), Tensor("s", (), "FP32")
    operators = (
        Operator("a", "Unknown", "", ("x",), ("y", "", "s"), {}),
        Operator("b", "Softmax", "", ("y",), ("z",), {"axis": 0}),
        Operator("c", "Clip", "", ("x", "", "k"), ("v",), {}),
    )
    tensors = {"x": x, "y": y, "s": s, "z": Tensor("z", (1, 4), "FP32"), "v": Tensor("v", (1, 4), "FP32")}
    graph = Graph("g", operators, (x,), (x, tensors["v"]), tensors, {"k": Tensor("k", (), "FP32")})
    followed = follow_batch(graph, {})
    assert list(followed.mixing) == [0, 1]
    layers = layers_in_batches(graph, (0, 0, 1), 2, followed)
    assert layers.mixing[0].startswith("Unknown")
    assert layers.mixing[1] == ""
    assert layers.whole == layers.mixing[0]
    assert not lies_apart(graph, "s", 0)
    tensors["z"] = Tensor("z", (1, 4), "FP32", open_axes=(1,))
    assert "'z'" in follow_batch(graph, {}).mixing[1]
    only = Graph("g", operators[2:], (x,), (x, tensors["v"]), tensors, graph.constants)
    assert layers_in_batches(only, (0,), 1, follow_batch(only, {})).whole


def test_what_follows_from_constants_has_no_axis_of_frames_further_on() -> None:
    names = ("x", "d", "y")
    tensors = {name: Tensor(name, (1, 4), "FP32") for name in names}
    constants = {"c": Tensor("c", (1, 4), "INT8"), "s": Tensor("s", (), "FP32")}
    operators = (
        Operator("weights", "DequantizeLinear", "", ("c", "s"), ("d",), {}),
        Operator("sum", "Add", "", ("x", "d"), ("y",), {}),
    )
    graph = Graph("g", operators, (tensors["x"],), (tensors["y"],), tensors, constants)
    followed = follow_batch(graph, {})
    assert followed.axes == {"x": 0, "y": 0}
    handed_out = Graph("g", operators, graph.inputs, (tensors["d"], tensors["y"]), tensors, constants)
    layers = layers_in_batches(handed_out, (0, 1), 2, followed)
    assert list(map(bool, layers.mixing)) == [True, False]
    assert layers.whole


def test_a_stage_is_kept_to_one_frame_by_any_of_its_layers() -> None:
    mixing = ("", "Softmax: it normalises over the axis of frames", "")
    assert not why_not_together(((0, 0), (2, 2)), mixing, ())
    assert "layer 1 computes one frame" in why_not_together(((0, 2),), mixing, ())
    assert batches_in_words(mixing) == says("2 of 3 layers may … layer 1: Softmax…")
    assert batches_in_words(mixing[1:2]) == says("no layer may …Softmax…")
    assert batches_in_words(("", "")) == says("every layer may …")


def test_freed_shapes_fit_any_number_of_frames() -> None:
    """A shape of one that two Reshapes read, of which one is not of frames, stays for the other.

    The new shape has the name of no tensor: a network with one of that name could not be run.
    """
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Reshape", ["c", "s"], ["y:frames"])]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [],
        [
            onnx.numpy_helper.from_array(np.array([1, 2, 3]), "s"),
            onnx.numpy_helper.from_array(np.zeros((1, 6), np.float32), "c"),
        ],
    )
    assert integers_of(graph) == {"s": (1, 2, 3)}
    free_batch(graph, {0: 0}, {"y": (1, 2, 3)})
    assert integers_of(graph) == {"s": (1, 2, 3), "y:frames_1": (-1, 2, 3)}
    assert [list(node.input) for node in graph.node] == [["x", "y:frames_1"], ["c", "s"]]
