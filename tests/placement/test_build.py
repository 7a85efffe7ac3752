"""A graph and devices into a problem: what becomes of operators, tensors and prices, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from shisha_rt.costs.operator_costs import OperatorCosts, described_costs
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Device, DirectLink, Family, Term, Transfer
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.topologies.bert import bert
from shisha_rt.placement.build import build_problem, tensor_kinds
from shisha_rt.placement.dcg import TensorKind
from shisha_rt.placement.problem import Problem, TransferCounting
from shisha_rt.placement.problem_file import parse_problem
from tests.placement.problem_object import problem_object
from tests.wording import raised, says


def graph() -> Graph:
    """Tensor x -> a (Add) -> b (Relu) -> c (Add of what a and b make) -> y; nothing reads the second output of a."""
    operators = (
        Operator("a", "Add", "", ("x", "w"), ("ta", "unread"), {}),
        Operator("b", "Relu", "", ("ta",), ("tb",), {}),
        Operator("c", "Add", "", ("ta", "tb"), ("y",), {}),
    )
    tensors = {name: Tensor(name, (4, 2), "FP32") for name in ("x", "ta", "tb", "y", "unread")}
    constants = {"w": Tensor("w", (2,), "FP32")}
    return Graph("net", operators, (tensors["x"],), (tensors["y"],), tensors, constants)


HOST = Device("host", "host.toml", "onnxruntime", "dram", "fp32", 1.0, (Family(frozenset(), (), (Term(1.0),)),))
TURBO = replace(HOST, name="turbo", source="turbo.toml", call_s=0.5)
ADDER = Device(
    "adder",
    "adder.toml",
    "onnxruntime",
    "own",
    "bf16",
    0.25,
    (Family(frozenset({"Add"}), (), ()),),
    transfer_in=Transfer(1.0, 16.0),
    transfer_out=Transfer(2.0, 8.0),
)


def described(*devices: Device, counting: TransferCounting = "once") -> Problem:
    return build_problem(graph(), described_costs(graph(), devices), counting)


def test_the_problem() -> None:
    problem = described(HOST, TURBO, ADDER)
    assert problem.devices == ("host", "turbo", "adder")
    assert problem.memories == ("dram", "own")
    assert problem.memory_of == (0, 0, 1)
    assert problem.transfer_counting == "once"
    assert [(node.name, node.op, node.cost_s) for node in problem.nodes] == [
        ("a", "Add", (2.0, 1.5, 0.25)),
        ("b", "Relu", (2.0, 1.5, math.inf)),
        ("c", "Add", (2.0, 1.5, 0.25)),
    ]
    # 8 elements of 2 bytes: in 1 + 16/16, out 2 + 16/8. What nobody reads, and the graph's own ends, move for nothing.
    transfers = (0.0, 2.0), (0.0, 2.0), (4.0, 0.0)
    assert [(tensor.name, tensor.producer, tensor.consumers, tensor.transfer_s) for tensor in problem.tensors] == [
        ("ta", 0, (1, 2), transfers),
        ("tb", 1, (2,), transfers),
    ]


def test_the_problem_can_be_written_and_read() -> None:
    problem = described(HOST, ADDER, counting="per_edge")
    text = json.dumps(problem_object(problem))
    assert parse_problem(text, "p") == problem


def test_kinds_are_those_of_the_tensors_in_their_order() -> None:
    assert tensor_kinds(graph(), described(HOST)) == (TensorKind("FP32", 32), TensorKind("FP32", 32))


def test_an_operator_that_no_device_can_run() -> None:
    with raised(BadInput, Error.DEVICE_UNFIT) as caught:
        described(ADDER, replace(ADDER, name="other"))
    assert str(caught.value) == says("net: operator Relu ('b'): no device can …")


LINK = DirectLink("far", Transfer(9.0, 16.0))


@pytest.mark.parametrize("change", [{"transfer_in": Transfer(9.0, 16.0)}, {"precision": "fp32"}, {"links": (LINK,)}])
def test_devices_of_one_memory_agree_on_the_way_in(change: dict[str, object]) -> None:
    other = replace(ADDER, name="other", source="other.toml", **change)  # type: ignore[arg-type]
    with raised(BadInput, Error.DEVICE_UNFIT) as caught:
        described(HOST, ADDER, other)
    assert str(caught.value) == says("other.toml: shares memory own … transfer_in and precision")


def test_measured_devices_have_the_costs_that_are_given_and_pay_for_the_way_in_alone() -> None:
    first = Device("one", "one.toml", "onnxruntime", "one", "fp32", transfer_in=Transfer(0.5, 32.0))
    other = Device("other", "other.toml", "openvino", "other", "fp32", transfer_in=Transfer(0.25, 64.0))
    time_s = np.array([[1.0, 2.0, 2.0], [3.0, math.inf, 2.0], [5.0, 6.0, 2.0]])
    problem = build_problem(graph(), OperatorCosts((first, other, HOST), time_s))
    assert [node.cost_s for node in problem.nodes] == [(1, 2, 2), (3, math.inf, 2), (5, 6, 2)]
    assert problem.memories == ("one", "other", "dram")
    assert problem.tensors[0].transfer_s == ((0.0, 0.75, 0.0), (1.5, 0.0, 0.0), (1.5, 0.75, 0.0))  # 32 bytes


def test_a_cost_that_is_not_known() -> None:
    measured = Device("one", "one.toml", "onnxruntime", "one", "fp32")
    with pytest.raises(ValueError, match="nan"):
        build_problem(graph(), described_costs(graph(), [HOST, measured]))


def test_bert_on_the_shipped_board_has_the_paper_s_counts(tmp_path: Path) -> None:
    """DCG-2024, Table 3: 222 operators, 108 on PIM; with those on CPU_P they are 469 nodes of the DCG."""
    onnx.save(bert(), tmp_path / "bert.onnx")
    machine = load_machine("pim-board")
    network = read_model(tmp_path / "bert.onnx", InputSizes({"sequence": 16})).graph
    problem = build_problem(network, described_costs(network, devices_of(machine, machine.places[0])))
    on_cpu_s, on_cpu_p, on_pim = (sum(device in node.capable for node in problem.nodes) for device in range(3))
    assert (on_cpu_s, on_pim, on_cpu_s + on_cpu_p + on_pim) == (222, 108, 469)
