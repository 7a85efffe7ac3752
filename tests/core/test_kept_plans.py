"""A plan that an earlier run has kept may break a rule of today."""

from __future__ import annotations

import pytest

from shisha_rt.core.tuning.best import PLAIN, BestPlan, BestPlans, key_of
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

NAMES = ("a", "b")
MACHINE = Machine(
    "m", "m.toml", (Memory("ram"),), tuple(Place(name, (core,), 1, 1, 1, 1, "ram") for core, name in enumerate(NAMES))
)
KEPT = Plan.of([(0, 0, "a"), (1, 2, "b")])


@pytest.mark.parametrize(("room_bytes", "can_run"), [(3, True), (2, False)])
def test_a_plan_for_which_there_is_less_memory_now_is_not_the_best_known(room_bytes: int, can_run: bool) -> None:
    rules = PlanRules(3, NAMES, weight_bytes=(1, 1, 2), live_bytes=(0,) * 3, memory_bytes={"a": 9, "b": room_bytes})
    kept = BestPlan(KEPT, Measurement((1.0, 1.0), 0.01, 32, 1.0), NAMES)
    choice = Choice(MACHINE, rules, [1.0] * 3, BestPlans({key_of(MACHINE, PLAIN): kept}))
    assert choice.best(NAMES) == (kept if can_run else None)
    assert (choice.plan(NAMES) == KEPT) == can_run
