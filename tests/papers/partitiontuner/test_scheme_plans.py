"""Plans of partitions: the paper's example to the last bit, and rules that hold on random networks."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from shisha_rt.costs.operator_costs import GroupCost
from shisha_rt.papers.partitiontuner.listed import listed
from shisha_rt.papers.partitiontuner.partition_plan import foretold, nodes_of_stage, plan_by_needs
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem, whole_problem
from shisha_rt.papers.partitiontuner.processors import Passed, ProcessorCosts
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.strategies import SCHEMES, SchemeName
from tests.drawn import chunks
from tests.papers.partitiontuner.random_processors import fork_join, random_processors, tangled
from tests.placement.figure_1 import figure_1

FREE = (0.0, 0.0)


def figure_1_costs() -> ProcessorCosts:
    """Its costs have their transfers in them, so nothing is moved besides."""
    problem = figure_1()
    return ProcessorCosts(
        places=("cpu", "npu"),
        spans=tuple((node, node) for node in range(8)),
        names=tuple(node.name for node in problem.nodes),
        ops=tuple(node.op for node in problem.nodes),
        time_s=tuple(node.cost_s for node in problem.nodes),
        groups=tuple(GroupCost(group.nodes, group.device, group.cost_s) for group in problem.groups),
        passed=tuple(Passed(t.name, t.producer, t.consumers, False, FREE, FREE) for t in problem.tensors),
    )


def planned(scheme: SchemeName, costs: ProcessorCosts) -> SchemePlan:
    scheduled = scheme_plan(scheme, costs)
    assert scheduled is not None
    return scheduled


def rules(costs: ProcessorCosts) -> PlanRules:
    needs = [{t.maker for t in costs.passed if node in t.readers and t.maker >= 0} for node in range(len(costs.spans))]
    return PlanRules(len(costs.spans), costs.places, needs=tuple(map(frozenset, needs)))


class TestFigure1:
    @pytest.mark.parametrize(
        ("scheme", "latency_s", "stages"),
        [("baseline", 31.0 - 0.5 - 0.5, 1), ("typeseq", 23.5, 4), ("opseq", 14.5, 3), ("partitiontuner", 12.5, 4)],
    )
    def test_latency(self, scheme: SchemeName, latency_s: float, stages: int) -> None:
        scheduled = planned(scheme, figure_1_costs())
        assert scheduled.foretold.latency_s == latency_s
        assert len(scheduled.plan.stages) == stages

    def test_the_papers_sum_in_sequence(self) -> None:
        scheduled = planned("partitiontuner", figure_1_costs())
        assert math.fsum(scheduled.foretold.stage_s) == 14.0
        assert str(scheduled.plan) == "cpu: 0-1 | npu: 2-4 | cpu: 5-6 after 0 | cpu: 7-7 after 1,2"
        assert (scheduled.parallel_branches, scheduled.overlapping) == (2, 2)

    def test_nothing_is_quicker_than_the_bound(self) -> None:
        assert {planned(scheme, figure_1_costs()).lower_bound_s for scheme in SCHEMES} == {12.5}


def every_seed(seeds: range, *, moving: bool = True, handover_s: float = 0.0) -> list[ProcessorCosts]:
    drawn = []
    for seed in seeds:
        rng = random.Random(seed)
        edges = fork_join(rng, rng.randint(1, 3)) if seed % 2 else tangled(rng, rng.randint(2, 12))
        drawn.append(random_processors(rng, edges, rng.randint(1, 3), moving=moving, handover_s=handover_s))
    return drawn


@pytest.mark.parametrize("seeds", chunks(300, 30, short=8))
class TestRandomNetworks:
    def test_every_scheme_makes_a_plan_that_can_run(self, seeds: range) -> None:
        for costs in every_seed(seeds, handover_s=0.125):
            for scheme in SCHEMES:
                scheduled = planned(scheme, costs)
                assert rules(costs).problems(scheduled.plan) == []
                on = {n: stage.place for stage in scheduled.plan.stages for n in nodes_of_stage(costs, stage)}
                if scheme != "forkjoin":
                    assert [costs.places.index(on[node]) for node in sorted(on)] == list(scheduled.assignment)
                assert scheduled.lower_bound_s <= scheduled.foretold.latency_s * (1 + 1e-12) < math.inf

    def test_the_quickest_is_never_behind_the_others(self, seeds: range) -> None:
        for costs in every_seed(seeds, handover_s=0.125):
            quickest_s = planned("forkjoin", costs).foretold.latency_s
            for scheme in ("baseline", "partitiontuner"):
                assert quickest_s <= planned(scheme, costs).foretold.latency_s

    def test_where_nothing_moves_a_plan_takes_what_its_schedule_says(self, seeds: range) -> None:
        from shisha_rt.papers.partitiontuner.schemes import partitiontuner

        for costs in every_seed(seeds, moving=False):
            schedule = partitiontuner(whole_problem(costs)).schedule
            assert schedule is not None
            scheduled = planned("partitiontuner", costs)
            assert scheduled.foretold.latency_s == schedule.makespan_s
            assert (len(scheduled.plan.stages), scheduled.overlapping) == (
                len(schedule.partitions),
                len(schedule.overlapping),
            )

    def test_needs_alone_are_enough_and_no_more_than_sections_ask(self, seeds: range) -> None:
        for costs in every_seed(seeds):
            plan = planned("partitiontuner", costs).plan
            free = plan_by_needs(costs, plan)
            assert rules(costs).problems(free) == []
            for stage in range(len(plan.stages)):
                assert free.ancestors(stage) <= plan.ancestors(stage)


def ladder(rungs: int) -> ProcessorCosts:
    """A trunk of nodes of 1 s, and beside it a side node of 0.5 s for each, which the next side node reads, too.

    As in a feature pyramid; nothing in it is a branch.
    """
    trunk = range(rungs)
    edges = [(n, n + 1) for n in range(rungs - 1)] + [(n, rungs + n) for n in trunk]
    edges += [(rungs + n, rungs + n + 1) for n in range(rungs - 1)]
    return ProcessorCosts(
        places=("a", "b"),
        spans=tuple((node, node) for node in range(2 * rungs)),
        names=tuple(f"n{node}" for node in range(2 * rungs)),
        ops=("Conv",) * (2 * rungs),
        time_s=((1.0, 1.0),) * rungs + ((0.5, 0.5),) * rungs,
        passed=tuple(
            Passed(f"t{maker}", maker, tuple(r for m, r in edges if m == maker), False, FREE, FREE)
            for maker in range(2 * rungs - 1)
        ),
    )


class TestLists:
    def test_where_nothing_is_a_branch_the_quickest_still_runs_side_by_side(self) -> None:
        scheduled = planned("forkjoin", ladder(4))
        assert scheduled.foretold.latency_s == 4.5  # the trunk, and its last side node
        assert scheduled.lower_bound_s == 4.5
        assert scheduled.parallel_branches == 0
        assert scheduled.overlapping > 0

    @pytest.mark.parametrize(("handover_s", "latency_s"), [(0.125, 5.25), (2.0, 8.0)])
    def test_fewer_pieces_where_hand_overs_cost(self, handover_s: float, latency_s: float) -> None:
        costs = replace(ladder(4), handover_s=handover_s)
        scheduled = planned("forkjoin", costs)
        assert scheduled.foretold.latency_s <= latency_s
        free_s = foretold(costs, planned("forkjoin", ladder(4)).plan).latency_s
        assert scheduled.foretold.latency_s <= free_s

    def test_its_plans_can_run(self) -> None:
        for costs in every_seed(range(60), handover_s=0.125):
            listing = listed(costs)
            assert listing is not None  # the first place runs everything
            plan, places = listing
            assert rules(costs).problems(plan) == []
            on = {n: stage.place for stage in plan.stages for n in nodes_of_stage(costs, stage)}
            assert [costs.places.index(on[node]) for node in sorted(on)] == list(places)
            assert foretold(costs, plan).latency_s < math.inf

    def test_no_plan_where_nothing_runs_all(self) -> None:
        assert listed(replace(ladder(2), time_s=((1.0, math.inf),) * 2 + ((math.inf, 1.0),) * 2)) is None


def test_branches_that_share_a_place_are_one_stage() -> None:
    """Three branches between two nodes, two of them on one place."""
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]
    costs = ProcessorCosts(
        places=("a", "b"),
        spans=tuple((node, node) for node in range(5)),
        names=tuple(f"n{node}" for node in range(5)),
        ops=("Conv",) * 5,
        time_s=((1.0, 1.0), (2.0, 2.0), (2.0, 2.0), (4.0, 4.0), (1.0, 1.0)),
        passed=tuple(
            Passed(f"t{maker}", maker, tuple(r for m, r in edges if m == maker), False, FREE, FREE)
            for maker in range(4)
        ),
        handover_s=0.25,
    )
    scheduled = planned("forkjoin", costs)
    assert len(scheduled.plan.stages) == 4
    assert scheduled.foretold.latency_s == 6 + 3 * 0.25


class TestProblems:
    def test_as_the_paper_has_it_every_operator_pays_for_all_that_it_moves(self) -> None:
        """A -> b -> c on a far place: b pays in and out; as a group with a, only a's way in and b's way out."""
        ways = ((0.0, 1.0), (0.0, 0.5))
        tensors = tuple(Passed(n, m, r, n == "z", *ways) for n, m, r in
                        (("x", -1, (0,)), ("ta", 0, (1,)), ("tb", 1, (2,)), ("z", 2, ())))  # fmt: skip
        costs = ProcessorCosts(
            ("near", "far"), ((0, 0), (1, 1), (2, 2)), ("a", "b", "c"), ("Conv", "Relu", "Add"),
            ((8.0, 2.0), (4.0, math.inf), (1.0, 3.0)), (GroupCost((0, 1), 1, 2.25),), tensors,
        )  # fmt: skip
        whole = whole_problem(costs)
        assert [node.cost_s for node in whole.nodes] == [(8.0, 3.5), (4.0, math.inf), (1.0, 4.5)]
        assert [group.cost_s for group in whole.groups] == [3.75]
        apart = apart_problem(costs)
        assert [node.cost_s for node in apart.nodes] == [(8.0, 3.0), (4.0, math.inf), (1.0, 3.5)]
        assert [t.transfer_s for t in apart.tensors] == [((0.0, 1.0), (0.5, 0.0))] * 2
        # A stage of all three on the far place moves x and z alone.
        assert costs.stage_s([(0, 2)], 1) == 1.0 + 2.25 + 3.0 + 0.5
        # Apart, the Relu cannot run there: it is in no group.
        assert costs.stage_s([(0, 0), (2, 2)], 1) == 1.0 + 2.0 + 0.5 + 1.0 + 3.0 + 0.5
        assert costs.stage_s([(1, 1)], 1) == math.inf

    def test_of_a_plan_with_handovers(self) -> None:
        costs = random_processors(random.Random(3), [(0, 1), (1, 2)], moving=False, handover_s=0.5)
        plan = Plan.of([(0, 0, "p0"), (1, 1, "p0"), (2, 2, "p0")])
        predicted = foretold(costs, plan)
        assert predicted.handover_s == 1.5
        assert predicted.latency_s == math.fsum(predicted.stage_s) + 1.5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_plan_where_no_place_left_runs_a_node_by_itself(scheme: SchemeName) -> None:
    costs = figure_1_costs()
    assert math.inf in [row[1] for row in costs.time_s]
    assert scheme_plan(scheme, costs.on(["npu"])) is None
