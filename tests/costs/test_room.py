"""The three forms of the rule of a place's memory say the same, and as the gate does."""

from __future__ import annotations

import random

import numpy as np

from shisha_rt.costs.room import held_bytes, held_up_to, held_within
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules


def test_all_forms_agree() -> None:
    rng = random.Random(1)
    for _ in range(200):
        count = rng.randint(1, 9)
        weights, live = ([rng.randint(0, 50) for _ in range(count)] for _ in range(2))
        begin = rng.randrange(count)
        runs = held_up_to(np.cumsum(weights[begin:], dtype=float), np.array(live[begin:], float))
        members = np.array([[float(begin <= item <= end) for item in range(count)] for end in range(begin, count)])
        sets = held_within(members, np.array(weights, float), np.array(live, float))
        for end in range(begin, count):
            expected = held_bytes(weights[begin : end + 1], live[begin : end + 1])
            assert runs[end - begin] == sets[end - begin] == expected


def test_the_gate_draws_the_line_at_the_same_byte() -> None:
    weights, live = (5, 7, 11), (40, 90, 60)
    need_bytes = held_bytes(weights[:2], live[:2])
    assert need_bytes == 5 + 7 + 90
    plan = Plan.of([(0, 1, "small"), (2, 2, "large")])
    for room_bytes, fits in ((need_bytes, True), (need_bytes - 1, False)):
        rules = PlanRules(
            3, ("small", "large"), weight_bytes=weights, live_bytes=live, memory_bytes={"small": room_bytes}
        )
        assert (rules.problems(plan) == []) is fits
