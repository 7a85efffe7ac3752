"""Elimination against every choice of values, on random tables of any number of axes."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from shisha_rt.placement.elimination import Factor, elimination_order, minimise

PLENTY = 10**6


def random_factors(rng: random.Random) -> tuple[list[int], list[Factor]]:
    sizes = [rng.randint(2, 4) for _ in range(rng.randint(1, 6))]
    factors: list[Factor] = []
    for _ in range(rng.randint(0, 8)):
        scope = tuple(rng.sample(range(len(sizes)), rng.randint(0, min(3, len(sizes)))))
        shape = [sizes[variable] for variable in scope]
        entries = [rng.choice((0, 1, 2, 3, 5, math.inf)) for _ in range(math.prod(shape))]
        factors.append((scope, np.array(entries, float).reshape(shape)))
    return sizes, factors


def total(factors: list[Factor], values: tuple[int, ...] | list[int]) -> float:
    return sum(float(table[tuple(values[variable] for variable in scope)]) for scope, table in factors)


def test_the_least_sum_and_values_that_have_it() -> None:
    rng = random.Random(0)
    impossible = 0
    for _ in range(300):
        sizes, factors = random_factors(rng)
        order = elimination_order(sizes, [scope for scope, _ in factors], PLENTY)
        assert order is not None
        assert sorted(order.variables) == list(range(len(sizes)))
        minimum = minimise(sizes, factors, order)
        assert minimum is not None
        least, values = minimum
        assert least == total(factors, values) == min(total(factors, v) for v in product(*map(range, sizes)))
        impossible += least == math.inf
    assert 0 < impossible < 150


@pytest.mark.parametrize(
    ("scopes", "width", "entries"),
    [
        ([], 0, 5 * 2),
        ([(i, i + 1) for i in range(4)], 1, 4 * 4 + 2),
        ([(0, i) for i in range(1, 5)], 1, 4 * 4 + 2),
        ([(i, (i + 1) % 5) for i in range(5)], 2, 3 * 8 + 4 + 2),
        ([(i, j) for i in range(5) for j in range(i)], 4, 32 + 16 + 8 + 4 + 2),
    ],
    ids=["nothing joined", "chain", "star", "cycle", "clique"],
)
def test_the_order_is_no_wider_than_it_must_be(scopes: list[tuple[int, ...]], width: int, entries: int) -> None:
    order = elimination_order([2] * 5, scopes, entries)
    assert order is not None
    assert (order.width, order.entries) == (width, entries)
    assert elimination_order([2] * 5, scopes, entries - 1) is None


def test_the_smallest_table_first_beyond_width_two() -> None:
    """Of K(4,3), as every variable has three neighbours or more: whoever goes first joins the other side."""
    scopes = [(i, j) for i in range(4) for j in range(4, 7)]
    order = elimination_order([2, 2, 2, 2, 9, 9, 9], scopes, PLENTY)
    assert order is not None
    assert order.variables[:2] == (4, 5)  # 9 * 16 entries each, against 2 * 729


def test_the_room_is_for_one_table_and_the_best_of_each() -> None:
    """A chain of 5 variables of 10 values: 4 tables of 100 entries and one of 10 are joined, never two at once."""
    order = elimination_order([10] * 5, [(i, i + 1) for i in range(4)], PLENTY)
    assert order is not None
    assert (order.entries, order.held) == (410, 2 * 100 + 4 * 10 + 1)


def test_a_stop() -> None:
    order = elimination_order([2] * 5, [(0, 1)], PLENTY)
    assert order is not None
    assert minimise([2] * 5, [((0, 1), np.zeros((2, 2)))], order, lambda: True) is None


def test_what_is_far_too_wide_is_given_up_at_once() -> None:
    scopes = [(i, j) for i in range(400) for j in range(i)]
    assert elimination_order([3] * 400, scopes, 2**30) is None
