"""The axis of frames, operator by operator: where it goes, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.model.batches import batches_in_words, follow_batch, layers_in_batches, why_not_together
from shisha_rt.model.free_batch import free_batch, integers_of
from shisha_rt.model.graph import Graph, Operator, Tensor
from tests.wording import says

Shape = tuple[int, ...]


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
        ("BatchNormalization", [(1, 3)], (1, 3), {"training_mode": 1}, {}, {}, "over all frames"),
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


def test_a_stage_is_kept_to_one_frame_by_any_of_its_layers() -> None:
    mixing = ("", "Softmax: it normalises over the axis of frames", "")
    assert not why_not_together(((0, 0), (2, 2)), mixing, ())
    assert "layer 1 computes one frame" in why_not_together(((0, 2),), mixing, ())
    assert batches_in_words(mixing) == says("2 of 3 layers may … layer 1: Softmax…")
    assert batches_in_words(("", "")) == says("every layer may …")


def test_freed_shapes_fit_any_number_of_frames() -> None:
    """A shape of one that two Reshapes read, of which one is not of frames, stays for the other."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Reshape", ["c", "s"], ["z"])]
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
    assert integers_of(graph) == {"s": (1, 2, 3), "y:frames": (-1, 2, 3)}
    assert [list(node.input) for node in graph.node] == [["x", "y:frames"], ["c", "s"]]
