"""A cleaned model computes what the file's did."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

from shisha_rt.model.clean import clean
from shisha_rt.model.subgraphs import all_nodes
from shisha_rt.model.zoo import zoo_path
from tests.model.networks import Array, network, run, weight


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def cleaned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The cleaned model, after checks that it is valid, computes the same, and that the original was left alone."""
    before = model.SerializeToString()
    result = clean(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(result)
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    names = [node.name for node in result.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {
        value.name: weight(*(dim.dim_value for dim in value.type.tensor_type.shape.dim), seed=7)
        for value in model.graph.input
        if value.name not in weights
    }
    kept = {value.name: feeds[value.name] for value in result.graph.input}
    for original, now in zip(run(model, feeds), run(result, kept), strict=True):
        np.testing.assert_allclose(now, original, rtol=1e-4, atol=1e-5)
    return result


def norm(channels: int) -> dict[str, Array]:
    positive = np.abs(weight(channels, seed=4)) + np.float32(0.5)
    return {"scale": weight(channels, seed=1), "shift": weight(channels, seed=2), "mean": weight(channels, seed=3)} | {
        "var": positive
    }


def normalization(x: str, y: str) -> onnx.NodeProto:
    return make_node("BatchNormalization", [x, "scale", "shift", "mean", "var"], [y], epsilon=0.01)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("op", "shape", "groups", "filters"),
    [
        ("Conv", (6, 4, 3, 3), 1, 6),
        ("Conv", (6, 2, 3, 3), 2, 6),
        ("ConvTranspose", (4, 6, 3, 3), 1, 6),
        ("ConvTranspose", (4, 3, 3, 3), 2, 6),
    ],
)
def test_batch_normalization_goes_into_the_convolution(
    op: str, shape: tuple[int, ...], groups: int, filters: int, bias: bool
) -> None:
    weights = {"w": weight(*shape)} | norm(filters) | ({"b": weight(filters, seed=9)} if bias else {})
    nodes = [
        make_node(op, ["x", "w", *(["b"] if bias else [])], ["c"], group=groups, pads=[1, 1, 1, 1]),
        normalization("c", "y"),
    ]
    model = network(nodes, {"x": [1, 4, 5, 5]}, {"y": [1, filters, 5, 5]}, weights)
    assert op_types(cleaned(model)) == [op]


def test_a_negative_variance_is_nobodys_warning() -> None:
    weights = {"w": weight(4, 4, 1, 1)} | norm(4) | {"var": np.full(4, -1, np.float32)}
    model = network(
        [make_node("Conv", ["x", "w"], ["c"]), normalization("c", "y")],
        {"x": [1, 4, 2, 2]},
        {"y": [1, 4, 2, 2]},
        weights,
    )
    assert op_types(cleaned(model)) == ["Conv"]


def test_batch_normalization_stays_where_the_convolution_has_other_readers() -> None:
    weights = {"w": weight(4, 4, 1, 1)} | norm(4)
    nodes = [make_node("Conv", ["x", "w"], ["c"]), normalization("c", "n"), make_node("Add", ["n", "c"], ["y"])]
    shape = [1, 4, 2, 2]
    read_twice = network(nodes, {"x": shape}, {"y": shape}, weights)
    an_output = network(nodes[:2], {"x": shape}, {"c": shape, "n": shape}, weights)
    before_it = network(
        [normalization("x", "r"), make_node("Conv", ["r", "w"], ["y"])], {"x": shape}, {"y": shape}, weights
    )
    for model in (read_twice, an_output, before_it):
        assert "BatchNormalization" in op_types(cleaned(model))


def test_convolutions_that_share_weights_are_folded_apart() -> None:
    weights = {"w": weight(4, 4, 1, 1)} | norm(4)
    nodes = [
        make_node("Conv", ["x", "w"], ["c"]),
        normalization("c", "n"),
        make_node("Conv", ["n", "w"], ["d"]),
        normalization("d", "m"),
        make_node("Conv", ["m", "w"], ["y"]),
    ]
    model = cleaned(network(nodes, {"x": [1, 4, 2, 2]}, {"y": [1, 4, 2, 2]}, weights))
    assert op_types(model) == ["Conv"] * 3


def test_names_are_gathered_as_often_for_many_normalisations_as_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathering them for each made reading quadratic."""
    gather = Mock(wraps=all_nodes)
    monkeypatch.setattr("shisha_rt.model.net.all_nodes", gather)
    shape, counts = [1, 4, 2, 2], []
    for count in (2, 20):
        nodes = []
        for i in range(count):
            nodes += [make_node("Conv", [f"t{i}", "w"], [f"c{i}"]), normalization(f"c{i}", f"t{i + 1}")]
        weights = {"w": weight(4, 4, 1, 1)} | norm(4)
        assert op_types(clean(network(nodes, {"t0": shape}, {f"t{count}": shape}, weights))) == ["Conv"] * count
        counts.append(gather.call_count)
        gather.reset_mock()
    assert counts[0] == counts[1]


def test_pass_through_goes_and_output_names_stay() -> None:
    nodes = [
        make_node("Identity", ["x"], ["i"]),
        make_node("Relu", ["i"], ["r"]),
        make_node("Dropout", ["r"], ["d", "mask"]),
        make_node("Identity", ["d"], ["first"]),
        make_node("Identity", ["first"], ["second"]),
        make_node("Identity", ["x"], ["third"]),
    ]
    model = cleaned(network(nodes, {"x": [1, 3]}, {name: [1, 3] for name in ("first", "second", "third")}))
    assert op_types(model) == ["Relu", "Identity", "Identity"]


def test_constants_and_shapes_are_folded() -> None:
    nodes = [
        make_node("Shape", ["x"], ["shape"], start=0, end=1),
        make_node("Constant", [], ["rest"], value=numpy_helper.from_array(np.array([-1]))),
        make_node("Concat", ["shape", "rest"], ["target"], axis=0),
        make_node("Reshape", ["x", "target"], ["flat"]),
        make_node("Shape", ["flat"], ["again"]),
        make_node("ConstantOfShape", ["again"], ["ones"], value=helper.make_tensor("v", 1, [1], [2.5])),
        make_node("Add", ["flat", "ones"], ["y"]),
        make_node("Relu", ["x"], ["dead"]),
    ]
    model = cleaned(network(nodes, {"x": [2, 3, 4]}, {"y": [2, 12]}))
    assert op_types(model) == ["Reshape", "Add"]
    assert {tensor.name for tensor in model.graph.initializer} == {"target", "ones"}


ROWS = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)


MAP = weight(1, 4, 6, 5)
WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}


@pytest.mark.parametrize(
    ("op_type", "read", "attributes", "shape", "weights", "opset"),
    [
        (
            "Resize",
            ["k", "", "more"],
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            [1, 1, 1, 2],
            {"k": ROWS, "more": np.array([1, 1, 0.6, 0.6], np.float32)},
            15,
        ),
        (
            "MaxUnpool",
            ["k", "at", "size"],
            WINDOW,
            [1, 1, 5, 5],
            {
                "k": np.array([[[[5, 6], [7, 8]]]], np.float32),
                "at": np.array([[[[5, 7], [13, 15]]]]),
                "size": np.array([1, 1, 5, 5]),
            },
            15,
        ),
        # Before opset 13 all axes from `axis` on are normalised together.
        ("Hardmax", ["k"], {"axis": 1}, [2, 3, 4], {"k": weight(2, 3, 4)}, 12),
        ("LogSoftmax", ["k"], {"axis": 1}, [2, 3, 4], {"k": weight(2, 3, 4)}, 12),
        ("Softmax", ["k"], {"axis": 1}, [2, 3, 4], {"k": weight(2, 3, 4)}, 12),
        ("BatchNormalization", ["k", "scale", "shift", "mean", "var"], {}, [1, 4, 6, 5], {"k": MAP, **norm(4)}, 13),
        ("LpNormalization", ["k"], {"p": 1}, [2, 3], {"k": weight(2, 3)}, 15),
        ("LRN", ["k"], {"size": 3, "alpha": 1.0}, [1, 4, 6, 5], {"k": MAP}, 15),
        (
            "LpPool",
            ["k"],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 1], "ceil_mode": 1},
            [1, 1, 3, 3],
            {"k": weight(1, 1, 6, 6)},
            22,
        ),
        ("MaxPool", ["k"], {**WINDOW, "auto_pad": "SAME_LOWER"}, [1, 4, 3, 3], {"k": MAP}, 15),
        (
            "AveragePool",
            ["k"],
            {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1},
            [1, 1, 3, 3],
            {"k": weight(1, 1, 7, 7)},
            19,
        ),
        ("ReduceSumSquare", ["k"], {"axes": [0]}, [1, 3], {"k": np.array([[70_000, 2, 3]], np.int32)}, 15),
        (
            "RoiAlign",
            ["k", "boxes", "of"],
            {"output_height": 2, "output_width": 2},
            [1, 4, 2, 2],
            {"k": MAP, "boxes": np.array([[0, 0, 3, 3]], np.float32), "of": np.array([0])},
            15,
        ),
        (
            "GridSample",
            ["k", "grid"],
            {"mode": "cubic", "padding_mode": "border", "align_corners": 1},
            [1, 4, 1, 1],
            {"k": MAP, "grid": np.array([[[[1.2, 0.9]]]], np.float32)},
            22,
        ),
    ],
)  # fmt: skip
def test_what_the_reference_computes_otherwise_is_left_to_the_engine(
    op_type: str,
    read: list[str],
    attributes: dict[str, Any],
    shape: list[int],
    weights: dict[str, Array],
    opset: int,
) -> None:
    nodes = [
        make_node(op_type, read, ["c"], **attributes),
        make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        make_node("Add", ["x", "d"], ["y"]),
    ]
    model = network(nodes, {"x": shape}, {"y": shape}, weights, opset=opset)
    assert op_types(cleaned(model)) == [op_type, "Cast", "Add"]


ODD = {"k": np.array([[np.nan, 1, -0.0, np.inf, -1]], np.float32)}


@pytest.mark.parametrize(
    "node",
    [
        make_node("ReduceMax", ["k"], ["c"], axes=[1]),
        make_node("ReduceMin", ["k"], ["c"], axes=[1]),
        make_node("Relu", ["k"], ["c"]),
        make_node("Max", ["k", "k"], ["c"]),
        make_node("PRelu", ["k", "k"], ["c"]),
        make_node("LayerNormalization", ["k", "k"], ["c"]),
    ],
    ids=lambda node: str(node.op_type),
)
def test_operators_on_odd_constants_are_left_to_the_engine(node: onnx.NodeProto) -> None:
    """The reference hands on nan where the engine passes over it, and has another sign of zero."""
    nodes = [node, make_node("Div", ["x", "c"], ["y"])]
    assert op_types(cleaned(network(nodes, {"x": [1, 5]}, {"y": [1, 5]}, ODD))) == [node.op_type, "Div"]


def test_masks_of_odd_constants_are_folded() -> None:
    nodes = [
        make_node("Neg", ["k"], ["turned"]),
        make_node("IsNaN", ["turned"], ["is_nan"]),
        make_node("Where", ["is_nan", "k", "turned"], ["chosen"]),
        make_node("Concat", ["chosen", "k"], ["long"], axis=0),
        make_node("Div", ["x", "long"], ["y"]),
    ]
    assert op_types(cleaned(network(nodes, {"x": [2, 5]}, {"y": [2, 5]}, ODD))) == ["Div"]


def test_constant_attention_is_left_to_the_engine() -> None:
    """Its products before the mask differ."""
    shape = [2, 3, 4, 18]
    node = make_node(
        "Attention", ["q", "k", "v", "mask"], ["a", "", "", "products"], is_causal=1, qk_matmul_output_mode=1
    )
    nodes = [node, make_node("Add", ["x", "products"], ["y"])]
    weights = {"q": weight(2, 3, 4, 8), "mask": weight(4, 18, seed=3)}
    weights |= {name: weight(2, 3, 18, 8, seed=seed) for seed, name in enumerate("kv", 1)}
    model = network(nodes, {"x": shape}, {"y": shape}, weights, opset=23)
    assert op_types(clean(model)) == ["Attention", "Add"]
    cleaned(model)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("read", "axis"), [(["c", "x"], 1), (["c", "x", "r"], -2), (["x", "c", "r"], 1)])
def test_tokens_beside_a_sequence_are_added_to_it_as_concat_does_not_broadcast(
    read: list[str], axis: int, opset: int
) -> None:
    """As vision transformers have them: a class token, which exporters expand to one frame, and registers."""
    nodes = [
        make_node("Expand", ["token", "shape"], ["c"]),
        make_node("Concat", read, ["j"], axis=axis),
        make_node("Relu", ["j"], ["y"]),
    ]
    weights = {"token": weight(1, 1, 4), "shape": np.array([1, 1, 4]), "r": weight(1, 3, 4, seed=1)}
    length = 6 + ("r" in read) * 3
    model = network(nodes, {"x": [1, 5, 4]}, {"y": [1, length, 4]}, weights, opset=opset)
    result = cleaned(model)
    assert op_types(result) == ["Pad", "Add", "Relu"]
    feeds = {"x": weight(1, 5, 4, seed=2)}
    feeds["x"][0, 0, :3] = -0.0, np.inf, np.nan
    (now,), (original,) = run(result, feeds), run(model, feeds)
    assert now.tobytes() == original.tobytes()


@pytest.mark.parametrize(
    ("read", "weights", "shape", "made", "axis"),
    [
        (["c", "x"], {"c": weight(1, 5, 4)}, [1, 5, 4], [2, 5, 4], 0),
        (["c", "x"], {"c": weight(2, 1, 4)}, [2, 5, 4], [2, 6, 4], 1),
        (["c", "x"], {"c": weight(1, 1, 4, 4)}, [1, 5, 4, 4], [1, 6, 4, 4], 1),
        (["c", "x", "x"], {"c": weight(1, 1, 4)}, [1, 5, 4], [1, 11, 4], 1),
        (["x", "x"], {}, [1, 5, 4], [1, 10, 4], 1),
    ],
)
def test_what_else_is_joined_stays(
    read: list[str], weights: dict[str, Array], shape: list[int], made: list[int], axis: int
) -> None:
    nodes = [make_node("Concat", read, ["y"], axis=axis)]
    assert op_types(cleaned(network(nodes, {"x": shape}, {"y": made}, weights))) == ["Concat"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("of", "size"), [(4, 8), (4, 10), (9, 3), (5, 16)])
@pytest.mark.parametrize("opset", [13, 19])
def test_sizes_of_all_axes_are_stated_as_scales(of: int, size: int, mode: str, opset: int) -> None:
    """Sizes are those of one frame."""
    nodes = [make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)]
    weights = {"sizes": np.array([1, 2, size, size])}
    model = network(nodes, {"x": [1, 2, of, of]}, {"y": [1, 2, size, size]}, weights, opset=opset)
    result = cleaned(model)
    (node,) = result.graph.node
    assert list(node.input) == ["x", "", "y/scales"]
    feeds = {"x": weight(1, 2, of, of)}
    (now,), (original,) = run(result, feeds), run(model, feeds)
    assert now.tobytes() == original.tobytes()


@pytest.mark.parametrize(
    ("of", "sizes", "attributes"),
    [
        ([1, 2, 4, 4], [1, 2, 7, 5], {"keep_aspect_ratio_policy": "not_larger"}),
        ([1, 2, 4, 4], [2, 2, 8, 8], {}),
        ([1, 2, 4, 7], [1, 2, 8, 31], {}),  # 31 / 7 in single precision makes 30
        ([1, 2, 4, 7], [1, 2, 8, 9], {}),  # 9 / 7 makes 8 in double precision, as shapes are inferred
    ],
)
def test_sizes_that_scales_do_not_make_stay(of: list[int], sizes: list[int], attributes: dict[str, str]) -> None:
    nodes = [make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)]
    made = of if attributes else sizes
    model = network(nodes, {"x": of}, {"y": made}, {"sizes": np.array(sizes)}, opset=19)
    assert "sizes" in cleaned(model).graph.node[0].input


def test_random_numbers_and_terabytes_are_not_folded() -> None:
    nodes = [
        make_node("RandomNormal", [], ["noise"], shape=[1, 3], seed=1.0),
        make_node("ConstantOfShape", ["huge"], ["zeros"]),
        make_node("Gather", ["zeros", "index"], ["row"], axis=0),
        make_node("Add", ["x", "noise"], ["s"]),
        make_node("Add", ["s", "row"], ["y"]),
    ]
    weights = {"huge": np.array([1 << 38, 3]), "index": np.array([0])}
    model = clean(network(nodes, {"x": [1, 3]}, {"y": [1, 3]}, weights))
    assert {"RandomNormal", "ConstantOfShape"} <= set(op_types(model))


def test_names_are_kept_where_they_are_unique() -> None:
    names = ["same", "same", "", "Relu_1"]
    nodes = [make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name) for i, name in enumerate(names)]
    model = clean(network(nodes, {"t0": [1, 3]}, {"t4": [1, 3]}))  # an engine refuses the original
    assert [node.name for node in model.graph.node] == ["same", "Relu_1_1", "Relu_2", "Relu_1"]


def test_initialisers_listed_as_inputs_and_unread_inputs_go() -> None:
    model = network(
        [make_node("MatMul", ["x", "w"], ["y"])],
        {"x": [1, 2], "w": [2, 2], "unused": [5], "dummy": [1, 1]},
        {"y": [1, 2]},
        {"w": weight(2, 2), "unused": weight(5)},
    )
    model.ir_version = 3
    result = cleaned(model)
    assert [value.name for value in result.graph.input] == ["x"]
    assert [tensor.name for tensor in result.graph.initializer] == ["w"]
    assert result.ir_version >= 8


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["Conv", "BatchNormalization", "Identity", "Dropout", "Relu"]), min_size=1, max_size=8))
def test_any_chain_computes_the_same(ops: list[str]) -> None:
    nodes = []
    for i, op in enumerate(ops):
        extra = {"Conv": ["w"], "BatchNormalization": ["scale", "shift", "mean", "var"]}.get(op, [])
        nodes.append(make_node(op, [f"t{i}", *extra], [f"t{i + 1}"]))
    shape = [1, 2, 3, 3]
    cleaned(network(nodes, {"t0": shape}, {f"t{len(ops)}": shape}, {"w": weight(2, 2, 1, 1)} | norm(2)))


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_zoo_networks_compute_the_same(name: str) -> None:
    result = cleaned(onnx.load(zoo_path(name)))
    assert not {"BatchNormalization", "Dropout", "Identity", "Constant"} & set(op_types(result))
