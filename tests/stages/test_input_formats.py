"""Branches that begin at the network's input need nothing of one another, whatever format the engine wants it in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from shisha_rt.measure.compile import compile_model
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from stages.engines.onnxruntime.input_formats import convert_in_each_layer
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE, block_size
from stages.engines.onnxruntime.options import base_options
from tests.measure.test_compile import check_gate
from tests.model.networks import network, weight, write
from tests.stages.test_segments import branches, check_answers
from tests.stages.test_segments import whole as engine_whole

BRANCHES = [[(3, 5)], [(0, 2), (6, 8)], [(9, 9)]]


@pytest.mark.parametrize("channels", [8, 16])
def test_branches_stay_apart_and_answer_bit_for_bit_what_the_engine_makes_of_the_whole(
    channels: int, tmp_path: Path
) -> None:
    path = branches(tmp_path, channels)
    compiled = compile_model(path)
    index = compiled.index
    assert [index.needs[layer] for layer in (0, 3, 6)] == [frozenset()] * 3
    assert index.input_readers == ((0, 3, 6),)
    check_gate(index, BRANCHES)
    x = weight(1, channels, 12, 12, seed=1)
    check_answers(compiled, {"x": x}, BRANCHES)
    plain = ort.InferenceSession(str(path), base_options(), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in index.outputs]
    for name, value in zip(names, plain.run(names, {"x": x}), strict=True):
        np.testing.assert_array_equal(engine_whole(compiled, {"x": x})[name], value)
    nodes = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False).graph.node
    changed = [node for node in nodes if node.op_type == "ReorderInput" and node.input[0] == "x"]
    # A convolution takes fewer channels than a block as they are.
    assert len(changed) == (3 if block_size() and channels >= block_size() else 0)
    assert len({name for node in changed for name in (node.name, *node.output)}) == 2 * len(changed)


def halves(folder: Path) -> Path:
    """Three products of an input of float16, each with its own weights: the engine computes them in float32."""
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], name=f"m{i}") for i in range(3)]
    weights = {f"w{i}": weight(8, 8, seed=i).astype(np.float16) for i in range(3)}
    outputs = {f"y{i}": [4, 8] for i in range(3)}
    return write(network(nodes, {"x": [4, 8]}, outputs, weights, element=TensorProto.FLOAT16), folder)


def test_a_change_of_datatype_too(tmp_path: Path) -> None:
    path = halves(tmp_path)
    compiled = compile_model(path)
    assert compiled.index.needs == (frozenset(),) * 3
    assert compiled.index.crossing == ()
    x = weight(4, 8, seed=9).astype(np.float16)
    check_gate(compiled.index, [[(2, 2)], [(1, 1)], [(0, 0)]])
    check_answers(compiled, {"x": x}, [[(2, 2)], [(1, 1)], [(0, 0)]], [[(0, 0), (2, 2)], [(1, 1)]])


def optimised() -> onnx.GraphProto:
    """As an engine might have it: the input is cast, then blocked for two layers; a third reads it cast alone."""
    nodes = [
        helper.make_node("Cast", ["x"], ["x:float"], "cast", to=TensorProto.FLOAT),
        helper.make_node("ReorderInput", ["x:float"], ["x:blocked"], "reorder"),
        helper.make_node("Conv", ["x:blocked", "w0"], ["a"], "a"),
        helper.make_node("Transpose", ["a"], ["a:last"], "transpose"),
        helper.make_node("Conv", ["x:blocked", "w1"], ["b"], "b"),
        helper.make_node("Sum", ["x:float", "a:last", "b"], ["y"], "y"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    constants = [onnx.numpy_helper.from_array(weight(1), name) for name in ("w0", "w1")]
    return helper.make_graph(nodes, "optimised", ends[:1], ends[1:], constants)


def test_changes_one_upon_another_go_with_each_reader_and_what_a_layer_makes_stays_with_it(tmp_path: Path) -> None:
    relu = network([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]})
    graph, proto = read_model(write(relu, tmp_path)).graph, optimised()
    layers = convert_in_each_layer(graph, proto, (0, 0, 0, 0, 1, 2))
    nodes = [
        (node.op_type, list(node.input), list(node.output), layer)
        for node, layer in zip(proto.node, layers, strict=True)
    ]
    assert nodes == [
        ("Cast", ["x"], ["x:float"], 0),
        ("Cast", ["x"], ["x:float_1"], 1),
        ("Cast", ["x"], ["x:float_2"], 2),
        ("ReorderInput", ["x:float"], ["x:blocked"], 0),
        ("ReorderInput", ["x:float_1"], ["x:blocked_1"], 1),
        ("Conv", ["x:blocked", "w0"], ["a"], 0),
        ("Transpose", ["a"], ["a:last"], 0),
        ("Conv", ["x:blocked_1", "w1"], ["b"], 1),
        ("Sum", ["x:float_2", "a:last", "b"], ["y"], 2),
    ]


def test_an_operator_of_the_network_stays_in_its_layer(tmp_path: Path) -> None:
    """Whoever reads what it makes needs that layer in the cleaned graph, too."""
    nodes = [helper.make_node("Transpose", ["x"], ["x:float"]), helper.make_node("Relu", ["x:float"], ["y"])]
    graph = read_model(write(network(nodes, {"x": [2, 3]}, {"y": [3, 2]}), tmp_path)).graph
    proto = optimised()
    assert convert_in_each_layer(graph, proto, (0, 0, 0, 0, 1, 2)) == (0, 0, 0, 0, 1, 2)
    assert proto == optimised()


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_networks_of_the_zoo_gain_no_node(name: str) -> None:
    compiled = compile_model(zoo_path(name))
    assert [len(layers) for layers in compiled.index.input_readers] == [1]
    nodes = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False).graph.node
    (tensor,) = compiled.model.graph.inputs
    assert len([node for node in nodes if tensor.name in node.input]) == 1
