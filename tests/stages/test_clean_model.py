"""Cutting the cleaned graph: anywhere, with the weights where they are, and together the cuts compute the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from shisha_rt.placement.segments import segment
from tests.model.networks import network, run, weight
from tests.stages.clean_models import Arrays, branching, evaluated, random_feeds, saved, whole


@pytest.mark.parametrize("cut_after", range(7))
def test_two_cuts_compute_the_whole(cut_after: int, tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    feeds = random_feeds(model, whole(model))
    values: Arrays = dict(feeds)
    for part in (segment(model.graph, 0, cut_after, "a"), segment(model.graph, cut_after + 1, 7, "b")):
        values |= evaluated(model, part, {name: values[name] for name in part.inputs})
    for name, expected in zip(("early", "y"), run(branching(), feeds), strict=True):
        np.testing.assert_allclose(values[name], expected, rtol=1e-4, atol=1e-5)


def test_a_cut_has_the_segments_tensors_in_its_order(tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    middle = segment(model.graph, 2, 4, "a")
    cut = model.cut(middle)
    assert [value.name for value in cut.graph.input] == list(middle.inputs) == ["b", "gain"]
    assert [value.name for value in cut.graph.output] == list(middle.outputs) == ["early", "d"]
    assert [node.op_type for node in cut.graph.node] == ["Conv", "Add", "Mul"]
    onnx.checker.check_model(model.with_weights(cut), full_check=True)


def test_a_segment_as_a_graph_of_its_own(tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    graph = model.graph_of(segment(model.graph, 2, 4, "a"))
    assert [operator.name for operator in graph.operators] == [o.name for o in model.graph.operators[2:5]]
    assert [tensor.name for tensor in graph.inputs] == ["b", "gain"]
    assert [tensor.name for tensor in graph.outputs] == ["early", "d"]
    assert graph.tensors.keys() == {"b", "gain", "c", "early", "d"}
    assert graph.constants.keys() == {"body_w", "body_b"}
    assert graph.producer == {"c": 0, "early": 1, "d": 2}


def test_large_weights_stay_in_the_file_and_small_ones_are_embedded(tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    weights = {constant.name: constant for constant in model.cut(segment(model.graph, 2, 3, "a")).graph.initializer}
    assert weights.keys() == {"body_w", "body_b"}
    assert weights["body_w"].data_location == onnx.TensorProto.EXTERNAL
    assert not weights["body_w"].HasField("raw_data")
    assert weights["body_b"].data_location != onnx.TensorProto.EXTERNAL


def test_weights_can_be_embedded(tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    cut = model.cut(segment(model.graph, 2, 3, "a"))
    values = {constant.name: numpy_helper.to_array(constant) for constant in model.with_weights(cut).graph.initializer}
    np.testing.assert_array_equal(values["body_w"], weight(8, 8, 3, 3, seed=2))
    np.testing.assert_array_equal(values["body_b"], weight(8, seed=3))
    assert cut.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL


def test_the_values_of_a_weight(tmp_path: Path) -> None:
    model = saved(branching(), tmp_path)
    np.testing.assert_array_equal(model.array("body_w"), weight(8, 8, 3, 3, seed=2))
    np.testing.assert_array_equal(model.array("body_b"), weight(8, seed=3))
    assert not model.array("body_w").flags.owndata


def test_a_weight_of_four_bits_has_two_values_in_a_byte(tmp_path: Path) -> None:
    int4 = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)
    values = np.random.default_rng(0).integers(-8, 8, (47, 63)).astype(int4)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    narrow = network(nodes, {"x": [1, 47]}, {"y": [1, 63]}, {"w": values, "scale": np.array(0.1, np.float32)}, opset=21)
    model = saved(narrow, tmp_path)
    whole_model = whole(model)
    assert model.weight_bytes(whole_model) == 1481 + 4
    cut = model.cut(whole_model)
    assert next(w for w in cut.graph.initializer if w.name == "w").data_location == onnx.TensorProto.EXTERNAL
    for given in (model.array("w"), *map(numpy_helper.to_array, model.with_weights(cut).graph.initializer)):
        if given.shape:
            np.testing.assert_array_equal(given, values)


def test_a_weight_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    weights = {"w": weight(16, 16), "b": weight(16)}
    model = saved(network(nodes, {"x": (2, 16)}, {"y": (2, 16)}, weights), tmp_path)
    assert model.weight_bytes(segment(model.graph, 0, 0, "a")) == 16 * 16 * 4
    assert model.weight_bytes(whole(model)) == 16 * 16 * 4 + 16 * 4
