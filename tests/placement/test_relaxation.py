"""Bounds of the relaxation against every choice of values."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from shisha_rt.placement.elimination import Factor, elimination_order, minimise
from shisha_rt.placement.relaxation import relaxed

ROUNDED_UP = 1 + 1e-9


def random_tables(rng: random.Random, decades: float) -> tuple[list[int], list[Factor]]:
    """Up to 3 variables a table; each value costs something finite alone, so some choice does."""
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 6))]
    factors: list[Factor] = [((), np.array(1.0))]
    for _ in range(rng.randint(0, 9)):
        scope = tuple(rng.sample(range(len(sizes)), rng.randint(1, min(3, len(sizes)))))
        shape = [sizes[variable] for variable in scope]
        entries = [10 ** rng.uniform(-decades / 2, decades / 2) for _ in range(math.prod(shape))]
        entries = [math.inf if at and rng.random() < 0.2 else entry for at, entry in enumerate(entries)]
        factors.append((scope, np.array(entries).reshape(shape)))
    return sizes, factors


def total(factors: list[Factor], values: tuple[int, ...]) -> float:
    return math.fsum(float(table[tuple(values[variable] for variable in scope)]) for scope, table in factors)


@pytest.mark.parametrize("decades", [0, 2, 10])
def test_no_choice_is_below_what_is_proven(decades: float) -> None:
    rng = random.Random(decades)
    reached = 0
    for _ in range(60):
        sizes, factors = random_tables(rng, decades)
        totals = {values: total(factors, values) for values in product(*map(range, sizes))}
        optimum = min(totals.values())
        known = rng.choice([v for v in totals.values() if v < math.inf])
        relaxation = relaxed(sizes, factors, rng.sample(range(len(sizes)), len(sizes)), known)
        assert relaxation.least <= optimum * ROUNDED_UP
        assert total(factors, tuple(relaxation.values)) >= optimum
        for variable, bounds in enumerate(relaxation.least_with):
            for value, bound in enumerate(bounds):
                least = min(summed for values, summed in totals.items() if values[variable] == value)
                assert min(bound, known) <= least * ROUNDED_UP
        reached += relaxation.least >= optimum * (1 - 1e-6)
    assert reached > 40  # such small ones mostly have no gap


def test_a_chain_has_no_gap() -> None:
    rng = np.random.default_rng(0)
    factors: list[Factor] = [((i, i + 1), rng.random((5, 5))) for i in range(60)]
    order = elimination_order([5] * 61, [scope for scope, _ in factors], 10**6)
    assert order is not None
    optimum = minimise([5] * 61, factors, order)
    assert optimum is not None
    relaxation = relaxed([5] * 61, factors, range(61), 2 * optimum.total)
    assert relaxation.least == pytest.approx(optimum.total, rel=1e-9)
    assert relaxation.values == optimum.values


def test_a_stop_leaves_a_bound_and_a_choice() -> None:
    factors: list[Factor] = [((0,), np.array([3.0, 2.0])), ((0, 1), np.array([[1.0, 5.0], [4.0, 4.0]]))]
    relaxation = relaxed([2, 2], factors, [0, 1], 10.0, lambda: True)
    assert (relaxation.least, len(relaxation.values)) == (0, 2)
