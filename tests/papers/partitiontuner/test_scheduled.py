"""Schedules corrected by measurements: on paper machines whose processors are not as the costs say."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from shisha_rt.papers.partitiontuner.partition_plan import foretold
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.scheduled import MOST_TRIALS, SchemeTuner, corrected
from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import rate_of
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.strategies import SCHEMES, SchemeName
from tests.drawn import chunks
from tests.papers.partitiontuner.random_processors import fork_join, random_processors, tangled
from tests.wording import says


@dataclass
class PaperMachine:
    """What plans really take, and how often each was measured; `alone`: frames come one at a time."""

    costs: ProcessorCosts
    alone: bool = True
    tried: list[Plan] = field(default_factory=list)

    def measure(self, proposal: Proposal) -> Measurement:
        self.tried.append(proposal.plan)
        predicted = foretold(self.costs, proposal.plan)
        rate = rate_of(proposal.plan, [(s,) for s in predicted.stage_s])
        return Measurement(predicted.stage_s, 0.01, 16, 1.0, rate, alone_s=predicted.latency_s if self.alone else None)


def slower(costs: ProcessorCosts, factors: list[float]) -> ProcessorCosts:
    return costs.scaled([factors] * len(costs.spans))


def tuned(scheme: SchemeName, costs: ProcessorCosts, machine: PaperMachine) -> Result:
    return run(SchemeTuner(scheme, costs, Plan.of([(0, len(costs.spans) - 1, costs.places[0])])), machine)


def planned_s(scheme: SchemeName, costs: ProcessorCosts) -> float:
    scheduled = scheme_plan(scheme, costs)
    assert scheduled is not None
    return scheduled.foretold.latency_s


def drawn(seed: int) -> tuple[random.Random, ProcessorCosts]:
    rng = random.Random(seed)
    edges = fork_join(rng, rng.randint(1, 3)) if seed % 2 else tangled(rng, rng.randint(2, 12))
    return rng, random_processors(rng, edges, handover_s=0.05)


@pytest.mark.parametrize("seeds", chunks(200, 25, short=4))
class TestRandomMachines:
    def test_a_slowed_place_leads_to_what_would_have_been_planned(self, seeds: range) -> None:
        """Costs that are off by a factor for each place are known after one trial of every place in use.

        What promises less than 1%, or less than the noise of 1%, is not tried.
        """
        for seed in seeds:
            rng, costs = drawn(seed)
            true = slower(costs, [rng.choice((1.0, 2.0, 4.0)) for _ in costs.places])
            machine = PaperMachine(true)
            result = tuned("forkjoin", costs, machine)
            used = set().union(*(set(plan.places) for plan in machine.tried))
            if used == set(costs.places):
                assert result.measurement.latency_s <= planned_s("forkjoin", true) * 1.021
            assert len(machine.tried) <= MOST_TRIALS

    def test_it_keeps_the_best_that_it_has_measured(self, seeds: range) -> None:
        for seed in seeds:
            rng, costs = drawn(seed)
            factors = [[rng.choice((0.5, 1.0, 3.0)) for _ in costs.places] for _ in costs.spans]
            for scheme in SCHEMES:
                machine = PaperMachine(costs.scaled(factors), alone=seed % 3 > 0)
                result = tuned(scheme, costs, machine)
                best_s = min(machine.measure(Proposal(plan, "")).latency_s for plan in machine.tried[:])
                assert result.measurement.latency_s == best_s

    def test_by_true_costs_one_trial_is_enough(self, seeds: range) -> None:
        for seed in seeds:
            _, costs = drawn(seed)
            for scheme in SCHEMES:
                machine = PaperMachine(costs)
                latency_s = tuned(scheme, costs, machine).measurement.latency_s
                assert latency_s <= planned_s(scheme, costs) * (1 + 1e-9)
                # What a frame waits for between stages side by side is no multiple of a hand-over: a second schedule of
                # `forkjoin` may be better.
                assert len(machine.tried) <= (2 if scheme == "forkjoin" else 1)


class TestCorrections:
    def test_what_moves_takes_longer_as_its_stage_does(self) -> None:
        """A stage that is half moving, on a place whose other stages are as told."""
        _, costs = drawn(5)
        scheduled = scheme_plan("opseq", costs)
        assert scheduled is not None
        predicted = foretold(costs, scheduled.plan)
        taken_s = tuple(s * (2 if index == 0 else 1) for index, s in enumerate(predicted.stage_s))
        seen = Measurement(taken_s, 0.01, 16, 1.0, rate_of(scheduled.plan, [(s,) for s in taken_s]))
        assert foretold(corrected(costs, [(scheduled.plan, seen)]), scheduled.plan).stage_s[0] == pytest.approx(
            taken_s[0]
        )

    def test_what_a_stage_took_is_what_it_is_predicted_to_take(self) -> None:
        _, costs = drawn(5)
        scheduled = scheme_plan("partitiontuner", costs)
        assert scheduled is not None
        factors = [3.0 if place else 0.5 for place in range(len(costs.places))]
        machine = PaperMachine(slower(costs, factors))
        seen = machine.measure(Proposal(scheduled.plan, ""))
        again = foretold(corrected(costs, [(scheduled.plan, seen)]), scheduled.plan)
        assert again.stage_s == pytest.approx(seen.service_s)
        assert again.latency_s == pytest.approx(seen.latency_s)

    def test_a_trial_that_could_not_run_teaches_nothing(self) -> None:
        _, costs = drawn(5)
        scheduled = scheme_plan("partitiontuner", costs)
        assert scheduled is not None
        never = Measurement((math.inf,) * len(scheduled.plan.stages), 0.0, 0, 0.0)
        assert corrected(costs, [(scheduled.plan, never)]) == costs

    def test_frames_that_were_never_alone_say_nothing_of_hand_overs(self) -> None:
        _, costs = drawn(5)
        scheduled = scheme_plan("partitiontuner", costs)
        assert scheduled is not None
        seen = PaperMachine(slower(costs, [2.0, 2.0]), alone=False).measure(Proposal(scheduled.plan, ""))
        assert corrected(costs, [(scheduled.plan, seen)]).handover_s == costs.handover_s

    def test_no_plan_for_what_is_left(self) -> None:
        costs = ProcessorCosts(("npu",), ((0, 0),), ("n",), ("Add",), ((math.inf,),))
        start = Plan.of([(0, 0, "npu")])
        tuner = SchemeTuner("baseline", costs, start)
        state, proposal = tuner.init()
        assert proposal.plan == start
        assert "no plan for" in proposal.reason
        _, last = tuner.step(state, Measurement((1.0,), 0.01, 16, 1.0))
        assert (last.plan, last.final, last.reason) == (start, True, says("baseline has no …"))
