"""What a network costs on places that are a processor each: as workers take it, and no more than they can run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, described_costs
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.spans import Span
from shisha_rt.papers.partitiontuner.partition_problem import whole_problem
from shisha_rt.papers.partitiontuner.processors import costs_of_devices
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segment
from tests.placement.test_segment_times import ADDER, FAR, HOST, graph

MEASURED = Device("measured", "", "openvino", memory="measured", precision="fp32")


def machine(*places: str, speed: float = 0.5) -> Machine:
    ranked = (Place(name, (0,), 1, 1, speed, rank, "memory") for rank, name in enumerate(places))
    return Machine("board", "board.toml", (Memory("memory", None),), tuple(ranked))


def works(nodes: int) -> Iterator[list[Span]]:
    """All runs of nodes that a stage may have."""
    for chosen in itertools.product((False, True), repeat=nodes):
        runs = [list(group) for has, group in itertools.groupby(range(nodes), key=chosen.__getitem__) if has]
        if runs:
            yield [(run[0], run[-1]) for run in runs]


@pytest.mark.parametrize("device", [HOST, ADDER, FAR], ids=lambda device: device.name)
def test_a_stage_is_told_what_a_worker_takes_for_it(device: Device) -> None:
    built, own = graph(), described_costs(graph(), (device,))
    costs = costs_of_devices(built, machine("place"), {"place": own}, 0.0)
    for runs in works(len(built.operators)):
        parts = [segment(built, first, last, device.name) for first, last in runs]
        assert costs.stage_s(runs, 0) == math.fsum(segment_times_s(built, parts, own)) / 0.5


def test_what_has_no_cost_in_a_stage_is_not_planned_whatever_was_measured_of_it_by_itself() -> None:
    built = graph()
    own = OperatorCosts((MEASURED,), np.array([[1.0], [math.inf], [1.0], [1.0]]))
    groups = GroupCost((0, 1), 0, 1.0), GroupCost((2, 3), 0, 1.0)
    alone = OperatorCosts((MEASURED,), np.ones((4, 1)), groups)
    host = described_costs(built, (HOST,))
    costs = costs_of_devices(built, machine("a", "b"), {"a": host, "b": own}, 0.0, {"b": alone})
    problem = whole_problem(costs)
    assert problem.nodes[1].capable == (0,)
    assert [group.nodes for group in problem.groups] == [(2, 3)]


def test_a_measured_place_pays_for_being_parted_as_much_as_its_operators_did_by_themselves() -> None:
    """Of a chain of three products, each takes 1 s of the whole and 1.5 by itself; nothing at the network's ends."""
    operators = tuple(Operator(n, "MatMul", "", (x, "w"), (y,), {}) for n, x, y in
                      (("a", "x", "ta"), ("b", "ta", "tb"), ("c", "tb", "y")))  # fmt: skip
    tensors = {name: Tensor(name, (4, 4), "FP32") for name in ("x", "ta", "tb", "y")}
    built = Graph("net", operators, (tensors["x"],), (tensors["y"],), tensors, {"w": Tensor("w", (4, 4), "FP32")})
    own, alone = OperatorCosts((MEASURED,), np.ones((3, 1))), OperatorCosts((MEASURED,), np.full((3, 1), 1.5))
    costs = costs_of_devices(built, machine("place", speed=1.0), {"place": own}, 0.0, {"place": alone})
    assert [costs.stage_s(runs, 0) for runs in ([(0, 2)], [(1, 1)], [(0, 0)], [(1, 2)])] == [3.0, 1.5, 1.25, 2.25]
