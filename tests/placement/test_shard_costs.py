"""What a stage with a split takes on a described device, where the device can run it at all."""

from __future__ import annotations

import math
from dataclasses import replace

from shisha_rt.machine.device import Device, Family
from shisha_rt.model.split import Axis, Split
from shisha_rt.placement.shard_costs import split_stage_s
from tests.model.shards.test_rewrite import graph_of, operator

NETWORK = graph_of(
    [operator("Conv", "x,w", "a", kernel_shape=(3, 3), pads=(1, 1, 1, 1)), operator("Relu", "a", "y")],
    {"x": (1, 8, 6, 6)},
    dict.fromkeys("ay", (1, 8, 6, 6)),
    {"w": (8, 8, 3, 3)},
)
CALLS = Family(frozenset({"Conv", "Relu", "Sum"}), (), ())
ANY = Device("any", "", "onnxruntime", "ram", "fp32", call_s=1e-3, families=(CALLS,))


def seconds(axis: Axis, part: int, device: Device) -> float | None:
    return split_stage_s(NETWORK, (0, 0), Split((0, 0), axis, (4, 4), part), [(0, 0)], device)


def test_integers_are_not_added_up() -> None:
    """A sum of its own a shard hands on as it is; what joins them has no scale for these."""
    int8 = replace(ANY, precision="int8")
    assert seconds("channels", 0, int8) == seconds("channels", 0, ANY) == 2e-3
    assert [seconds("inputs", part, ANY) for part in range(3)] == [1e-3, 1e-3, 2e-3]
    assert [seconds("inputs", part, int8) for part in range(3)] == [1e-3, 1e-3, math.inf]


def test_a_measured_device_has_no_formula() -> None:
    assert seconds("inputs", 0, replace(ANY, families=())) is None
    assert seconds("channels", 0, replace(ANY, families=(), precision="int8")) is None
    assert seconds("inputs", 2, replace(ANY, families=(), precision="int8")) == math.inf
