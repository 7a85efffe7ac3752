"""Ids of partitions: equal for what takes the same time, whatever it is called; different for all else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.partition_ids import operator_ids, partition_id
from stages.built.clean_model import CleanModel
from tests.model.int8 import qdq_network, qoperator_network
from tests.model.networks import Array, network, weight, write

SHAPE = (1, 4, 8, 8)


def ids(model: onnx.ModelProto, folder: Path) -> tuple[str, ...]:
    """Also as they are once the model has been saved, and its large weights are elsewhere."""
    read = read_model(write(model, folder))
    model_ids = operator_ids(read.graph, read.proto)
    read.save(folder)
    saved = CleanModel.read(folder)
    assert operator_ids(saved.graph, onnx.load(folder / "clean.onnx", load_external_data=False)) == model_ids
    return model_ids


def network_of(
    op_type: str,
    *constants: Array,
    shape: Sequence[int] = SHAPE,
    element: int = TensorProto.FLOAT,
    opset: int = 17,
    name: str = "x",
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A network of an operator that reads `name` and constants."""
    held = {f"{name}_{index}": value for index, value in enumerate(constants)}
    node = helper.make_node(op_type, [name, *held], [f"{name}_y"], name=f"the {name}", domain=domain, **attributes)
    return network([node], {name: shape}, {f"{name}_y": None}, held, opset=opset, element=element)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def test_what_an_id_says(tmp_path: Path) -> None:
    (operator_id,) = ids(network_of("Conv", weight(8, 2, 3, 3), weight(8), group=2, pads=[1, 1, 1, 1]), tmp_path)
    assert operator_id == (
        "Conv-11(FP32[1x4x8x8], constant FP32[8x2x3x3], constant FP32[8]; group=2, pads=[1,1,1,1]) -> FP32[1x8x8x8]"
    )
    (operator_id,) = ids(network_of("Reshape", whole(4, -1)), tmp_path)
    assert operator_id == "Reshape-14(FP32[1x4x8x8], constant INT64[2]=[4,-1]; ) -> FP32[4x64]"


def test_names_and_the_values_of_weights_do_not_count(tmp_path: Path) -> None:
    assert ids(network_of("Conv", weight(8, 4, 3, 3)), tmp_path) == ids(
        network_of("Conv", weight(8, 4, 3, 3, seed=1), name="other"), tmp_path
    )


CONV = network_of("Conv", weight(8, 4, 3, 3))
LRN = network_of("LRN", size=3)
POWER = network_of("Pow", floats(2))
SLICE = network_of("Slice", whole(0), whole(4), whole(2))
SOFTMAX = network_of("Softmax", axis=1)
GATHER = network_of("Gather", whole(0, 1), axis=1)
RESIZE = network_of("Resize", floats(), floats(1, 1, 2, 2), mode="nearest")


