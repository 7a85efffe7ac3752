"""The searches that the daemon's tuner process makes of what it is told."""

from __future__ import annotations

import pytest

from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.daemon.children.tuner import Layers, tuner_for
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import run
from tests.planner.evaluators import costs_of
from tests.planner.test_guided_splits import with_ways


@pytest.mark.parametrize("replicate", [True, False])
def test_plain_chains_have_no_layers_in_shards(replicate: bool) -> None:
    """Though shards would be faster, and copies are not."""
    costs = with_ways(costs_of([[1.0, 1.0], [12.0, 12.0]], [1, 1]))
    places = tuple(tm.PlaceNow(place.name, 1, 1.0) for place in costs.places)
    start, order = Plan.of([(0, 1, "p0")]), ("p0", "p1")
    begin = tm.Begin(1, "guided", start, places, order, None, 10, "nlfep", replicate, "latency")
    tried = run(tuner_for(begin, Layers(costs, ())), CostsEvaluator(costs), objective="latency").trials
    assert any(trial.plan.splits for trial in tried) == replicate
    assert replicate or all(trial.plan.is_plain for trial in tried)
