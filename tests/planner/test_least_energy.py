"""The least energy of a frame: against every chain there is, by hand, and as `guided` comes to it by trials."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import rate_of
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import PART_OF_TARGET, Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.learning import learnt
from shisha_rt.planner.least_energy import _Label, _undominated
from shisha_rt.planner.loop import run
from shisha_rt.planner.solution import PLAIN_CHAINS
from tests.drawn import chunks
from tests.planner.evaluators import costs_of
from tests.planner.every_chain import ROUNDING, random_costs

INSTANCES = 600


def powered(costs: Costs, *power_w: float) -> Costs:
    places = [replace(place, power_w=watts) for place, watts in zip(costs.places, power_w, strict=True)]
    return replace(costs, places=tuple(places))


def test_without_any_time_a_plan_of_one_stage_is_found() -> None:
    costs = powered(costs_of([[4, 2], [4, 2]], ranks=(1, 1)), 1.0, 3.0)
    solution = exact_plan(costs, Goal(objective="energy", should_stop=lambda: True))
    assert (solution.outcome, str(solution.plan)) == (Outcome.FEASIBLE, "p0: 0-1")


def test_a_space_too_large_to_list_is_searched_with_fewer_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds and 5² positions need 50 entries; with every other cut, 18 are enough."""
    costs = powered(costs_of([[1, 9], [1, 9], [9, 1], [9, 1]], ranks=(1, 1)), 1.0, 1.0)
    monkeypatch.setattr("shisha_rt.planner.least_energy.MOST_PERIODS", 20)
    solution = exact_plan(costs, Goal(objective="energy"))
    assert (solution.outcome, str(solution.plan)) == (Outcome.FEASIBLE, "p0: 0-1 | p1: 2-3")
    assert solution.is_partial
    assert solution.lower_bound_j == pytest.approx(4)
    few = exact_plan(costs, Goal(objective="energy", latency_s=3.0))
    assert few.outcome is Outcome.LIMIT  # other cuts might do


def test_labels_are_compared_in_time_that_grows_with_their_number() -> None:
    """Each has more joules and fewer seconds than the one before: all stay, and each pair of them is a comparison."""
    labels = [_Label(float(at), float(-at), (1, 0), 1) for at in range(20_000)]
    begun_s = time.process_time()
    assert _undominated([*labels, labels[0]._replace(used=(1, 1))]) == labels
    assert time.process_time() - begun_s < 3


def every_energy(costs: Costs, most_stages: int, *, teams: bool) -> Iterator[tuple[float, float]]:
    """Joules and latency of each chain whose stages have a team each; `teams`: of several places, too."""
    kinds = kinds_of(costs)
    layers = len(costs.layers)
    kind_of = {costs.places[place].name: kind for kind, places in enumerate(kinds) for place in places}
    times = {(kind, 1): costs.time_s[:, places[0]] for kind, places in enumerate(kinds)}
    for team in costs.teams if teams else ():
        if len({kind_of[place] for place in team.places}) == 1:
            times[kind_of[team.places[0]], len(team.places)] = team.time_s

    def seconds(kind: int, size: int, first: int, last: int) -> float:
        room = costs.places[kinds[kind][0]].room_bytes
        rows = costs.layers[first : last + 1]
        if sum(row.weight_bytes for row in rows) + max(row.live_bytes for row in rows) > room:
            return math.nan
        return float(times[kind, size][first : last + 1].sum() + (costs.transfer_s[first - 1] if first else 0.0))

    def extend(
        first: int, free: tuple[int, ...], joules: float, taken_s: float, stages: int
    ) -> Iterator[tuple[float, float]]:
        if first == layers:
            yield joules, taken_s
            return
        if stages == most_stages:
            return
        for (kind, size), last in ((team, last) for team in times for last in range(first, layers)):
            own_s = seconds(kind, size, first, last)
            if size <= free[kind] and not math.isnan(own_s):
                left = (*free[:kind], free[kind] - size, *free[kind + 1 :])
                watts = size * (costs.places[kinds[kind][0]].power_w or 0.0)
                yield from extend(last + 1, left, joules + watts * own_s, taken_s + own_s, stages + 1)

    return extend(0, tuple(map(len, kinds)), 0.0, 0.0, 0)


