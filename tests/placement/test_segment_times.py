"""What segments take: numbers worked out by hand, and the sum against the checker's for every placement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.device_costs import transfer_cost_s
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, described_costs
from shisha_rt.machine.device import Device, DirectLink, Family, Term, Transfer
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.placement.build import build_problem
from shisha_rt.placement.check import cost
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segments
from shisha_rt.placement.stage_problem import place_stage

HOST = Device("host", "", "onnxruntime", "dram", "fp32", 1.0, (Family(frozenset(), (), (Term(1.0),)),))
TURBO = replace(HOST, name="turbo", call_s=0.5)
ADDER = Device(
    "adder",
    "",
    "onnxruntime",
    "own",
    "bf16",
    0.25,
    (Family(frozenset({"Add"}), (), ()),),
    transfer_in=Transfer(1.0, 16.0),  # 8 elements of 2 bytes: 2 s in
    transfer_out=Transfer(2.0, 8.0),  # and 4 s out
)
FAR = replace(HOST, name="far", memory="far", transfer_in=Transfer(0.5, 64.0), transfer_out=Transfer(0.25, 128.0))
DEVICES = HOST, TURBO, ADDER, FAR
LINKED = HOST, TURBO, replace(ADDER, links=(DirectLink("far", Transfer(0.25, 16.0)),)), FAR


def graph() -> Graph:
    """From x: a (Add) -> b (Relu) -> c (Add of what a and b make) -> d (Add of that and x); `ta` is handed out too."""
    operators = (
        Operator("a", "Add", "", ("x", "w"), ("ta",), {}),
        Operator("b", "Relu", "", ("ta",), ("tb",), {}),
        Operator("c", "Add", "", ("ta", "tb"), ("tc",), {}),
        Operator("d", "Add", "", ("tc", "x"), ("y",), {}),
    )
    tensors = {name: Tensor(name, (4, 2), "FP32") for name in ("x", "ta", "tb", "tc", "y")}
    outputs = tensors["ta"], tensors["y"]
    return Graph("net", operators, (tensors["x"],), outputs, tensors, {"w": Tensor("w", (2,), "FP32")})


def times_s(placement: Sequence[str], first: int = 0) -> tuple[float, ...]:
    built = graph()
    return segment_times_s(built, segments(built, first, placement), described_costs(built, DEVICES))


@pytest.mark.parametrize(
    ("placement", "first", "expected"),
    [
        (["host", "host", "host", "host"], 0, (8.0,)),
        # x in, ta out to b, and so not once more as an output; tb in, while ta and x are there already, and y out.
        (["adder", "host", "adder", "adder"], 0, (0.25 + 2 + 4, 2.0, 0.25 + 2 + 0.25 + 4)),
        # c reads ta where b has brought it, and d reads x where it has been from the start.
        (["adder", "host", "turbo", "host"], 0, (0.25 + 2 + 4, 2.0, 1.5, 2.0)),
        # ta goes from device to device, through the host but not for it: as an output it pays the way out again.
        (["adder", "far", "far", "far"], 0, (0.25 + 2 + 4 + 4, 6 + 1 + 1 + 0.5)),
        (["adder"], 0, (0.25 + 2 + 4,)),
        (["adder", "adder"], 2, (0.25 + 2 + 2 + 0.25 + 2 + 4,)),
        (["host", "adder"], 2, (2.0, 0.25 + 2 + 2 + 4)),
        (["adder", "host"], 2, (0.25 + 2 + 2 + 4, 2.0)),
    ],
)
def test_by_hand(placement: list[str], first: int, expected: tuple[float, ...]) -> None:
    # FAR moves 8 elements of 4 bytes: 1 s in and 0.5 s out.
    assert times_s(placement, first) == pytest.approx(expected)


def test_a_direct_link_is_the_readers() -> None:
    """8 elements of bf16 from the adder to the far device: 0.25 + 1 s, and not 4 s out and 1 s in. Slowed as it is."""
    built = graph()
    placement = ["adder", "far", "far", "far"]
    for slowness in (1.0, 2.0):
        costs = described_costs(built, LINKED).slowed({"adder": slowness, "far": slowness})
        predicted_s = segment_times_s(built, segments(built, 0, placement), costs)
        slower = (0.25 + 2 + 4, 6 + 1.25 + 1 + 0.5)
        assert predicted_s == pytest.approx([time_s * slowness for time_s in slower])


def test_a_stage_of_two_runs() -> None:
    """Two operators on the adder, the one between elsewhere: x in, ta out and kept for c, tb in, tc out."""
    built = graph()
    parts = [*segments(built, 0, ["adder"]), *segments(built, 2, ["adder"])]
    assert segment_times_s(built, parts, described_costs(built, DEVICES)) == (0.25 + 2 + 4, 0.25 + 2 + 4)


def test_an_operator_that_its_device_cannot_run_takes_forever() -> None:
    assert times_s(["host", "adder", "host", "host"])[1] == math.inf


def test_what_runs_as_one_does_so_within_a_segment_only() -> None:
    built = graph()
    costs = described_costs(built, (HOST, replace(HOST, name="second")))
    costs = replace(costs, groups=(GroupCost((0, 1), 0, 0.5), GroupCost((1, 2, 3), 0, 0.75), GroupCost((2, 3), 1, 9.0)))
    names = {"h": "host", "s": "second"}

    def times(placed: str, first: int = 0) -> tuple[float, ...]:
        return segment_times_s(built, segments(built, first, [names[letter] for letter in placed]), costs)

    assert times("hhhh") == (2.75,)  # alone, and the three as one: that saves most
    assert times("hhss") == (0.5, 4.0)  # and what would save nothing is not fused
    assert times("hshh") == (2.0, 2.0, 4.0)
    assert times("hhh", 1) == (0.75,)
    two_runs = [*segments(built, 0, ["host"]), *segments(built, 1, ["host"])]
    assert segment_times_s(built, two_runs, costs) == (2.0, 2.0)


def test_measured_costs_and_prices() -> None:
    """Engines of the host pay for what comes from each other, and not for what comes into the stage or leaves it."""
    first = Device("first", "", "onnxruntime", "first", "fp32", transfer_in=Transfer(1.0, 32.0))
    second = Device("second", "", "openvino", "second", "fp32", transfer_in=Transfer(0.0, 16.0))
    built = graph()
    costs = OperatorCosts((first, second), np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]))
    parts = segments(built, 0, ["first", "second", "first", "first"])
    assert segment_times_s(built, parts, costs) == (1, 20 + 2, (3 + 2) + 4)


@pytest.mark.parametrize("devices", [DEVICES, LINKED], ids=["a star", "a direct link"])
def test_over_a_whole_network_they_add_up_to_what_the_checker_says(devices: Sequence[Device]) -> None:
    """But for the ways in and out of the network, which no placement problem has."""
    built = graph()
    costs = described_costs(built, devices)
    problem = build_problem(built, costs)
    checked = 0
    for assignment in itertools.product(range(len(DEVICES)), repeat=len(built.operators)):
        expected_s = cost(problem, assignment).total_s
        if math.isfinite(expected_s):
            placed = [devices[index] for index in assignment]
            expected_s += sum(_ways_in_s(built, placed)) + sum(_ways_out_s(built, placed))
            parts = segments(built, 0, [device.name for device in placed])
            assert sum(segment_times_s(built, parts, costs)) == pytest.approx(expected_s), assignment
            checked += 1
    assert checked == 3 * 4**3


@pytest.mark.parametrize(("first", "last", "segment_count"), [(0, 3, 3), (0, 1, 2), (1, 2, 2), (2, 3, 1)])
def test_they_are_what_the_solver_predicts(first: int, last: int, segment_count: int) -> None:
    built = graph()
    costs = described_costs(built, DEVICES).slowed({"host": 50.0, "turbo": 50.0, "far": 20.0})
    placed = place_stage(built, first, last, costs)
    parts = segments(built, first, placed.devices)
    assert len(parts) == segment_count
    assert segment_times_s(built, parts, costs) == pytest.approx(placed.segments_s)


def _ways_in_s(built: Graph, devices: Sequence[Device]) -> list[float]:
    ways_s = {}
    for operator, device in zip(built.operators, devices, strict=True):
        if "x" in operator.inputs:
            ways_s[device.memory] = transfer_cost_s(built.tensors["x"], HOST, device)
    return list(ways_s.values())


def _ways_out_s(built: Graph, devices: Sequence[Device]) -> list[float]:
    return [
        transfer_cost_s(tensor, devices[built.producer[tensor.name]], HOST)
        for tensor in built.outputs
        if "dram" not in {devices[reader].memory for reader in built.consumers.get(tensor.name, ())}
    ]
