"""Layers as features: what a convolution or a product comes to, what has none, and what feeds only its neighbour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.papers.gp.chain import rows_fed, rows_of
from shisha_rt.papers.gp.of_graph import feeds_only, split_layer_of
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import Formula, SplitDevice, SplitLayer
from shisha_rt.planner.strategies import SplitVariable
from tests.model.networks import network, weight, write
from tests.wording import says


def only_layer(
    folder: Path, node: onnx.NodeProto, shape: Sequence[int], made: Sequence[int], *kernel: int
) -> SplitLayer | str:
    model = network([node], {"x": shape}, {"y": made}, {"w": weight(*kernel)})
    graph = read_model(write(model, folder)).graph
    (layer,) = group_layers(graph)
    return split_layer_of(graph, layer, "N")


def runs_multiples(of: Mapping[SplitVariable, int]) -> SplitDevice:
    return SplitDevice("of multiples", (Formula(Posynomial(()), None, of.get("C", 1), of.get("N", 1)),))


def conv(**attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Conv", ["x", "w"], ["y"], **attributes)


@pytest.mark.parametrize(
    ("node", "shape", "made", "kernel", "features"),
    [
        (conv(strides=[4, 4]), (1, 3, 227, 227), (1, 96, 55, 55), (96, 3, 11, 11), (55, 55, 3, 11, 96, 4)),
        (conv(), (2, 3, 6, 8), (2, 5, 6, 8), (5, 3, 1, 1), (6, 16, 3, 1, 5, 1)),
        (conv(kernel_shape=[1, 9], strides=[1, 4]), (1, 4, 6, 33), (1, 5, 6, 7), (5, 4, 1, 9), (6, 7, 4, 3, 5, 2)),
        (conv(kernel_shape=[4], strides=[9]), (1, 4, 31), (1, 5, 4), (5, 4, 4), (4, 1, 4, 2, 5, 3)),
        (conv(), (1, 4, 5, 6, 7), (1, 5, 5, 6, 7), (5, 4, 1, 1, 1), (5, 42, 4, 1, 5, 1)),
        (conv(group=2), (1, 8, 6, 6), (1, 4, 6, 6), (4, 4, 1, 1), (6, 6, 4, 1, 2, 1, 2)),
        (conv(group=8), (1, 8, 6, 6), (1, 16, 6, 6), (16, 1, 1, 1), (6, 6, 1, 1, 2, 1, 8)),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), (1, 9), (1, 4), (4, 9), (1, 1, 9, 1, 4, 1)),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), (9, 3), (3, 4), (9, 4), (3, 1, 9, 1, 4, 1)),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), (2, 3, 9), (2, 3, 4), (9, 4), (6, 1, 9, 1, 4, 1)),
    ],
    ids=[
        "strided",
        "a batch",
        "oblong",
        "one dimension",
        "three dimensions",
        "groups",
        "depthwise",
        "Gemm",
        "transposed",
        "MatMul",
    ],
)
def test_features(
    tmp_path: Path,
    node: onnx.NodeProto,
    shape: Sequence[int],
    made: Sequence[int],
    kernel: Sequence[int],
    features: Sequence[float],
) -> None:
    split_layer = only_layer(tmp_path, node, shape, made, *kernel)
    assert isinstance(split_layer, SplitLayer)
    assert split_layer.features == pytest.approx({"G": 1, **dict(zip("HWCkNsG", features, strict=False))})
    if split_layer.groups == 1:
        assert (split_layer.variable, split_layer.block) == ("N", 16)


@pytest.mark.parametrize(
    ("node", "shape", "made", "kernel", "reason"),
    [
        (
            helper.make_node("ConvTranspose", ["x", "w"], ["y"]),
            (1, 4, 6, 6),
            (1, 4, 6, 6),
            (4, 4, 1, 1),
            "ConvTranspose: its costs … or MatMul",
        ),
        (
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            (2, 3, 9),
            (2, 3, 4),
            (2, 9, 4),
            "MatMul … rank 3, …",
        ),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), (3, 9), (3,), (9,), "MatMul … rank 1, …"),
        (
            helper.make_node("MatMul", ["x", "x"], ["y"]),
            (9, 9),
            (9, 9),
            (9, 9),
            "MatMul of two tensors",
        ),
        (helper.make_node("Relu", ["x"], ["y"]), (9, 9), (9, 9), (9, 9), "no operator in"),
    ],
    ids=["transposed", "many matrices", "a vector", "attention", "light"],
)
def test_what_has_no_features_says_why(
    tmp_path: Path, node: onnx.NodeProto, shape: Sequence[int], made: Sequence[int], kernel: Sequence[int], reason: str
) -> None:
    refusal = only_layer(tmp_path, node, shape, made, *kernel)
    assert isinstance(refusal, str)
    assert refusal == says(reason + "…")


@pytest.mark.parametrize(
    ("groups", "channels", "filters", "blocks", "expected"),
    [
        (2, 48, 128, {}, 1),
        (32, 4, 4, {}, 4),
        (24, 1, 1, {}, 16),
        (24, 1, 2, {}, 16),
        (6, 8, 32, {"C": 24, "N": 1}, 6),
        (6, 8, 32, {"C": 1, "N": 96}, 6),
    ],
)
def test_groups_are_shared_in_blocks_of_channels_and_filters(
    tmp_path: Path, groups: int, channels: int, filters: int, blocks: Mapping[SplitVariable, int], expected: int
) -> None:
    """Of filters whole groups are shared, of rows any, of input channels none."""
    shapes = (1, groups * channels, 6, 6), (1, groups * filters, 6, 6)
    kernel = weight(groups * filters, channels, 1, 1)
    model = network([conv(group=groups)], {"x": shapes[0]}, {"y": shapes[1]}, {"w": kernel})
    graph = read_model(write(model, tmp_path)).graph
    (layer,) = group_layers(graph)
    devices = [runs_multiples(blocks)]
    split_layer = split_layer_of(graph, layer, "N", devices)
    assert isinstance(split_layer, SplitLayer)
    assert (split_layer.variable, split_layer.units, split_layer.block) == ("G", groups, expected)
    rows = split_layer_of(graph, layer, "H", devices)
    assert isinstance(rows, SplitLayer)
    assert (rows.variable, rows.units, rows.block, rows.groups) == ("H", 6, 1, groups)
    assert split_layer_of(graph, layer, "C", devices) == says(f"Conv of {groups} groups: … expected N or H")


@pytest.mark.parametrize(
    ("attributes", "kernel", "read"),
    [
        ({"kernel_shape": [1, 9], "strides": [1, 4]}, (1, 9), 3),
        ({"kernel_shape": [5, 1], "strides": [4, 1]}, (5, 1), 13),
        ({"kernel_shape": [3, 3], "dilations": [2, 1]}, (3, 3), 7),
        ({"kernel_shape": [2, 2], "strides": [3, 3], "dilations": [4, 1]}, (2, 2), 11),
    ],
    ids=["wide", "high", "dilated", "dilated strides"],
)
def test_a_tile_reads_what_its_rows_need(
    attributes: Mapping[str, Any], kernel: Sequence[int], read: int, tmp_path: Path
) -> None:
    """Three rows of a convolution, of what a 1 x 1 one before it makes; sides and dilation of rows alone count."""
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"]),
        helper.make_node("Conv", ["a", "wb"], ["y"], **attributes),
    ]
    high, wide = attributes.get("strides", (1, 1))
    rows = (36 - (kernel[0] - 1) * attributes.get("dilations", (1, 1))[0] - 1) // high + 1
    columns = (36 - kernel[1]) // wide + 1
    weights = {"wa": weight(4, 4, 1, 1), "wb": weight(4, 4, *kernel)}
    model = network(nodes, {"x": (1, 4, 36, 36)}, {"y": (1, 4, rows, columns)}, weights)
    graph = read_model(write(model, tmp_path)).graph
    split_layers = [split_layer_of(graph, layer, "H") for layer in group_layers(graph)]
    layers = [layer for layer in split_layers if isinstance(layer, SplitLayer)]
    assert rows_of(layers, 3) == (read, 3)
    assert rows_fed(layers[1], 3) == read / high


def test_rows_have_no_blocks(tmp_path: Path) -> None:
    graph = _residual(tmp_path)
    layer = group_layers(graph)[0]
    cases: tuple[tuple[SplitVariable, int, int], ...] = (("H", 1, 1), ("N", 1, 16), ("N", 24, 48), ("C", 8, 16))
    for variable, block, expected in cases:
        split_layer = split_layer_of(graph, layer, variable, [runs_multiples({variable: block})])
        assert isinstance(split_layer, SplitLayer)
        assert split_layer.block == expected


def test_what_feeds_only_the_next_layer(tmp_path: Path) -> None:
    """A -> b -> c, and what a makes is added to what c makes: only b feeds nothing but its neighbour."""
    graph = _residual(tmp_path)
    a, b, c = group_layers(graph)
    assert (feeds_only(graph, a, b), feeds_only(graph, b, c)) == (False, True)


def _residual(folder: Path) -> Graph:
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"]),
        helper.make_node("Conv", ["a", "wb"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Conv", ["r", "wc"], ["c"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    weights = {name: np.full((4, 4, 1, 1), index + 1, np.float32) for index, name in enumerate(("wa", "wb", "wc"))}
    return read_model(write(network(nodes, {"x": (1, 4, 6, 6)}, {"y": (1, 4, 6, 6)}, weights), folder)).graph


@pytest.mark.parametrize(
    ("light", "expected"),
    [
        (helper.make_node("Sigmoid", ["a"], ["l"]), True),
        (helper.make_node("Mul", ["a", "k"], ["l"]), True),
        (helper.make_node("MaxPool", ["a"], ["l"], kernel_shape=[2, 2], strides=[2, 2]), True),
        (helper.make_node("Softmax", ["a"], ["l"], axis=1), False),
        (helper.make_node("LRN", ["a"], ["l"], size=3), False),
        (helper.make_node("Add", ["a", "x"], ["l"]), False),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_what_is_between_two_layers_must_be_local(light: onnx.NodeProto, expected: bool, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"]),
        light,
        helper.make_node("Conv", ["l", "wb"], ["y"]),
    ]
    weights = {name: np.full((4, 4, 1, 1), index + 1, np.float32) for index, name in enumerate(("wa", "wb"))}
    weights["k"] = np.full((4, 1, 1), 2, np.float32)
    rows = 3 if light.op_type == "MaxPool" else 6
    graph = read_model(write(network(nodes, {"x": (1, 4, 6, 6)}, {"y": (1, 4, rows, rows)}, weights), tmp_path)).graph
    first, behind = group_layers(graph)
    assert feeds_only(graph, first, behind) is expected
