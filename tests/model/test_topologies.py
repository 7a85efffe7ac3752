"""The zoo's own topologies: as large as published, valid, and of the operators that the papers count."""

from __future__ import annotations

import math
from collections import Counter
from unittest import mock

import onnx
import pytest
from onnx import numpy_helper

from shisha_rt.model.clean import clean
from shisha_rt.model.topologies.gpt2 import gpt2
from shisha_rt.model.zoo import TOPOLOGIES

LARGEST_TABLE = 1024 * 768  # of positions; only this much and less is folded in these tests, to save memory


def constants_of(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def is_weight(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    return node.op_type == "ConstantOfShape" and node.input[0] in constants_of(model)


def learned_count(model: onnx.ModelProto) -> int:
    """Parameters as publications count them: without what BatchNormalization has observed."""
    constants = constants_of(model)
    observed = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}
    return sum(
        math.prod(numpy_helper.to_array(constants[node.input[0]]).tolist())
        for node in model.graph.node
        if is_weight(node, model) and node.output[0] not in observed
    )


def nodes_and_edges(model: onnx.ModelProto) -> tuple[int, int]:
    """Operators, and the tensors between them, once for each time that one is read. Weights are neither."""
    nodes = [node for node in model.graph.node if not is_weight(node, model)]
    made = {name for node in nodes for name in node.output}
    return len(nodes), sum(name in made for node in nodes for name in node.input)


def cleaned(model: onnx.ModelProto, sequence: int) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sequence
    with mock.patch("shisha_rt.model.clean._FOLD_LIMIT_ELEMENTS", LARGEST_TABLE):
        return clean(model)


@pytest.mark.parametrize(
    ("name", "published", "heavy"),
    [
        ("bert", 28_764_674, {"MatMul": 32, "Gemm": 2}),
        ("darknet53", 40_584_928, {"Conv": 52}),
        ("gpt2", 124_439_808, {"Gemm": 48, "MatMul": 24}),
        ("resnet18", 11_689_512, {"Conv": 20, "Gemm": 1}),
        ("resnext50", 25_028_904, {"Conv": 53, "Gemm": 1}),
        ("roberta", 124_647_170, {"MatMul": 96, "Gemm": 2}),
        ("vgg16", 138_357_544, {"Conv": 13, "Gemm": 3}),
        ("yolov3", 61_949_149, {"Conv": 75}),
    ],
)
def test_as_large_as_published(name: str, published: int, heavy: dict[str, int]) -> None:
    model = TOPOLOGIES[name]()
    counts = Counter(node.op_type for node in model.graph.node)
    assert {op: counts[op] for op in ("Conv", "Gemm", "MatMul") if counts[op]} == heavy
    assert learned_count(model) == published


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_valid_small_and_of_the_shapes_it_says(name: str) -> None:
    model = TOPOLOGIES[name]()
    onnx.checker.check_model(model)
    assert model.ByteSize() < 2e6
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def test_synthnet_repeats_the_layers_of_alexnet() -> None:
    model = onnx.shape_inference.infer_shapes(TOPOLOGIES["synthnet"](), data_prop=True)
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*model.graph.input, *model.graph.value_info)
    }
    convs = [tuple(shapes[name] for name in node.input[:2]) for node in model.graph.node if node.op_type == "Conv"]
    alexnet = [
        ((1, 3, 224, 224), (96, 3, 11, 11)),
        ((1, 96, 26, 26), (256, 96, 5, 5)),
        ((1, 256, 12, 12), (384, 256, 3, 3)),
        ((1, 384, 12, 12), (384, 384, 3, 3)),
        ((1, 384, 12, 12), (256, 384, 3, 3)),
    ]
    assert convs == [alexnet[layer % 5] for layer in range(18)]


@pytest.mark.parametrize(("name", "table_3"), [("bert", (222, 262)), ("roberta", (616, 725))])
def test_encoders_have_the_papers_nodes_and_edges(name: str, table_3: tuple[int, int]) -> None:
    assert nodes_and_edges(cleaned(TOPOLOGIES[name](), 16)) == table_3


def test_gpt2_comes_near_the_papers_nodes_and_edges() -> None:
    nodes, edges = nodes_and_edges(TOPOLOGIES["gpt2"]())
    assert (nodes, edges) == (1936, 2420)
    assert abs(nodes / 1934 - 1) < 0.002
    assert abs(edges / 2424 - 1) < 0.002


@pytest.mark.parametrize("sequence", [8, 64])
def test_the_shape_operators_of_gpt2_fold_away(sequence: int) -> None:
    model = cleaned(gpt2(layers=1), sequence)
    counts = Counter(node.op_type for node in model.graph.node if not is_weight(node, model))
    assert not {"Shape", "Slice", "Cast", "ConstantOfShape"} & counts.keys()
    assert counts["Gather"] == 1
    assert counts["Unsqueeze"] == 2  # of the keys and values that the layer gives out
    hidden = model.graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in hidden.dim] == [1, sequence, 768]
