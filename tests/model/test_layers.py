"""Layers against numbers worked out by hand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.helper import make_node

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.layers import Layer, LayeredNode, group_layers, largest_layers, layer_of_operator
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from tests.model.crossing import live_after
from tests.model.networks import Dims, graph_of, network, run, weight, write


def one_layer(folder: Path, node: onnx.NodeProto, x: Dims, w: tuple[int, ...], y: Dims) -> Layer:
    model = network([node], {"x": x}, {"y": y}, {"w": weight(*w)})
    (layer,) = group_layers(graph_of(model, folder))
    return layer


@pytest.mark.parametrize(
    ("node", "x", "w", "y", "weight", "macs"),
    [
        pytest.param(
            make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
            [1, 8, 10, 12],
            (16, 8, 3, 3),
            [1, 16, 5, 6],
            10 * 12 * 8 * 3 * 3 * 16,
            5 * 6 * 8 * 3 * 3 * 16,
            id="strided",
        ),
        pytest.param(
            make_node("Conv", ["x", "w"], ["y"], group=4),
            [1, 8, 6, 6],
            (16, 2, 3, 3),
            [1, 16, 4, 4],
            6 * 6 * 8 * 3 * 3 * 16,
            4 * 4 * 2 * 3 * 3 * 16,
            id="grouped",
        ),
        pytest.param(
            make_node("Conv", ["x", "w"], ["y"]),
            [1, 2, 9],
            (3, 2, 4),
            [1, 3, 6],
            9 * 2 * 4 * 3,
            6 * 2 * 4 * 3,
            id="1-D",
        ),
        pytest.param(
            make_node("Conv", ["x", "w"], ["y"]),
            [1, 2, 3, 4, 5],
            (6, 2, 1, 2, 3),
            [1, 6, 3, 3, 3],
            60 * 2 * 6 * 6,
            27 * 2 * 6 * 6,
            id="3-D",
        ),
        pytest.param(
            make_node("ConvTranspose", ["x", "w"], ["y"], group=2, strides=[2, 2]),
            [1, 4, 5, 5],
            (4, 3, 2, 2),
            [1, 6, 10, 10],
            5 * 5 * 4 * 2 * 2 * 6,
            10 * 10 * 4 * 2 * 2 * 6 // 2,
            id="transposed",
        ),
        pytest.param(make_node("Gemm", ["x", "w"], ["y"]), [2, 3], (3, 5), [2, 5], 30, 30, id="gemm"),
        pytest.param(
            make_node("Gemm", ["x", "w"], ["y"], transA=1, transB=1),
            [3, 2],
            (5, 3),
            [2, 5],
            30,
            30,
            id="gemm-transposed",
        ),
        pytest.param(
            make_node("MatMul", ["x", "w"], ["y"]), [7, 2, 3], (3, 5), [7, 2, 5], 7 * 30, 7 * 30, id="matmul-leading"
        ),
        pytest.param(make_node("MatMul", ["x", "w"], ["y"]), [3], (3, 5), [5], 15, 15, id="matmul-vector"),
    ],
)
def test_weight_and_macs(
    node: onnx.NodeProto, x: Dims, w: tuple[int, ...], y: Dims, weight: int, macs: int, tmp_path: Path
) -> None:
    layer = one_layer(tmp_path, node, x, w, y)
    assert (layer.weight, layer.macs) == (weight, macs)
    assert layer.weight_bytes == 4 * np.prod(w)


def test_product_of_two_activations_is_heavy(tmp_path: Path) -> None:
    nodes = [make_node("Transpose", ["x"], ["t"], perm=[1, 0]), make_node("MatMul", ["x", "t"], ["y"])]
    (layer,) = group_layers(graph_of(network(nodes, {"x": [2, 3]}, {"y": [2, 2]}), tmp_path))
    assert (layer.op, layer.weight, layer.weight_bytes) == ("MatMul", 2 * 3 * 2, 0)


def residual_network() -> onnx.ModelProto:
    """Relu -> conv a -> relu -> conv b -> add (skips from the first relu) -> conv c; conv a's relu is an output too."""
    return network(
        [
            make_node("Relu", ["x"], ["r"], "lead"),
            make_node("Conv", ["r", "w"], ["a"], "a"),
            make_node("Relu", ["a"], ["early"], "early"),
            make_node("Conv", ["early", "w"], ["b"], "b"),
            make_node("Add", ["b", "r"], ["s"], "add"),
            make_node("Conv", ["s", "v"], ["y"], "c"),
        ],
        {"x": [1, 2, 5, 5]},
        {"early": [1, 2, 5, 5], "y": [1, 1, 5, 5]},
        {"w": weight(2, 2, 1, 1), "v": weight(1, 2, 1, 1)},
    )


