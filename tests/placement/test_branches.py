"""Branches and levels by the paper's definitions, and what is within branches."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.branches import Items, Level, nodes_of, parallel_branches, structure
from shisha_rt.placement.build import build_problem
from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from tests.placement.random_problems import SHAPES, random_problem

Edges = list[tuple[int, int]]


def graph(edges: Edges, nodes: int | None = None) -> Problem:
    """Nodes from 1 on, as the paper draws them, become nodes from 0 on."""
    count = nodes or max(max(edge) for edge in edges)
    tensors = (ProblemTensor(f"t{i}", a - 1, (b - 1,), ((0.0,),)) for i, (a, b) in enumerate(edges))
    return Problem(("a",), ("m",), (0,), tuple(Node(f"v{i}", "", (1.0,)) for i in range(1, count + 1)), tuple(tensors))


Drawn = int | list[list["Drawn"]]
"""A node, or a level: a list of its branches."""


def drawn(items: Items) -> list[Drawn]:
    return [[drawn(branch) for branch in item.branches] if isinstance(item, Level) else item + 1 for item in items]


FORK: Edges = [(1, 2), (2, 3), (3, 4), (4, 5), (2, 6), (6, 7), (5, 8), (7, 8)]


@pytest.mark.parametrize(
    ("edges", "expected", "parallel"),
    [
        # Figure 4.
        (FORK, [1, 2, [[3, 4, 5], [6, 7]], 8], 2),
        ([(1, 2), (2, 3)], [1, 2, 3], 0),
        # A shortcut is no branch: what is beside it is alone.
        ([(1, 2), (2, 3), (3, 4), (1, 4), (4, 5)], [1, 2, 3, 4, 5], 0),
        # Projections, as in ResNet.
        ([(1, 2), (2, 3), (1, 4), (3, 5), (4, 5)], [1, [[2, 3], [4]], 5], 2),
        # Four branches, as in Inception, and a shortcut.
        ([(1, 2), (1, 3), (1, 4), (1, 5), (2, 6), (3, 6), (4, 6), (5, 6), (1, 6)], [1, [[2], [3], [4], [5]], 6], 4),
        # Two tensors between two nodes are one edge.
        ([(1, 2), (1, 2), (2, 3)], [1, 2, 3], 0),
        # The same input, but other outputs: no level.
        ([(1, 2), (1, 3), (2, 4), (3, 5), (2, 5), (4, 6), (5, 6)], [1, 2, 3, 5, 4, 6], 0),
        # A fork within a branch of a fork.
        ([(1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 7), (1, 6), (6, 7)], [1, [[2, [[3], [4]], 5], [6]], 7], 3),
        # Two inputs and two outputs.
        ([(1, 3), (2, 3), (3, 4), (3, 5)], [[[1], [2]], 3, [[4], [5]]], 4),
    ],
)  # fmt: skip
def test_by_hand(edges: Edges, expected: list[Drawn], parallel: int) -> None:
    problem = graph(edges)
    assert drawn(structure(problem)) == expected
    assert parallel_branches(problem) == parallel


@pytest.mark.parametrize(
    ("name", "count"),
    [("squeezenet", 16), ("resnet18", 6), ("inception_v1", 36), pytest.param("resnet50", 8, marks=pytest.mark.long)],
)
def test_as_many_parallel_branches_as_the_paper_counts(name: str, count: int) -> None:
    """Table 3."""
    network = read_model(zoo_path(name)).graph
    device = Device("one", "one.toml", "onnxruntime", "one", "fp32")
    problem = build_problem(network, OperatorCosts((device,), np.ones((len(network.operators), 1))))
    assert parallel_branches(problem) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_every_node_once_in_an_order_that_may_run(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(60):
        problem = random_problem(rng, shape, rng.randint(1, 25), 2)
        order = list(nodes_of(structure(problem)))
        assert sorted(order) == list(range(len(problem.nodes)))
        at = {node: place for place, node in enumerate(order)}
        assert all(at[tensor.producer] < at[node] for tensor in problem.tensors for node in tensor.consumers)
        check_level(problem, structure(problem))


def check_level(problem: Problem, items: Items) -> None:
    """Definition 2: what goes into a branch comes from one node, the same for all of a level, and so what leaves it."""
    edges = {(tensor.producer, node) for tensor in problem.tensors for node in tensor.consumers}
    for level in (item for item in items if isinstance(item, Level)):
        ends = set()
        for branch in level.branches:
            own = set(nodes_of(branch))
            into = frozenset(a for a, b in edges if b in own and a not in own)
            out = frozenset(b for a, b in edges if a in own and b not in own)
            assert max(len(into), len(out)) <= 1
            ends.add((into, out))
            check_level(problem, branch)
        assert len(ends) == 1
        assert len(level.branches) > 1


def test_levels_nested_very_deep_and_long_chains() -> None:
    """300 forks within forks: the innermost 64 are levels, the others in sequence."""
    deep = 300
    forks, beside = range(1, deep + 1), range(deep + 2, 2 * deep + 2)
    joins = range(3 * deep + 1, 2 * deep + 1, -1)
    edges = [*pairwise([*forks, deep + 1, *reversed(joins)]), *zip(forks, beside, strict=True)]
    problem = graph([*edges, *zip(beside, joins, strict=True)])
    items = structure(problem)
    assert sorted(nodes_of(items)) == list(range(len(problem.nodes)))
    assert [item.depth for item in items if isinstance(item, Level)] == [64]
    chain = graph(list(pairwise(range(1, 5001))))
    assert structure(chain) == tuple(range(5000))
