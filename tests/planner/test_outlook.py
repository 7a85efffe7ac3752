"""Plans at their best, against every plan there is."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from shisha_rt.costs.costs import CostLayer, CostPlace, Costs, why_infeasible
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.belief import Belief, Sighting, likeliest
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.learning import Learnt
from shisha_rt.planner.outlook import outlook
from tests.papers.shisha.enumeration import all_plans

ROUNDING = 1e-9


def drawn(rng: random.Random) -> tuple[Costs, list[Belief]]:
    """Three to six layers on up to three places, with dear and illegal cuts, small memories, and some stages seen."""
    layers, places = rng.randint(3, 6), rng.randint(1, 3)
    told_s = [np.array([rng.uniform(1, 9) for _ in range(layers)]) for _ in range(places)]
    seen = [[sighting(rng, layers) for _ in range(rng.randint(0, 2))] for _ in range(places)]
    beliefs = likeliest(told_s, seen)
    time_s = np.stack([np.maximum(0.1, belief.mean_s) for belief in beliefs], axis=1)
    time_s[np.array([[rng.random() < 0.1 for _ in range(places)] for _ in range(layers)])] = math.nan
    costs = Costs(
        layers=tuple(CostLayer(f"l{i}", 1.0, rng.randint(0, 4), 1) for i in range(layers)),
        places=tuple(CostPlace(f"p{i}", 1, rng.choice([None, 3 * layers])) for i in range(places)),
        time_s=time_s,
        transfer_s=np.array([rng.choice([0.0, 2.0, math.nan]) for _ in range(layers - 1)]),
    )
    return costs, beliefs


def sighting(rng: random.Random, layers: int) -> Sighting:
    first, end = sorted(rng.sample(range(layers + 1), 2))
    return Sighting(first, end, rng.uniform(1, 9) * (end - first), 0.1)


def at_best_s(costs: Costs, beliefs: list[Belief], stage: Stage, doubt: float) -> float:
    """From the definition: a stage takes no less than it does without its last layers."""
    place = costs.place_index(stage.place)
    if why_infeasible(costs, stage.first, stage.last, place) is not None:
        return math.inf
    entry_s = float(costs.transfer_s[stage.first - 1]) if stage.first else 0.0
    deviation_s = beliefs[place].deviation_s(np.arange(len(costs.layers) + 1))
    longest_s = 0.0
    for end in range(stage.first + 1, stage.last + 2):
        if end - 1 in costs.legal_cuts or end == len(costs.layers):
            predicted_s = entry_s + float(costs.time_s[stage.first : end, place].sum())
            longest_s = max(longest_s, predicted_s * math.exp(-doubt * deviation_s[stage.first, end] / predicted_s))
    return longest_s


def test_a_space_that_is_too_large_to_list_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`exact` lists no plans without copies, and so searches larger ones."""
    costs, beliefs = drawn(random.Random(1))
    view = outlook(Learnt(costs, {(place, 1): belief for place, belief in enumerate(beliefs)}, False), Goal())
    monkeypatch.setattr("shisha_rt.planner.chains.MOST_PERIODS", 0)
    assert view.plan_within(1e9, view.at_best_s(0.0)) is None


@pytest.mark.parametrize("seed", range(150))
def test_the_least_bound_that_some_plan_keeps(seed: int) -> None:
    rng = random.Random(seed)
    costs, beliefs = drawn(rng)
    doubt = rng.choice([0.0, 0.5, 2.0])
    names = [place.name for place in costs.places]
    most = rng.randint(1, len(names))

    def bottleneck_s(plan: Plan) -> float:
        return max(at_best_s(costs, beliefs, stage, doubt) for stage in plan.stages)

    plans = list(all_plans(len(costs.layers), names, most, costs.legal_cuts))
    best_s = min(map(bottleneck_s, plans))
    view = outlook(
        Learnt(costs, {(place, 1): belief for place, belief in enumerate(beliefs)}, False), Goal(most_stages=most)
    )
    stage_s = view.at_best_s(doubt)
    for plan in plans:
        assert view.value(stage_s, plan) == pytest.approx(bottleneck_s(plan))
    if math.isinf(best_s):
        assert view.plan_within(1e9, stage_s) is None
        return
    assert view.plan_within(best_s * (1 - ROUNDING), stage_s) is None
    best = view.plan_within(best_s * (1 + ROUNDING), stage_s)
    assert best is not None
    assert PlanRules(len(costs.layers), tuple(names), frozenset(costs.legal_cuts)).problems(best) == []
    assert len(best.stages) <= most
    assert bottleneck_s(best) == pytest.approx(best_s)