def test_layers_and_cuts_of_a_residual_network(tmp_path: Path) -> None:
    graph = graph_of(residual_network(), tmp_path)
    layers = group_layers(graph)
    assert [(layer.name, layer.first_operator, layer.last_operator) for layer in layers] == [
        ("a", 0, 2),
        ("b", 3, 4),
        ("c", 5, 5),
    ]
    assert layer_of_operator(layers) == (0, 0, 0, 1, 1, 2)
    assert [tensor.name for tensor in live_after(graph, 2)] == ["r", "early"]
    assert [tensor.name for tensor in live_after(graph, 4)] == ["early", "s"]
    assert [(layer.in_bytes, layer.out_bytes) for layer in layers] == [(200, 400), (400, 400), (400, 300)]
    assert [layer.weight_bytes for layer in layers] == [16, 16, 8]


def test_without_a_heavy_operator_there_is_one_layer_of_weight_0(tmp_path: Path) -> None:
    nodes = [make_node("Relu", ["x"], ["r"], "first"), make_node("Sigmoid", ["r"], ["y"], "second")]
    (layer,) = group_layers(graph_of(network(nodes, {"x": [1, 3]}, {"y": [1, 3]}), tmp_path))
    assert layer == Layer(0, "first", "Relu", 0, 0, 0, 12, 12, 0, 1)


def test_input_that_is_read_late_crosses_every_cut_before(tmp_path: Path) -> None:
    nodes = [
        make_node("MatMul", ["x", "w"], ["a"]),
        make_node("MatMul", ["a", "w"], ["b"]),
        make_node("Add", ["b", "late"], ["y"]),
    ]
    model = network(nodes, {"x": [1, 2], "late": [1, 2]}, {"y": [1, 2]}, {"w": weight(2, 2)})
    graph = graph_of(model, tmp_path)
    assert [tensor.name for tensor in live_after(graph, 0)] == ["late", "a"]


def branching_network() -> onnx.ModelProto:
    """Two branches from x, written one operator of each in turn, that meet in a sum; and a light path of its own."""
    nodes = [
        make_node("Conv", ["x", "w"], ["a"], "a"),
        make_node("Conv", ["x", "w"], ["b"], "b"),
        make_node("Relu", ["a"], ["ra"], "relu a"),
        make_node("Sigmoid", ["x"], ["s"], "beside"),
        make_node("Relu", ["b"], ["rb"], "relu b"),
        make_node("Conv", ["ra", "w"], ["c"], "c"),
        make_node("Tanh", ["ra"], ["ta"], "tanh a"),
        make_node("Sum", ["c", "rb", "s", "ta"], ["y"], "sum"),
    ]
    return network(nodes, {"x": [1, 2, 5, 5]}, {"y": [1, 2, 5, 5]}, {"w": weight(2, 2, 1, 1)})


