"""All assignments at once cost what the checker says of each; and the sample that the solvers are tested on is wide."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.dcg.brute import assignment_at, assignment_count, brute, every_cost_s
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Problem
from tests.placement.random_problems import SHAPES, random_problem, random_small_problem


@pytest.mark.parametrize("shape", SHAPES)
def test_every_cost_is_the_checkers(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(25):
        problem = random_small_problem(rng, shape)
        assignments = list(product(*problem.devices_of))
        assert len(assignments) == assignment_count(problem)
        assert every_cost_s(problem).tolist() == [cost(problem, a).total_s for a in assignments]
        assert [assignment_at(problem, index) for index in range(len(assignments))] == assignments


def test_the_cheapest_of_all() -> None:
    problem = random_small_problem(random.Random(1), "dense")
    solution = brute(problem)
    assert solution.assignment is not None
    costs_s = [cost(problem, a).total_s for a in product(*problem.devices_of)]
    assert cost(problem, solution.assignment).total_s == solution.lower_bound_s == min(costs_s)
    assert (solution.outcome, solution.statistics) == (Outcome.OPTIMAL, {"assignments": len(costs_s)})


def test_a_limit_on_assignments() -> None:
    problem = random_problem(random.Random(0), "chain", 5, 2, incapable=0)
    assert brute(problem, limit_assignments=32).outcome is Outcome.OPTIMAL
    refused = brute(problem, limit_assignments=31)
    assert (refused.assignment, refused.outcome, refused.lower_bound_s) == (None, Outcome.LIMIT, None)
    large = random_problem(random.Random(0), "chain", 500, 4)
    assert brute(large).outcome is Outcome.LIMIT


def test_nodes_without_a_choice_are_no_axes() -> None:
    """Numpy has 32 or 64 of them, by its version."""
    problem = random_problem(random.Random(0), "skip", 100, 2, incapable=0.95)
    assert 1 < assignment_count(problem) < 2**16
    solution = brute(problem)
    assert solution.assignment is not None
    assert cost(problem, solution.assignment).total_s == solution.lower_bound_s


def linked_groups(count: int) -> Problem:
    """Groups of two nodes each, all apart, and one of all nodes."""
    problem = random_problem(random.Random(0), "chain", 2 * count, 1, incapable=0)
    pairs = tuple(Group((2 * at, 2 * at + 1), 0, 1.0) for at in range(count))
    return replace(problem, groups=(*pairs, Group(tuple(range(2 * count)), 0, 1.0)))


def test_groups_that_overlap_in_too_many_ways_are_refused() -> None:
    assert assignment_count(linked_groups(40)) == 1
    assert brute(linked_groups(40)).outcome is Outcome.LIMIT


def test_it_stops_among_the_ways_that_groups_overlap() -> None:
    asked = iter(range(2000))
    assert brute(linked_groups(10)).outcome is Outcome.OPTIMAL
    assert brute(linked_groups(10), should_stop=lambda: next(asked) >= 100).outcome is Outcome.LIMIT
    assert next(asked) < 110


class TestRandomProblems:
    """What these tests of solvers stand on."""

    def test_the_sample_has_everything(self) -> None:
        rng = random.Random(0)
        seen: Counter[str] = Counter()
        for number in range(600):
            seen.update(self._features(random_small_problem(rng, SHAPES[number % len(SHAPES)])))
        rare = {feature: count for feature, count in seen.items() if count < 20}
        assert not rare
        assert len(seen) == 12

    def _features(self, problem: Problem) -> list[str]:
        members = [node for group in problem.groups for node in group.nodes]
        features = {
            "shared memory": 1 < len(problem.memories) < len(problem.devices),
            "one memory": len(problem.memories) == 1,
            "incapable": any(len(node.capable) < len(problem.devices) for node in problem.nodes),
            "several readers": any(len(tensor.consumers) > 1 for tensor in problem.tensors),
            "overlapping groups": len(set(members)) < len(members),
            "a member only within a group": self._optimum_s(problem) < self._optimum_of_the_able_s(problem),
            "a group in use": bool(problem.groups)
            and self._optimum_s(problem) < self._optimum_without_groups_s(problem),
        }
        return [
            f"{len(problem.devices)} devices",
            problem.transfer_counting,
            *(feature for feature, is_there in features.items() if is_there),
        ]

    def _optimum_s(self, problem: Problem) -> float:
        return float(every_cost_s(problem).min())

    def _optimum_of_the_able_s(self, problem: Problem) -> float:
        able = [g for g in problem.groups if all(g.device in problem.nodes[node].capable for node in g.nodes)]
        return self._optimum_s(replace(problem, groups=tuple(able)))

    def _optimum_without_groups_s(self, problem: Problem) -> float:
        return self._optimum_s(replace(problem, groups=()))
