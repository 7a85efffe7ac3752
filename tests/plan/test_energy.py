"""Joules of a frame: power times what its stages take, on teams and on copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from shisha_rt.plan.energy import frame_joules
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

POWER_W = {"a": 2.0, "b": 0.5, "c": 0.5}


@pytest.mark.parametrize(
    ("plan", "service_s", "joules"),
    [
        (Plan.of([(0, 1, "a")]), [[3.0]], 6.0),
        (Plan.of([(0, 0, "a"), (1, 1, "b")]), [[3.0], [4.0]], 8.0),
        (Plan.chain([(0, 1, [("b", "c")])]), [[3.0]], 3.0),  # both draw until it is done
        (Plan.chain([(0, 1, ["b", "c"])]), [[3.0, 3.0]], 1.5),  # either computes half of the frames
        (Plan.chain([(0, 1, ["a", "b"])]), [[1.0, 3.0]], 0.75 * 2.0 + 0.25 * 1.5),  # three frames of four are quick
        (Plan.chain([(0, 1, ["a", "b"])]), [[1.0, math.inf]], 2.0),
        (Plan.of([(0, 1, "d")]), [[3.0]], math.inf),
        (Plan.of([(0, 1, "a")]), [[math.inf]], math.inf),
    ],
)
def test_by_hand(plan: Plan, service_s: Sequence[Sequence[float]], joules: float) -> None:
    assert frame_joules(plan, service_s, POWER_W) == pytest.approx(joules)


def measured(energy_j: float, band: float = 0.1) -> Measurement:
    return Measurement((1.0,), band, 32, 1.0, energy_j=energy_j)


def test_less_energy_is_better_beyond_noise() -> None:
    assert measured(1.0).is_better_than(measured(1.2), "energy")
    assert not measured(1.0).is_better_than(measured(1.05), "energy")
    assert not measured(1.0).is_better_than(measured(1.2), "throughput")


def test_a_plan_that_is_late_is_worse_than_any_that_is_not() -> None:
    assert measured(9.0).is_better_than(measured(math.inf), "energy")
    assert not measured(math.inf).is_better_than(measured(9.0), "energy")
    assert not measured(math.inf).is_better_than(measured(math.inf), "energy")
    late = [Measurement((seconds,), 0.01, 32, 1.0) for seconds in (1.0, 2.0)]
    assert late[0].is_better_than(late[1], "energy")
    assert not late[1].is_better_than(late[0], "energy")
    assert measured(math.inf).agrees_with(measured(math.inf), "energy")