def test_branches_are_not_put_into_each_others_layers(tmp_path: Path) -> None:
    graph = graph_of(branching_network(), tmp_path)
    layers = group_layers(graph)
    names = [operator.name for operator in graph.operators]
    assert [names[layer.first_operator : layer.last_operator + 1] for layer in layers] == [
        ["a", "relu a", "beside", "tanh a"],
        ["b", "relu b"],
        ["c", "sum"],
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_layers_of_a_cleaned_graph_follow_the_rule_and_its_answers_stay(seed: int, tmp_path: Path) -> None:
    """In random networks of 20 operators, whose file puts them in any topological order."""
    rng = random.Random(seed)
    nodes = []
    for i in range(20):
        inputs = [rng.choice(["x", *(f"t{j}" for j in range(i))]) for _ in range(2)]
        nodes.append(
            make_node("MatMul", [inputs[0], "w"], [f"t{i}"])
            if rng.random() < 0.4
            else make_node("Mean", inputs, [f"t{i}"])
        )
    read = {name for node in nodes for name in node.input}
    ends = {f"t{i}": [3, 3] for i in range(20) if f"t{i}" not in read or rng.random() < 0.1}
    model = network(nodes, {"x": [3, 3]}, ends, {"w": weight(3, 3)})
    cleaned = read_model(write(model, tmp_path))
    graph = cleaned.graph
    expected: dict[str, int] = {}
    heavy_count = 0
    for operator in sorted(graph.operators, key=lambda op: int(op.outputs[0].removeprefix("t"))):  # the file's order
        own = heavy_count if operator.op_type == "MatMul" else 0
        heavy_count += operator.op_type == "MatMul"
        expected[operator.outputs[0]] = max(own, *(expected.get(name, 0) for name in operator.inputs))
    layers = group_layers(graph)
    layer_of = {
        operator.outputs[0]: layer for operator, layer in zip(graph.operators, layer_of_operator(layers), strict=True)
    }
    assert layer_of == expected
    feeds = {"x": weight(3, 3, seed=1)}
    for before, after in zip(run(model, feeds), run(cleaned.proto, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5)


@given(st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=3), st.integers(0, 9)), max_size=30))
def test_layers_never_fall_along_an_edge(drawn: list[tuple[list[int], int]]) -> None:
    """Node i makes tensor i and reads any; those that are made later are not there yet, and count for nothing."""
    nodes = [
        LayeredNode("Sum", ["x", *(str(number) for number in reads if number < i)], [str(i)], own)
        for i, (reads, own) in enumerate(drawn)
    ]
    layers = largest_layers(nodes, ["x"])
    for layer, node in zip(layers, nodes, strict=True):
        assert layer == max([node.own, *(layers[int(name)] for name in node.reads if name != "x")])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Operator i makes tensor i + 1 from any earlier ones; some are heavy, some are graph outputs."""
    count = draw(st.integers(1, 12))
    tensors = {f"t{i}": Tensor(f"t{i}", (1, i + 1), "FP32") for i in range(count + 1)}
    operators = []
    for i in range(count):
        heavy = draw(st.booleans())
        inputs = (f"t{draw(st.integers(0, i))}", "w" if heavy else f"t{draw(st.integers(0, i))}")
        operators.append(Operator(f"o{i}", "MatMul" if heavy else "Add", "", inputs, (f"t{i + 1}",), {}))
    outputs = {f"t{count}", *draw(st.sets(st.sampled_from(sorted(tensors))))}
    constants = {"w": Tensor("w", (1, 1), "FP32")}
    return Graph(
        "g", tuple(operators), (tensors["t0"],), tuple(tensors[name] for name in sorted(outputs)), tensors, constants
    )


@given(graphs())
def test_every_stage_gets_all_it_reads_over_its_cut(graph: Graph) -> None:
    """What a layer reads was made in it or crosses the cut before it; what crosses was there before, or made in it."""
    layers = group_layers(graph)
    assert layer_of_operator(layers) == tuple(sorted(layer_of_operator(layers)))
    assert len(layer_of_operator(layers)) == len(graph.operators)
    before = {tensor.name for tensor in graph.inputs}
    for layer in layers:
        operators = graph.operators[layer.first_operator : layer.last_operator + 1]
        made = {name for operator in operators for name in operator.outputs}
        last = layer.index == len(layers) - 1
        crossing = graph.outputs if last else live_after(graph, layer.last_operator)
        assert {name for operator in operators for name in operator.inputs} - {"w"} <= before | made
        assert {tensor.name for tensor in crossing} <= before | made
        assert layer.out_bytes == sum(tensor.size_bytes for tensor in crossing)
        before = {tensor.name for tensor in crossing}


@pytest.mark.parametrize(("name", "ops"), [("resnet50", {"Conv": 53, "Gemm": 1}), ("squeezenet", {"Conv": 26})])
def test_zoo_layer_counts(name: str, ops: dict[str, int]) -> None:
    layers = group_layers(read_model(zoo_path(name)).graph)
    assert {op: [layer.op for layer in layers].count(op) for op in ops} == ops
    assert len(layers) == sum(ops.values())
    assert layers[0].in_bytes == 4 * 3 * 224 * 224
    assert layers[-1].out_bytes == 4 * 1000
