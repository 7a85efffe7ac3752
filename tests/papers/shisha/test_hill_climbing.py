"""Hill climbing: it goes up by the first neighbour that is better, and knows when it is at the top."""

from __future__ import annotations

import random

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.hill_climbing import HillClimbing
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import Result, run
from tests.planner.evaluators import costs_of


def climbed(space: Space, times: list[list[float | None]], number: int, start: Plan | None = None) -> Result:
    costs = costs_of(times, ranks=range(1, len(times[0]) + 1))
    tuner = HillClimbing(space, random.Random(number), None if start is None else space.arrangement(start))
    return run(Search(tuner, Limit()), CostsEvaluator(costs))


def test_each_trial_is_a_neighbour_of_the_best_before_it_and_the_top_has_no_better_one() -> None:
    rng = random.Random(4)
    space = space_of(9, ["p0", "p1", "p2"], stage_count=3)
    for number in range(20):
        times: list[list[float | None]] = [[rng.randint(1, 9) * k for k in (1, 2, 4)] for _ in range(9)]
        result = climbed(space, times, number)
        best = result.trials[0].plan
        for trial in result.trials[1:]:
            if len(best.stages) == 3:  # else the climb knows, and its plan does not say, which position is empty
                around = {space.plan(at) for at in space.neighbours(space.arrangement(best))}
                assert trial.plan in around
            best = trial.plan if trial.is_best else best
        assert result.solution == best
        assert result.reason.endswith("no neighbour tried is better")


def test_it_tries_each_neighbour_once_and_no_more_than_there_are_layers() -> None:
    # On the top from the start: equal layers on equal places, cut in the middle.
    names = [f"p{i}" for i in range(4)]
    space = space_of(4, names, stage_count=4)
    start = Plan.of((i, i, name) for i, name in enumerate(names))
    result = climbed(space, [[1] * 4] * 4, 0, start)
    neighbours = space.neighbours(space.arrangement(start))
    assert len(neighbours) == 6 + 6
    assert len(result.trials) == 1 + 4
    assert len({trial.plan for trial in result.trials}) == 5


def test_fewer_neighbours_than_layers_are_all_tried() -> None:
    space = space_of(20, ["p0", "p1"], stage_count=2)
    result = climbed(space, [[1, 1]] * 20, 0, Plan.of([(0, 9, "p0"), (10, 19, "p1")]))
    assert len(result.trials) == 1 + 3  # the boundary either way, and the places exchanged
