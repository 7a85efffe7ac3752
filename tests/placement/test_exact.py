"""`exact` finds what trying everything finds, knows its limits, and stays narrow on large graphs."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace

import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.dcg.brute import brute
from shisha_rt.placement.als import als
from shisha_rt.placement.check import cost
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.narrowing import WidthLimits
from shisha_rt.placement.problem import TRANSFER_COUNTINGS, Group, Node, Problem, ProblemTensor, TransferCounting
from shisha_rt.placement.solution import PlacementSolution
from tests.placement.random_problems import SHAPES, random_problem, random_small_problem
from tests.wording import says

INF = math.inf


def cost_s(problem: Problem, solution: PlacementSolution) -> float:
    assert solution.assignment is not None
    return cost(problem, solution.assignment).total_s


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_brute(shape: str) -> None:
    """2,100 problems in all. Their costs add up exactly, so the optima are equal, not merely close."""
    rng = random.Random(f"exact {shape}")
    for _ in range(350):
        problem = random_small_problem(rng, shape)
        solution = exact_placement(problem)
        assert solution.outcome is Outcome.OPTIMAL
        assert cost_s(problem, solution) == solution.lower_bound_s == cost_s(problem, brute(problem))
        assert solution.statistics["over_limit"] == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_costs_that_do_not_add_up_exactly(shape: str) -> None:
    """The bound may be a rounding below what the checker adds up, never above it."""
    rng = random.Random(shape)
    for _ in range(40):
        problem = random_small_problem(rng, shape)
        third = replace(problem, nodes=tuple(replace(n, cost_s=tuple(s / 3 for s in n.cost_s)) for n in problem.nodes))
        for solution in (exact_placement(third), brute(third)):
            assert solution.lower_bound_s is not None
            assert solution.lower_bound_s <= cost_s(third, solution)
            assert solution.lower_bound_s == pytest.approx(cost_s(third, brute(third)), rel=1e-12)


class TestByHand:
    def test_a_skip_that_als_misses(self) -> None:
        # Alone n0 is cheaper on the first device, and n1 reads nothing of it; but n2, on the second only, does.
        nodes = Node("n0", "", (1, 2)), Node("n1", "", (0, INF)), Node("n2", "", (INF, 1))
        problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, (ProblemTensor("t", 0, (2,), ((0, 5), (5, 0))),))
        assert (exact_placement(problem).assignment, cost_s(problem, exact_placement(problem))) == ((1, 0, 1), 3)
        assert cost_s(problem, als(problem)) == 7

    @pytest.mark.parametrize(("counting", "optimum_s"), [("once", 1 + 3 + 3), ("per_edge", 8)])
    def test_a_copy_serves_all_readers_in_its_memory(self, counting: TransferCounting, optimum_s: float) -> None:
        """Three readers are cheaper elsewhere if one copy serves them; else the producer goes there too."""
        nodes = Node("n0", "", (1, 5)), *(Node(f"n{i}", "", (4, 1)) for i in range(1, 4))
        tensor = ProblemTensor("t", 0, (1, 2, 3), ((0, 3), (3, 0)))
        problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, (tensor,), (), counting)
        assert cost_s(problem, exact_placement(problem)) == optimum_s

    def test_partition_tuners_figure_1(self) -> None:
        """PartitionTuner, Table 1: 14 ms in sequence, as v4 and v5 together are cheaper on the NPU than apart.

        Where the table has v5 and v7 on the NPU in a group only, they cost 100 there alone.
        """
        costs_ms = [(1, 10), (2, INF), (10, 2), (10, 2), (1, 100), (1, 1.5), (1, 100), (5, INF)]
        edges = [(0, (1,)), (1, (2, 5)), (2, (3,)), (3, (4,)), (4, (7,)), (5, (6,)), (6, (7,))]
        free = ((0.0, 0.0), (0.0, 0.0))
        groups = Group((3, 4), 0, 10.5), Group((3, 4), 1, 2.5), Group((5, 6), 0, 1.5), Group((5, 6), 1, 2)
        problem = Problem(
            ("cpu", "npu"),
            ("cpu", "npu"),
            (0, 1),
            tuple(Node(f"v{i + 1}", "", row) for i, row in enumerate(costs_ms)),
            tuple(ProblemTensor(f"t{i}", producer, consumers, free) for i, (producer, consumers) in enumerate(edges)),
        )
        assert cost_s(problem, exact_placement(problem)) == 14.0 + 0.5 + 0.5  # OpSeq's operators, without groups
        grouped = replace(problem, groups=groups)
        assert cost_s(grouped, exact_placement(grouped)) == 14.0


class TestGroups:
    def chain(self, groups: tuple[Group, ...]) -> Problem:
        """Nine nodes, each 2 on device 0 and 1 on device 1; a transfer costs 1 either way."""
        moves = ((0.0, 1.0), (1.0, 0.0))
        return Problem(
            ("a", "b"),
            ("m", "n"),
            (0, 1),
            tuple(Node(f"n{i}", "", (2, 1)) for i in range(9)),
            tuple(ProblemTensor(f"t{i}", i, (i + 1,), moves) for i in range(8)),
            groups,
        )

    def test_every_overlapping_run(self) -> None:
        """All runs of 2 to 4 nodes on both devices, each saving something else: a node is in up to 18 of them."""
        rng = random.Random(0)
        for _ in range(20):
            groups = tuple(
                Group(tuple(range(first, first + length)), device, rng.randint(0, 8 * length) / 8)
                for device in (0, 1)
                for length in (2, 3, 4)
                for first in range(10 - length)
                if rng.random() < 0.4
            )
            problem = self.chain(groups)
            assert cost_s(problem, exact_placement(problem)) == cost_s(problem, brute(problem))

    def test_two_ends_against_the_middle(self) -> None:
        problem = self.chain((Group((0, 1, 2), 0, 0.5), Group((2, 3, 4, 5, 6), 0, 0.25), Group((6, 7, 8), 0, 0.5)))
        # The middle would leave four nodes at 1, and two transfers: 6.25.
        assert cost_s(problem, exact_placement(problem)) == 0.5 + 1 + 3 + 1 + 0.5

    def test_groups_with_nothing_to_gain_and_one_that_brings_a_node_there(self) -> None:
        problem = self.chain((Group((0, 1), 1, 2.0), Group((2, 3), 1, 3.0)))
        incapable = replace(
            problem, nodes=(Node("n0", "", (2, INF)), *problem.nodes[1:]), groups=(Group((0, 1), 1, 0),)
        )
        assert cost_s(problem, exact_placement(problem)) == 9
        assert cost_s(incapable, exact_placement(incapable)) == 0 + 7


class TestLimit:
    def problem(self) -> Problem:
        return random_problem(random.Random(5), "dense", 10, 3, incapable=0, transfer_counting="once")

    def test_beyond_it_the_answer_is_proven_otherwise_or_says_that_it_is_not(self) -> None:
        problem = self.problem()
        needed = int(exact_placement(problem).statistics["table_entries"])
        assert exact_placement(problem, WidthLimits(entries=needed)).statistics["over_limit"] == 0
        for limits in (WidthLimits(needed - 1), WidthLimits(1), WidthLimits(held=1)):
            solution = exact_placement(problem, limits)
            assert solution.statistics["over_limit"] == 1
            assert (solution.outcome is Outcome.OPTIMAL) == (solution.reason is None)
            assert solution.lower_bound_s is not None
            assert solution.lower_bound_s <= cost_s(problem, solution) == cost_s(problem, exact_placement(problem))

    @pytest.mark.parametrize("limits", [WidthLimits(), WidthLimits(1)])
    def test_no_time_leaves_a_quick_assignment_and_what_costs_nothing_to_know(self, limits: WidthLimits) -> None:
        problem = self.problem()
        solution = exact_placement(problem, limits, left_s=lambda: 0.0)
        assert (solution.outcome, solution.reason) == (Outcome.FEASIBLE, says("stopped by the …"))
        assert solution.lower_bound_s is not None
        assert 0 < solution.lower_bound_s <= cost_s(problem, exact_placement(problem)) <= cost_s(problem, solution)
        fastest = sum(min(node.cost_s) for node in problem.nodes)
        assert solution.lower_bound_s == pytest.approx(fastest)
        singles = [cost(problem, (device,) * len(problem.nodes)).total_s for device in range(3)]
        assert cost_s(problem, solution) <= min(singles)

    def test_without_scipy_it_is_the_same_but_for_what_highs_finds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "scipy.optimize", None)
        problem = random_problem(random.Random(1), "dense", 20, 8, own_memories=True, transfer_counting="per_edge")
        solution = exact_placement(problem, WidthLimits(1 << 12))
        assert (solution.outcome, solution.reason) == (Outcome.FEASIBLE, says("the problem is …"))
        assert solution.lower_bound_s is not None
        fastest = sum(min(node.cost_s) for node in problem.nodes)
        assert fastest < solution.lower_bound_s < cost_s(problem, solution) <= cost_s(problem, als(problem))

    def test_a_tensor_into_very_many_memories(self) -> None:
        """It has 2 ** 60 sets of copies; those that its readers can need are few, or are not listed."""
        devices = 60
        each = range(devices)
        moves = tuple(tuple(float(a != b) for b in each) for a in each)
        for readers in (2, 3, 9):
            problem = Problem(
                devices=tuple(map(str, each)),
                memories=tuple(map(str, each)),
                memory_of=tuple(each),
                nodes=tuple(Node(f"n{i}", "", (2.0, *(1.0,) * (devices - 1))) for i in range(readers + 1)),
                tensors=(ProblemTensor("t", 0, tuple(range(1, readers + 1)), moves),),
            )
            solution = exact_placement(problem)
            assert (cost_s(problem, solution), solution.outcome) == (readers + 1, Outcome.OPTIMAL)

    def test_sixteen_devices(self) -> None:
        """A transformer's shape on unlike devices with memories of their own: eliminated, in bounded tables."""
        rng = random.Random(0)
        each = range(16)
        readers = {i: {i + 1, *([i + 6] if i % 6 == 0 else []), *([i + 3] if i % 12 == 2 else [])} for i in range(300)}
        nodes = tuple(Node(f"n{i}", "", tuple(rng.uniform(1, 4) for _ in each)) for i in range(307))
        tensors = tuple(
            ProblemTensor(
                f"t{i}",
                i,
                tuple(sorted(read)),
                tuple(tuple(rng.uniform(0.2, 1) * (a != b) for b in each) for a in each),
            )
            for i, read in readers.items()
        )
        problem = Problem(tuple(f"d{i}" for i in each), tuple(f"m{i}" for i in each), tuple(each), nodes, tensors)
        solution = exact_placement(problem)
        assert solution.outcome is Outcome.OPTIMAL
        assert solution.statistics["width"] == 2
        assert solution.statistics["table_entries"] < 310 * 16**3
        assert cost_s(problem, solution) < cost_s(problem, als(problem))


