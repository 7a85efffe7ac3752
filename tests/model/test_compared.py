"""Numbers that a network compares its inputs with: made-up inputs are these."""

from __future__ import annotations

from onnx import TensorProto, helper
from onnx.onnx_ml_pb2 import GraphProto, NodeProto

from shisha_rt.model.compared import compared_values


def graph(*nodes: NodeProto, shape: tuple[int, ...] = (1,), datatype: int = TensorProto.INT64) -> GraphProto:
    """Of an input `rate`, with constants of 8000 and 16000, and one of two numbers."""
    constants = [helper.make_tensor(name, TensorProto.INT64, [1], [int(name)]) for name in ("8000", "16000")]
    constants.append(helper.make_tensor("both", TensorProto.INT64, [2], [8000, 16000]))
    inputs = [helper.make_tensor_value_info("rate", datatype, shape)]
    return helper.make_graph(nodes, "g", inputs, [], constants)


def equal(*names: str) -> NodeProto:
    return helper.make_node("Equal", names, ["is"])


def test_the_first_number_counts_on_either_side_of_a_comparison() -> None:
    assert compared_values(graph(equal("rate", "16000"), equal("rate", "8000"))) == {"rate": 16000}
    assert compared_values(graph(equal("8000", "rate"))) == {"rate": 8000}


def test_a_number_is_followed_to_where_it_is_compared() -> None:
    nodes = [helper.make_node(op, [data], [made]) for op, data, made in (("Squeeze", "rate", "a"), ("Cast", "a", "b"))]
    assert compared_values(graph(*nodes, equal("b", "8000"))) == {"rate": 8000}
    assert compared_values(graph(helper.make_node("Neg", ["rate"], ["b"]), equal("b", "8000"))) == {}


def test_what_is_no_whole_number_or_is_compared_with_several_has_none() -> None:
    assert compared_values(graph(equal("rate", "8000"), shape=(2,))) == {}
    assert compared_values(graph(equal("rate", "8000"), datatype=TensorProto.FLOAT)) == {}
    assert compared_values(graph(equal("rate", "both"))) == {}