@pytest.mark.parametrize("seeds", chunks(INSTANCES, 50, short=100))
def test_no_chain_within_the_latency_takes_less(seeds: range) -> None:
    outcomes = set()
    for seed in seeds:
        rng = random.Random(seed)
        drawn = random_costs(rng, rng.randint(1, 6), rng.randint(1, 5), rng.choice([None, 1.0, 0.1]))
        watts = [rng.choice([0.5, 1.0, 2.0, 5 * rng.random() + 0.1]) for _ in range(3)]
        costs = powered(drawn, *(watts[rng.randrange(3)] for _ in drawn.places))
        replicate, most_stages = rng.random() < 0.5, rng.choice([None, rng.randint(1, 4)])
        chains = list(every_energy(costs, most_stages or len(costs.places), teams=replicate))
        bound_s = rng.choice([math.inf, *(rng.uniform(0.9, 1.5) * seconds for _, seconds in chains[:3])])
        goal = Goal(replicate, "energy", most_stages, latency_s=bound_s)
        solution = exact_plan(costs, goal)
        outcomes.add(solution.outcome)
        joules = [energy for energy, seconds in chains if seconds <= bound_s * (1 + ROUNDING)]
        if not joules:
            assert (solution.plan, solution.outcome) == (None, Outcome.INFEASIBLE), seed
            assert solution.reason
            continue
        assert solution.plan is not None, seed
        measured = CostsEvaluator(costs).measurement_of(solution.plan)
        assert measured.energy_j == pytest.approx(min(joules), rel=ROUNDING), seed
        assert measured.latency_s <= bound_s * (1 + ROUNDING), seed
        assert solution.outcome is Outcome.OPTIMAL, seed
        assert solution.lower_bound_j == pytest.approx(min(joules), rel=ROUNDING), seed
        assert most_stages is None or len(solution.plan.stages) <= most_stages
    assert outcomes == {Outcome.OPTIMAL, Outcome.INFEASIBLE}


def test_a_slow_place_that_draws_little_has_what_it_is_frugal_at() -> None:
    """Layer 0 takes 1 J on p0 and 2 J on p1, layer 1 takes 4 J and 2 J."""
    costs = powered(costs_of([[1, 4], [4, 4]], [1, 2]), 1.0, 0.5)
    assert str(exact_plan(costs, Goal(objective="energy")).plan) == str(Plan.of([(0, 0, "p0"), (1, 1, "p1")]))


def test_a_latency_that_must_be_kept_costs_energy() -> None:
    costs = powered(costs_of([[2, 4], [4, 12]], [1, 2]), 1.0, 0.25)
    frugal = exact_plan(costs, Goal(objective="energy")).plan
    quick = exact_plan(costs, Goal(objective="energy", latency_s=6.0)).plan
    assert [str(plan) for plan in (frugal, quick)] == [str(Plan.of([(0, 1, name)])) for name in ("p1", "p0")]
    none = exact_plan(costs, Goal(objective="energy", latency_s=4.0))
    assert (none.plan, none.outcome) == (None, Outcome.INFEASIBLE)
    assert none.reason is not None
    assert all(text in none.reason for text in ("4000 ms", "6000 ms"))


def test_places_that_are_left_serve_as_copies() -> None:
    """They change nothing of a frame's energy, and more frames pass."""
    costs = powered(costs_of([[1, 1, 1], [2, 2, 2]], [1, 1, 1]), 1.0, 1.0, 1.0)
    solution = exact_plan(costs, Goal(replicate=True, objective="energy"))
    assert solution.plan == Plan.chain([(0, 1, ["p0", "p1", "p2"])])
    alone = exact_plan(costs, Goal(objective="energy"))
    assert alone.plan == Plan.of([(0, 1, "p0")])
    assert (alone.space == PLAIN_CHAINS, solution.space == PLAIN_CHAINS) == (True, False)
    assert alone.lower_bound_j == pytest.approx(3.0)


def test_a_team_computes_where_one_place_would_be_late() -> None:
    costs = powered(costs_of([[10, 10]], [1, 1]), 1.0, 1.0)
    costs = replace(costs, teams=(CostTeam(("p0", "p1"), np.array([6.0])),))
    assert exact_plan(costs, Goal(True, "energy", latency_s=6.0)).plan == Plan.chain([(0, 0, [("p0", "p1")])])
    assert exact_plan(costs, Goal(True, "energy", latency_s=10.0)).plan == Plan.chain([(0, 0, ["p0", "p1"])])


def test_without_power_there_is_no_energy() -> None:
    with pytest.raises(ValueError, match="power_w"):
        exact_plan(costs_of([[1]], [1]), Goal(objective="energy"))