class TestLarge:
    """Width and table entries, not seconds, show that the work is linear."""

    @pytest.mark.parametrize("counting", TRANSFER_COUNTINGS)
    @pytest.mark.parametrize("shape", ["chain", "tree", "fan_out", "series_parallel"])
    def test_narrow_shapes_stay_narrow(self, shape: str, counting: TransferCounting) -> None:
        devices, memories = 3, 3
        problem = random_problem(
            random.Random(0), shape, 1500, devices, groups=200, own_memories=True, transfer_counting=counting
        )
        solution = exact_placement(problem)
        assert solution.outcome is Outcome.OPTIMAL
        assert solution.statistics["width"] <= (1 if shape == "chain" else 2)
        states = devices + max(sum(node in group.nodes for group in problem.groups) for node in range(1500))
        assert solution.statistics["table_entries"] <= solution.statistics["variables"] * states**2 * 2**memories
        assert solution.lower_bound_s is not None
        assert solution.lower_bound_s <= cost_s(problem, solution) <= cost_s(problem, als(problem))

    def test_a_tensor_of_many_readers(self) -> None:
        readers = 2000
        nodes = Node("n0", "", (1.0, 9.0)), *(Node(f"n{i}", "", (2.0, 1.0)) for i in range(1, readers + 1))
        tensor = ProblemTensor("t", 0, tuple(range(1, readers + 1)), ((0.0, 5.0), (5.0, 0.0)))
        problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, (tensor,))
        solution = exact_placement(problem)
        assert (cost_s(problem, solution), solution.statistics["width"]) == (1 + 5 + readers, 1)

    def test_nodes_without_a_choice_join_nothing(self) -> None:
        """One node that everything else reads and feeds would make the graph as wide as it is long."""
        nodes = tuple(Node(f"n{i}", "", (1.0, 1.0) if i % 100 else (1.0, INF)) for i in range(500))
        moves = ((0.0, 1.0), (1.0, 0.0))
        tensors = tuple(ProblemTensor(f"t{i}", i - i % 100, (i,), moves) for i in range(500) if i % 100)
        problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, tensors)
        solution = exact_placement(problem)
        assert (cost_s(problem, solution), solution.statistics["width"]) == (500, 0)