@pytest.mark.parametrize(
    ("model", "other"),
    [
        pytest.param(CONV, network_of("Conv", weight(8, 4, 3, 3), strides=[2, 2]), id="strides"),
        pytest.param(CONV, network_of("Conv", weight(8, 4, 3, 3), pads=[1, 1, 1, 1]), id="pads"),
        pytest.param(CONV, network_of("Conv", weight(8, 4, 3, 3), weight(8)), id="bias"),
        pytest.param(CONV, network_of("Conv", weight(16, 4, 3, 3)), id="filters"),
        pytest.param(CONV, network_of("Conv", weight(8, 4, 3, 3), shape=(2, 4, 8, 8)), id="batch"),
        pytest.param(
            CONV, network_of("Conv", weight(8, 4, 3, 3).astype(np.float64), element=TensorProto.DOUBLE), id="datatype"
        ),
        pytest.param(network_of("Relu"), network_of("Sigmoid"), id="type"),
        pytest.param(LRN, network_of("LRN", size=3, beta=0.5), id="number"),
        pytest.param(RESIZE, network_of("Resize", floats(), floats(1, 1, 2, 2), mode="linear"), id="text"),
        pytest.param(SOFTMAX, network_of("Softmax", axis=1, opset=12), id="version"),
        pytest.param(network_of("Gelu", domain="com.microsoft"), network_of("Gelu", opset=20), id="domain"),
        pytest.param(SLICE, network_of("Slice", whole(1), whole(5), whole(2)), id="starts"),
        pytest.param(SLICE, network_of("Slice", whole(0), whole(4), whole(3)), id="axes"),
        pytest.param(GATHER, network_of("Gather", whole(0, 2), axis=1), id="indices"),
        pytest.param(POWER, network_of("Pow", floats(0.5)), id="exponent"),
    ],
)
def test_what_takes_another_time_has_another_id(tmp_path: Path, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    assert ids(model, tmp_path) != ids(other, tmp_path)


def test_what_is_a_weight_does_not_count_even_if_it_is_whole_numbers(tmp_path: Path) -> None:
    table = [network_of("Gather", np.arange(80, dtype=np.int64)[::step] % 4, axis=1) for step in (1, -1)]
    assert ids(table[0], tmp_path) == ids(table[1], tmp_path)
    for built in (qdq_network(), qoperator_network()):
        changed = onnx.ModelProto()
        changed.CopyFrom(built)
        for constant in changed.graph.initializer:
            values = numpy_helper.to_array(constant)
            if values.ndim and not constant.name.endswith("zero"):
                constant.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[::-1]), constant.name))
        assert ids(built, tmp_path) == ids(changed, tmp_path)


def test_where_an_operand_comes_from(tmp_path: Path) -> None:
    """A constant, another tensor, the same tensor."""
    w = weight(*SHAPE)
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["x", "a"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["y"]),
    ]
    model_ids = ids(network(nodes, {"x": SHAPE}, {"y": None}, {"w": w}), tmp_path)
    assert len({*model_ids}) == 3


def test_outputs_that_nobody_reads(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2, 2])
    both = network([node], {"x": SHAPE}, {"y": None})
    both.graph.output.append(helper.make_tensor_value_info("where", TensorProto.INT64, None))
    assert ids(both, tmp_path) != ids(network([node], {"x": SHAPE}, {"y": None}), tmp_path)


def test_graphs_inside(tmp_path: Path) -> None:
    def doubled(times: int) -> onnx.ModelProto:
        nodes = [helper.make_node("Mul", [f"t{i}", "x"], [f"t{i + 1}"]) for i in range(times)]
        nodes = [helper.make_node("Relu", ["x"], ["t0"]), *nodes]
        made = [helper.make_tensor_value_info(f"t{times}", TensorProto.FLOAT, SHAPE)]
        then = helper.make_graph(nodes, "then", [], made)
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "else", [], [
            helper.make_tensor_value_info("n", TensorProto.FLOAT, SHAPE)
        ])  # fmt: skip
        return network(
            [
                helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
                helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
                helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
            ],
            {"x": SHAPE},
            {"y": SHAPE},
        )

    once, twice, again = (ids(doubled(times), tmp_path) for times in (1, 2, 1))
    assert once == again
    assert [a == b for a, b in zip(once, twice, strict=True)] == [True, True, False]


def test_a_groups_id_is_its_operators_in_a_row(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model_ids = ids(network(nodes, {"x": SHAPE}, {"y": None}, {"w": weight(4, 4, 3, 3)}), tmp_path)
    assert partition_id(model_ids, (0, 1)) == partition_id(model_ids, (2, 3)) == f"{model_ids[0]} + {model_ids[1]}"
    assert partition_id(model_ids, (0,)) == model_ids[0]
    assert len({partition_id(model_ids, operators) for operators in ((0,), (1,), (0, 1))}) == 3


@pytest.mark.parametrize(("name", "distinct"), [("squeezenet", 37), ("resnet50", 45), ("inception_v1", 107)])
def test_a_network_repeats_itself(name: str, distinct: int) -> None:
    model = read_model(zoo_path(name))
    model_ids = operator_ids(model.graph, model.proto)
    assert len({*model_ids}) == distinct < len(model_ids)
