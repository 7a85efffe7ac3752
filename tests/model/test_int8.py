"""Networks of integers: their layers hold their own weights and are handed integers, and answers stay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import make_node

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.layers import LayeredNode, group_layers, largest_layers, layer_of_operator
from shisha_rt.model.reader.onnx_reader import read_model
from tests.model.crossing import live_after
from tests.model.int8 import dynamic_network, qdq_network, qoperator_network
from tests.model.networks import Array, graph_of, network, run, weight, write

Build = Callable[[], onnx.ModelProto]


def _crossing(graph: Graph) -> list[dict[str, str]]:
    """What crosses each cut: datatypes by name."""
    layers = group_layers(graph)[:-1]
    return [{tensor.name: tensor.datatype for tensor in live_after(graph, layer.last_operator)} for layer in layers]


def test_integers_cross_the_cuts_and_weights_stay_with_their_readers(tmp_path: Path) -> None:
    graph = graph_of(qdq_network(), tmp_path)
    layers = group_layers(graph)
    assert [(layer.name, layer.op, layer.macs) for layer in layers] == [
        ("a", "Conv", 64 * 9 * 4 * 8),
        ("b", "Conv", 64 * 9 * 8 * 8),
        ("c", "Conv", 64 * 9 * 8 * 8),
        ("g", "Gemm", 8 * 5),
    ]
    assert _crossing(graph) == [
        {"ra_q": "UINT8"},
        {"ra_q": "UINT8", "b_q": "UINT8"},
        {"f_q": "UINT8", "sum": "FP32"},  # the sum is an answer
    ]
    integers = [8 * 4 * 9, 8 * 8 * 9, 8 * 8 * 9, 5 * 8]
    scales_and_zeros = [8 * 5 + 5, 8 * 5 + 5, 8 * 5 + 5, 5 * 5 + 5]
    assert [layer.weight_bytes for layer in layers] == [
        sum(both) for both in zip(integers, scales_and_zeros, strict=True)
    ]


def test_each_reader_has_floats_of_its_own_and_an_answer_too(tmp_path: Path) -> None:
    graph = graph_of(qdq_network(), tmp_path)
    outputs = {tensor.name for tensor in graph.outputs}
    for operator in graph.operators:
        if operator.op_type == "DequantizeLinear":
            (made,) = operator.outputs
            assert len(graph.consumers.get(made, ())) + (made in outputs) == 1, made


@pytest.mark.parametrize("build", [qoperator_network, dynamic_network])
def test_operators_on_integers_are_heavy(build: Build, tmp_path: Path) -> None:
    layers = group_layers(graph_of(build(), tmp_path))
    expected = {
        qoperator_network: [
            ("QLinearConv", 64 * 9 * 4 * 8, 64 * 9 * 4 * 8),
            ("QLinearConv", 64 * 9 * 8 * 8, 64 * 9 * 2 * 8),
            ("QLinearMatMul", 512 * 5, 512 * 5),
        ],
        dynamic_network: [
            ("ConvInteger", 8 * 6 * 9 * 4 * 6, 6 * 4 * 9 * 4 * 6),
            ("MatMulInteger", 6 * 6 * 4 * 5, 6 * 6 * 4 * 5),
        ],
    }
    assert [(layer.op, layer.weight, layer.macs) for layer in layers] == expected[build]


@pytest.mark.parametrize("build", [qdq_network, qoperator_network, dynamic_network])
def test_answers_stay(build: Build, tmp_path: Path) -> None:
    path = write(build(), tmp_path)
    shape = read_model(path).graph.inputs[0].shape
    cleaned, feeds = read_model(path).proto, {"x": weight(*shape, seed=1)}
    for before, after in zip(run(build(), feeds), run(cleaned, feeds), strict=True):
        np.testing.assert_array_equal(after, before)


def test_what_is_computed_from_constants_alone_goes_with_its_first_reader(tmp_path: Path) -> None:
    """Integers made of a float weight, and floats of them again; two layers read them, the second and the third."""
    nodes = [
        make_node("QuantizeLinear", ["w", "scale"], ["q"], "q"),
        make_node("DequantizeLinear", ["q", "scale"], ["v"], "v"),
        make_node("MatMul", ["x", "u"], ["a"], "a"),
        make_node("MatMul", ["a", "v"], ["b"], "b"),
        make_node("MatMul", ["b", "v"], ["y"], "c"),
    ]
    weights: dict[str, Array] = {"u": weight(3, 3), "w": weight(3, 3), "scale": np.asarray(0.1, np.float32)}
    graph = graph_of(network(nodes, {"x": [3, 3]}, {"y": [3, 3]}, weights), tmp_path)
    layers = group_layers(graph)
    assert [graph.operators[layer.first_operator].name for layer in layers] == ["a", "q", graph.operators[4].name]
    assert [layer.name for layer in layers] == ["a", "b", "c"]
    assert _crossing(graph) == [{"a": "FP32"}, {"q": "UINT8", "b": "FP32"}]


def test_a_random_weight_is_drawn_once_wherever_it_is_read(tmp_path: Path) -> None:
    nodes = [
        make_node("RandomNormal", [], ["r"], "r", shape=[2, 2], dtype=TensorProto.FLOAT),
        make_node("MatMul", ["x", "w"], ["a"], "a"),
        make_node("MatMul", ["a", "r"], ["b"], "b"),
        make_node("MatMul", ["b", "r"], ["y"], "c"),
    ]
    graph = graph_of(network(nodes, {"x": [2, 2]}, {"y": [2, 2]}, {"w": weight(2, 2)}), tmp_path)
    assert [operator.name for operator in graph.operators] == ["a", "r", "b", "c"]
    assert [layer.first_operator for layer in group_layers(graph)] == [0, 1, 3]


@st.composite
def _nodes(draw: st.DrawFn) -> list[LayeredNode]:
    """Node i makes tensor i; some are heavy, some wait, some read no input but a constant."""
    nodes = []
    heavy_count = 0
    for i in range(draw(st.integers(1, 25))):
        op_type = draw(st.sampled_from(["MatMul", "Add", "DequantizeLinear"]))
        known = ["x", "w", *(str(j) for j in range(i))]
        reads = draw(st.lists(st.sampled_from(known), min_size=1, max_size=1 if "Deq" in op_type else 3))
        nodes.append(LayeredNode(op_type, reads, [str(i)], heavy_count if op_type == "MatMul" else 0))
        heavy_count += op_type == "MatMul"
    return nodes


@settings(max_examples=40)
@given(_nodes())
def test_layers_never_fall_whatever_waits_and_nothing_waits_beyond_its_first_reader(nodes: list[LayeredNode]) -> None:
    layers = largest_layers(nodes, ["x"])
    maker = {node.makes[0]: i for i, node in enumerate(nodes)}
    at_run_time = {"x"}
    for i, node in enumerate(nodes):
        before = [layers[maker[name]] for name in node.reads if name in maker]
        assert layers[i] >= max([node.own, *before])
        needs_a_frame = not at_run_time.isdisjoint(node.reads)
        at_run_time.update(node.makes if needs_a_frame else ())
        readers = [layers[j] for j, other in enumerate(nodes) if node.makes[0] in other.reads]
        if node.op_type == "DequantizeLinear" or (not needs_a_frame and node.op_type != "MatMul"):
            assert layers[i] == min(readers, default=layers[i])
        elif node.op_type == "MatMul":
            assert layers[i] == node.own


@settings(max_examples=40)
@given(_nodes())
def test_runs_of_operators_are_the_layers_of_a_cleaned_graph(drawn: list[LayeredNode]) -> None:
    """In the order of their layers, each layer begins with what waits for its heavy operator, or with that."""
    order = sorted(range(len(drawn)), key=lambda i: (largest_layers(drawn, ["x"])[i], i))
    nodes = [drawn[i] for i in order]
    expected = largest_layers(nodes, ["x"])
    layers = layer_of_operator(group_layers(_graph(nodes)))
    assert list(layers) == list(expected)
    assert all(b - a in (0, 1) for a, b in pairwise(layers))


def _graph(nodes: list[LayeredNode]) -> Graph:
    tensors = {name: Tensor(name, (1, 1), "FP32") for name in ["x", *(node.makes[0] for node in nodes)]}
    operators = []
    for node in nodes:
        (result,) = node.makes
        reads = (*node.reads, "w") if node.op_type == "MatMul" else tuple(node.reads)
        operators.append(Operator(result, node.op_type, "", reads, (result,), {}))
    outputs = (tensors[nodes[-1].makes[0]],)
    return Graph("g", tuple(operators), (tensors["x"],), outputs, tensors, {"w": Tensor("w", (1, 1), "FP32")})
