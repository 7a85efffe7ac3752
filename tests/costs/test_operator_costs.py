"""What operators cost on a place's devices: parts of it, and the formulas behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, beside, described_costs
from shisha_rt.machine.device import Device, Family, Fusion, Term, Transfer
from tests.costs.networks import chain

INF: Final = math.inf
ANY: Final = Device("any", "any.toml", "onnxruntime", "dram", "fp32", 1.0, (Family(frozenset(), (), (Term(2.0),)),))
RELU: Final = Device("relu", "relu.toml", "onnxruntime", "own", "bf16", 0.5, (Family(frozenset({"Relu"}), (), ()),))
ENGINE: Final = Device("engine", "engine.toml", "onnxruntime", "engine", "fp32")
COSTS: Final = OperatorCosts((ANY, RELU), np.array([[1.0, INF], [2.0, 4.0], [INF, INF]]))


def test_what_some_device_can_run() -> None:
    assert COSTS.capable.tolist() == [True, True, False]


def test_a_part_is_inclusive() -> None:
    part = COSTS.part(1, 2)
    assert part.devices == COSTS.devices
    assert part.time_s.tolist() == [[2, 4], [INF, INF]]


def test_slower_devices() -> None:
    assert COSTS.slowed({"relu": 3.0, "gone": 9.0}).time_s.tolist() == [[1, INF], [2, 12], [INF, INF]]
    assert COSTS.time_s[1, 1] == 4


def test_transfers_of_a_slower_device_take_longer_unless_its_memory_is_shared() -> None:
    moving = replace(RELU, transfer_in=Transfer(1.0, 10.0))
    (alone,) = OperatorCosts((moving,), np.ones((1, 1))).slowed({"relu": 3.0}).devices
    assert alone.transfer_in == Transfer(3.0, 10.0 / 3.0)
    shared = (moving, replace(ANY, memory=moving.memory))
    assert OperatorCosts(shared, np.ones((1, 2))).slowed({"relu": 3.0}).devices == shared


def test_formulas_of_every_operator_and_nothing_known_of_an_engine() -> None:
    costs = described_costs(chain([4, 4]), [ANY, ENGINE, RELU])  # Conv, Relu
    assert costs.devices == (ANY, ENGINE, RELU)
    np.testing.assert_array_equal(costs.time_s, [[3.0, math.nan, INF], [3.0, math.nan, 0.5]])


class TestGroups:
    NPU: Final = replace(RELU, families=(Family(frozenset({"Conv"}), (), ()),), fusions=(Fusion(("Conv", "Relu")),))

    def test_all_that_described_devices_run_as_one(self) -> None:
        costs = described_costs(chain([4, 4, 4]), [ENGINE, self.NPU])  # Conv, Relu, Conv, Relu
        assert costs.groups == (GroupCost((0, 1), 1, 0.5), GroupCost((2, 3), 1, 0.5))
        only_npu = described_costs(chain([4, 4, 4]), [self.NPU])
        assert only_npu.groups == (GroupCost((0, 1), 0, 0.5), GroupCost((2, 3), 0, 0.5))
        assert only_npu.capable.tolist() == [True] * 4
        assert only_npu.capable_alone.tolist() == [True, False] * 2
        assert only_npu.slowed({"relu": 3.0}).groups[1] == GroupCost((2, 3), 0, 1.5)
        part = only_npu.part(1, 3)
        assert part.groups == (GroupCost((1, 2), 0, 0.5),)
        assert part.capable.tolist() == [False, True, True]

    def test_places_beside_each_other(self) -> None:
        graph = chain([4, 4])
        both = beside([described_costs(graph, [ANY, RELU]), described_costs(graph, [ANY, self.NPU])])
        assert both.devices == (ANY, RELU, ANY, self.NPU)
        assert both.time_s.tolist() == [[3.0, INF, 3.0, 0.5], [3.0, 0.5, 3.0, INF]]
        assert both.groups == (GroupCost((0, 1), 3, 0.5),)
