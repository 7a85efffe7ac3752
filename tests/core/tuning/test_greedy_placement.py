"""Placements without a solver: legal, and no worse than what is known of the operators alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shisha_rt.core.tuning.greedy_placement import GreedyPlacement
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.plan.plan import Plan, Stage

NO = math.inf


def at_once(*rows: tuple[float, ...], groups: tuple[GroupCost, ...] = ()) -> GreedyPlacement:
    """One place `p` with devices a, b, c; `rows` (operators, devices), and each operator is a layer of its own."""
    devices = tuple(Device(name, "test", "onnxruntime", name, "fp32") for name in "abc"[: len(rows[0])])
    return GreedyPlacement(
        {"p": OperatorCosts(devices, np.array(rows, float), groups)}, lambda first, last: (first, last)
    )


def placed(devices: GreedyPlacement, *work: tuple[int, int], ratios: dict[str, float] | None = None) -> str | None:
    plan = devices.placed(
        Plan((Stage(work, (("p",),)),)), {("p", name): ratio for name, ratio in (ratios or {}).items()}
    )
    return None if plan is None else "".join(plan.stages[0].placement)


def test_a_stage_is_on_the_device_that_takes_the_least_for_all_of_it() -> None:
    greedy = at_once((1, 3), (2, 1), (5, 2))
    assert placed(greedy, (0, 2)) == "bbb"
    assert placed(greedy, (0, 1)) == "aa"
    assert placed(greedy, (0, 0), (2, 2)) == "bb"


def test_as_slow_as_it_is_now() -> None:
    assert placed(at_once((1, 3), (1, 3)), (0, 1), ratios={"a": 4.0}) == "bb"


def test_one_that_can_run_all_comes_before_one_that_cannot() -> None:
    """What tensors cost on their way between the two is not counted."""
    assert placed(at_once((0.1, 3), (NO, 3)), (0, 1)) == "bb"


def test_what_none_can_run_alone_is_parted() -> None:
    assert placed(at_once((1, NO, 2), (NO, 1, NO), (9, 4, NO)), (0, 2)) == "abb"


class TestGroups:
    def test_what_a_device_runs_as_one_counts_once(self) -> None:
        greedy = at_once((4, 3), (4, 3), (4, 5), groups=(GroupCost((0, 1), 0, 2.0),))
        assert placed(greedy, (0, 2)) == "aaa"
        assert placed(greedy, (1, 1)) == "b"
        assert placed(greedy, (0, 0), (1, 1)) == "bb"  # runs are segments of their own

    def test_members_that_cannot_run_alone(self) -> None:
        greedy = at_once((4,), (NO,), (4,), groups=(GroupCost((0, 1), 0, 2.0),))
        assert placed(greedy, (0, 2)) == "aaa"
        assert placed(greedy, (1, 2)) is None

    def test_what_no_device_can_run_alone_is_not_torn_from_its_group(self) -> None:
        """The first device runs no Relu, the second it and a Conv as one, and nothing else."""
        greedy = at_once((1, NO), (NO, NO), (1, NO), groups=(GroupCost((0, 1), 1, 2.0),))
        assert placed(greedy, (0, 2)) == "bba"
        assert placed(greedy, (1, 2)) is None


def test_what_none_can_run() -> None:
    assert placed(at_once((1, 1), (NO, NO)), (0, 1)) is None
    assert placed(at_once((1, 1), (NO, NO)), (0, 0)) == "a"


@pytest.mark.parametrize("seed", range(20))
def test_every_operator_is_where_it_can_run(seed: int) -> None:
    rng = np.random.default_rng(seed)
    time_s = rng.uniform(1, 9, (12, 3))
    time_s[rng.uniform(size=time_s.shape) < 0.4] = NO
    time_s[~np.isfinite(time_s).any(axis=1), 0] = 1.0
    devices = placed(at_once(*map(tuple, time_s)), (0, 4), (7, 11))
    assert devices is not None
    operators = [*range(5), *range(7, 12)]
    assert all(
        math.isfinite(time_s[operator, "abc".index(on)]) for operator, on in zip(operators, devices, strict=True)
    )
