"""What can lie before a cut: counted by hand, and held against all sets of groups."""

from __future__ import annotations

import random

import pytest

from shisha_rt.papers.order.downsets import (
    bits_of,
    downsets_along,
    every_downset,
    good_orders,
    group_needs,
    near,
    order_through,
)

FORK = group_needs(
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], [frozenset(need) for need in ((), (0,), (1,), (0,), (2, 3))]
)
"""From 0 to 1 and 2, and to 3, and from both to 4."""


def random_needs(rng: random.Random, groups: int) -> list[frozenset[int]]:
    return [frozenset(need for need in range(group) if rng.random() < 0.3) for group in range(groups)]


def test_a_fork_has_the_product_of_what_its_branches_have() -> None:
    downsets = every_downset(FORK, 100)
    assert downsets is not None
    assert [sorted(bits_of(downset)) for downset in downsets] == [
        [],
        [0],
        [0, 1],
        [0, 3],
        [0, 1, 2],
        [0, 1, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
    ]
    assert every_downset(FORK, 7) is None


def test_layers_that_no_cut_parts_need_what_any_of_them_does() -> None:
    needs = group_needs([(0, 0), (1, 2), (3, 3)], [frozenset(need) for need in ((), (0,), (1,), (0, 2))])
    assert needs.before == (0, 0b001, 0b011)
    assert needs.behind == (0b110, 0b100, 0)


@pytest.mark.parametrize("seed", range(20))
def test_they_are_the_sets_that_have_all_they_need(seed: int) -> None:
    rng = random.Random(seed)
    needs = group_needs([(group, group) for group in range(7)], random_needs(rng, 7))
    closed = {bits for bits in range(1 << 7) if all(needs.before[group] & ~bits == 0 for group in bits_of(bits))}
    downsets = every_downset(needs, 1 << 7)
    assert downsets is not None
    assert set(downsets) == closed
    assert len(downsets) == len(closed)
    for downset in rng.sample(downsets, 3):
        apart = {other for other in closed if 0 < (other ^ downset).bit_count() <= 2}
        assert set(near(needs, downset)) == apart


@pytest.mark.parametrize("seed", range(20))
def test_good_orders_keep_all_needs(seed: int) -> None:
    rng = random.Random(seed)
    needs = group_needs([(group, group) for group in range(9)], random_needs(rng, 9))
    orders = good_orders(needs, [rng.random() for _ in range(9)])
    assert orders[0] == tuple(range(9))
    every = set(every_downset(needs, 1 << 9) or ())
    for order in orders:
        assert sorted(order) == list(range(9))
        assert set(downsets_along([order])) <= every
    assert downsets_along(orders)[0] == 0
    assert downsets_along(orders)[-1] == needs.whole


def test_an_order_leads_through_its_cuts() -> None:
    assert order_through([0b01001, 0b01111, 0b11111]) == (0, 3, 1, 2, 4)
    assert set(downsets_along([order_through([0b01001, 0b01111, 0b11111])])) >= {0b01001, 0b01111, 0b11111}
