"""Operators with graphs inside: what they read from outside, renamed inside too, and the branch that is left."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from shisha_rt.model.clean import clean
from shisha_rt.model.subgraphs import all_nodes, branch_taken, name_apart, new_name, reads, rename_reads


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def graph(
    *nodes: onnx.NodeProto, makes: tuple[str, ...] = ("t",), weights: tuple[onnx.TensorProto, ...] = ()
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "inner", [], [value(name) for name in makes], list(weights))


def choice(then: onnx.GraphProto, other: onnx.GraphProto, makes: tuple[str, ...] = ("y",)) -> onnx.NodeProto:
    return helper.make_node("If", ["c"], list(makes), "choice", then_branch=then, else_branch=other)


def nested() -> onnx.NodeProto:
    """Reads `a` in a branch of a branch, and `b` in the other; `own` is made inside."""
    inner = choice(
        graph(helper.make_node("Add", ["own", "a"], ["t"])), graph(helper.make_node("Neg", ["own"], ["t"])), ("t",)
    )
    inner.input[0] = "d"
    then = graph(helper.make_node("Relu", ["x"], ["own"]), inner)
    return choice(then, graph(helper.make_node("Neg", ["b"], ["t"])))


def test_what_is_read_inside_is_read() -> None:
    names = reads(nested())
    assert names[0] == "c"
    assert sorted(names) == ["a", "b", "c", "d", "x"]
    assert sorted(node.op_type for node in all_nodes([nested()])) == ["Add", "If", "If", "Neg", "Neg", "Relu"]


def test_what_is_read_inside_too_is_listed_once() -> None:
    branch = graph(helper.make_node("Neg", ["c"], ["t"]))
    assert reads(choice(branch, branch)) == ("c",)


def test_names_are_new() -> None:
    taken = {"a"}
    assert [new_name(wish, taken) for wish in "aabb"] == ["a_1", "a_2", "b", "b_1"]


def test_names_are_apart_at_any_depth() -> None:
    inner = choice(graph(helper.make_node("Neg", ["a"], ["t"])), graph(helper.make_node("Abs", ["a"], ["t"])), ("u",))
    node = choice(graph(inner, makes=("u",)), graph(helper.make_node("Relu", ["a"], ["t"])))
    name_apart([node], {"a", "t"})
    made = [name for each in all_nodes([node]) for name in each.output]
    assert len(set(made) - {"t"}) == len(made)


def test_a_renamed_tensor_is_renamed_inside_and_what_is_made_there_is_not() -> None:
    node = nested()
    rename_reads(node, {"a": "A", "c": "C", "own": "stranger"})
    assert sorted(reads(node)) == ["A", "C", "b", "d", "x"]


def run(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], makes: list[str]) -> list[np.ndarray]:
    whole = helper.make_graph(
        nodes, "whole", [value(name) for name in ("x", "a", "b")], [value(n) for n in makes], weights
    )
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)])
    given = {"x": [-1, 2], "a": [10, 20], "b": [5, 6]}
    return list(ReferenceEvaluator(model).run(None, {name: np.array(v, np.float32) for name, v in given.items()}))


@pytest.mark.parametrize("outputs", [["y", "z", "w"], ["", "z", "w"]])
@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_that_is_taken_computes_what_the_operator_did(condition: bool, outputs: list[str]) -> None:
    """With a constant inside, one result for two outputs, a tensor of outside handed on, and names that are taken."""
    two = numpy_helper.from_array(np.array([2, 3], np.float32), "x2")
    then = graph(
        helper.make_node("Mul", ["x", "x2"], ["own"]),
        helper.make_node("Add", ["own", "a"], ["t"]),
        makes=("t", "t", "x2"),
        weights=(two,),
    )
    other = graph(
        helper.make_node("Identity", ["b"], ["s"]), helper.make_node("Neg", ["s"], ["t"]), makes=("s", "t", "s")
    )
    node, read = choice(then, other, tuple(outputs)), [name for name in outputs if name]
    flag = numpy_helper.from_array(np.array(condition), "c")
    expected = run([node], [flag], read)
    name_apart([node], {"x", "a", "b", "c", "y", "z", "w", "x2", "own", "s"})
    branch = branch_taken(node, flag)
    made = [name for inner in branch.node for name in inner.output]
    assert not {"x2", "own", "s"} & {*made, *(weight.name for weight in branch.initializer)}
    assert len({*made} - {""}) == len(made)
    makers = {name: inner.op_type for inner in branch.node for name in inner.output}
    assert {makers[read[0]], makers["z"]} & {"Add", "Neg"}, "a result keeps the name by which its shape was seen"
    for mine, theirs in zip(run(list(branch.node), list(branch.initializer), read), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_tensor_keeps_clear_of_others_of_its_name_inside() -> None:
    """`y`, which the convolution comes to make, and `out`, which the first operator does, are names in branches too."""
    then = graph(helper.make_node("Neg", ["b"], ["y"]), helper.make_node("Relu", ["y"], ["out"]), makes=("out",))
    other = graph(helper.make_node("Abs", ["b"], ["out"]), makes=("out",))
    shape = [1, 2, 3, 3]
    for branch in (then, other):
        branch.output[0].CopyFrom(helper.make_tensor_value_info("out", TensorProto.FLOAT, shape))
    nodes = [
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["conv"]),
        helper.make_node("If", ["c"], ["chosen"], then_branch=then, else_branch=other),
        helper.make_node("BatchNormalization", ["conv", *"ssss"], ["y"]),
        helper.make_node("Add", ["y", "chosen"], ["sum"]),
        helper.make_node("Identity", ["b"], ["out"]),
    ]
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "sum", "out")}
    flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    weights = [
        numpy_helper.from_array(np.arange(1, 5, dtype=np.float32).reshape(2, 2, 1, 1), "w"),
        numpy_helper.from_array(np.array([2, 3], np.float32), "s"),
    ]
    whole = helper.make_graph(nodes, "g", [ends["x"], flag], [ends["sum"], ends["out"]], weights)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    cleaned = clean(model)
    assert [node.op_type for node in cleaned.graph.node] == ["Relu", "Conv", "If", "Add"]
    onnx.checker.check_model(cleaned)
    for condition in (True, False):
        given = {"x": np.linspace(-1, 1, 18, dtype=np.float32).reshape(shape), "c": np.array(condition)}
        expected = ReferenceEvaluator(model).run(None, given)
        for mine, theirs in zip(ReferenceEvaluator(cleaned).run(None, given), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