def test_trials_correct_what_costs_say() -> None:
    """Told costs have the frugal place too quick; its first trial shows that, and the plan changes."""
    true = powered(costs_of([[1, 12], [2, 3]], [1, 2]), 1.0, 0.5)
    costs = replace(true, time_s=np.array([[1.0, 1.5], [2.0, 3.0]]))
    tuned = run(guided(costs, goal=Goal(objective="energy")), CostsEvaluator(true), objective="energy")
    assert tuned.solution == Plan.of([(0, 1, "p0")])
    assert tuned.measurement.energy_j == pytest.approx(3.0)
    assert tuned.trials[0].measurement.energy_j == pytest.approx(7.5)


def test_a_copy_that_frames_never_needed_is_not_taken_for_one_that_cannot_run() -> None:
    """Frames that come one at a time all go to the quick place: of the other one they say nothing."""
    costs = powered(costs_of([[1, 2], [1, 2]], [1, 2]), 4.0, 1.0)
    copies = Plan.chain([(0, 1, ["p0", "p1"])])
    taken = Measurement((4.0,), 0.01, 32, 1.0, rate_of(copies, [[2.0, math.inf]]), team_s=((2.0, math.inf),))
    believed = learnt(costs, [(copies, taken)], lambda _: True, copies=True)
    assert np.isfinite(believed.costs.time_s).all()
    assert exact_plan(believed.costs, Goal(True, "energy")).plan == Plan.chain([(0, 1, ["p1"])])


class HandedOver:
    """Costs, and half a second more for a frame by itself at each stage; what takes over `most_s` is late."""

    def __init__(self, costs: Costs, most_s: float) -> None:
        self._evaluator, self._most_s = CostsEvaluator(costs), most_s

    def measure(self, proposal: Proposal) -> Measurement:
        measured = self._evaluator.measure(proposal)
        alone_s = measured.latency_s + 0.5 * len(proposal.plan.stages)
        energy_j = measured.energy_j if alone_s <= self._most_s else math.inf
        return replace(measured, alone_s=alone_s, energy_j=energy_j)


def test_hand_overs_that_make_a_plan_late_are_allowed_for() -> None:
    """By costs both stages take 5.4 s, 0.9 of 6 s; really 6.4 s. All on p0 takes 5.5 s and more energy."""
    costs = powered(costs_of([[2.5, 5], [2.5, 2.9]], [1, 2]), 2.0, 0.5)
    goal = Goal(objective="energy", latency_s=PART_OF_TARGET * 6.0)
    tuned = run(guided(costs, goal=goal), HandedOver(costs, 6.0), objective="energy")
    assert tuned.trials[0].plan == Plan.of([(0, 0, "p0"), (1, 1, "p1")])
    assert tuned.trials[0].measurement.energy_j == math.inf
    assert tuned.solution == Plan.of([(0, 1, "p0")])


def test_trials_that_took_no_time_at_all_set_no_target() -> None:
    costs = powered(costs_of([[2, 4]], ranks=(1, 1)), 1.0, 3.0)
    instant = costs.with_times(costs.time_s * 0.0)
    tuned = run(guided(costs, goal=Goal(objective="energy", latency_s=9.0)), CostsEvaluator(instant))
    assert tuned.measurement.latency_s == 0


@pytest.mark.parametrize("seeds", chunks(200, 50, short=50))
def test_trials_end_with_a_plan_as_frugal_as_any_measured(seeds: range) -> None:
    near = []
    for seed in seeds:
        rng = random.Random(seed)
        drawn = random_costs(rng, rng.randint(2, 6), rng.randint(1, 4), None)
        true = powered(drawn, *(rng.choice([0.5, 1.0, 3.0]) for _ in drawn.places))
        factors = np.exp([[rng.gauss(0, 0.3) for _ in true.places] for _ in true.layers])
        costs = true.with_times(true.time_s * factors)
        best = exact_plan(true, Goal(objective="energy")).plan
        if best is None:
            continue
        evaluator = CostsEvaluator(true)
        tuned = run(guided(costs, goal=Goal(objective="energy")), evaluator, objective="energy")
        assert tuned.measurement.energy_j == min(trial.measurement.energy_j for trial in tuned.trials), seed
        least_j = evaluator.measurement_of(best).energy_j
        near.append(tuned.measurement.energy_j <= 1.02 * least_j if least_j else True)
    assert sum(near) >= 0.8 * len(near)
