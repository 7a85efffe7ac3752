"""The exact integer split against enumeration, and what it refuses to split."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from shisha_rt.papers.gp.chain import faults
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.papers.gp.shared import split_layer
from shisha_rt.planner.shards.integer import best_blocks
from tests.drawn import chunks
from tests.papers.gp.random_splits import block_shares, random_split_problem


@pytest.mark.parametrize("seeds", chunks(500, 10, short=20))
def test_it_equals_enumeration(seeds: range) -> None:
    for seed in seeds:
        _compare(random_split_problem(random.Random(seed)))


def _compare(problem: SplitProblem) -> None:
    """What a share costs and whether it fits is asked of the checker, for each device by itself."""
    (layer,) = problem.layers
    everything = list(block_shares(len(problem.devices), layer.units, layer.block))
    tables = [
        _by_the_checker(problem, layer, d, {shares[d] for shares in everything}) for d in range(len(everything[0]))
    ]
    together = max if problem.objective == "latency" and problem.execution == "parallel" else math.fsum
    best = min(together([table[n] for table, n in zip(tables, shares, strict=True)]) for shares in everything)
    split = split_layer(problem, layer)
    if best == math.inf:
        assert split is None
        return
    assert split is not None
    shares, blocks = split
    assert faults(problem, [shares]) == []
    assert layer_cost(problem, layer, shares) == pytest.approx(blocks.value)
    assert blocks.value == pytest.approx(best, rel=1e-9)
    alone = [table[layer.units] for table in tables]
    assert blocks.is_split == (sum(n > 0 for n in shares) > 1)
    if blocks.is_split:
        assert blocks.value < min(alone)
    else:
        assert blocks.value == pytest.approx(min(alone))


def _by_the_checker(problem: SplitProblem, layer: SplitLayer, device: int, units: set[int]) -> dict[int, float]:
    costs = {}
    for n in units:
        shares = [n if d == device else 0 for d in range(len(problem.devices))]
        fits = not any("would need" in fault for fault in faults(problem, [shares]))
        costs[n] = layer_cost(problem, layer, shares) if fits else math.inf
    return costs


def linear(slopes: Sequence[float], blocks: int, start: float = 0.0) -> list[list[float]]:
    return [[start * (n > 0) + slope * n for n in range(blocks + 1)] for slope in slopes]


def test_side_by_side_devices_end_together() -> None:
    best = best_blocks(linear((1, 2, 4), 7), "parallel")
    assert best is not None
    assert (best.blocks, best.value) == ((4, 2, 1), 4)


def test_one_after_the_other_the_fastest_has_it_all() -> None:
    best = best_blocks(linear((2, 1), 16), "sequence")
    assert best is not None
    assert (best.blocks, best.is_split, best.value) == ((0, 16), False, 16)


def test_a_split_whose_transfers_eat_its_gain_is_refused() -> None:
    alike = linear((1, 1), 8, start=4)
    split = best_blocks(alike, "parallel")
    assert split is not None
    assert (split.blocks, split.value) == ((4, 4), 8)
    dearer = best_blocks(linear((1, 1), 8, start=4)[:1] + linear((1,), 8, start=12), "parallel")
    assert dearer is not None
    assert (dearer.blocks, dearer.is_split, dearer.value) == ((8, 0), False, 12)


def test_no_device_is_needed_that_ends_nothing_earlier() -> None:
    """The first is bound to take 3; the other two could share the rest, and one of them has it all in that time."""
    table = [[0, 3, math.inf], [0, 2, math.inf], [0, 2, math.inf]]
    best = best_blocks([*table, [0, 1, 2.5]], "parallel")
    assert best is not None
    assert (best.blocks, best.value) == ((0, 1, 0, 1), 2)


def test_what_has_no_room_anywhere() -> None:
    tables = [[0, 1, math.inf, math.inf], [0, 1, math.inf, math.inf]]
    assert best_blocks(tables, "sequence") is None
    assert best_blocks(tables, "parallel") is None
    best = best_blocks([*tables, tables[0]], "parallel")
    assert best is not None
    assert best.blocks == (1, 1, 1)


def test_costs_may_fall_and_jump() -> None:
    """Steps of 4 blocks on one device, a gap on the other."""
    best = best_blocks([[0, 4, 4, 4, 4, 8], [0, 9, math.inf, 2, 9, 9]], "parallel")
    assert best is not None
    assert (best.blocks, best.value) == ((2, 3), 4)


def test_twenty_places_of_256_units() -> None:
    """Against the share at which all would end together."""
    slopes = np.random.default_rng(0).uniform(1, 3, 20)
    best = best_blocks(linear(slopes.tolist(), 256), "parallel")
    assert best is not None
    assert sum(best.blocks) == 256
    fair = 256 / (1 / slopes).sum()
    assert fair <= best.value <= fair + slopes.max()


def test_what_is_left_over_is_any_one_devices() -> None:
    problem = SplitProblem(
        (SplitLayer("odd", {"H": 1, "W": 1, "C": 1, "k": 1, "N": 40, "s": 1}, "N", 16),),
        tuple(SplitDevice(name, (Formula(Posynomial((Monomial(1.0, {"N": 1.0}),))),)) for name in "ab"),
        execution="parallel",
    )
    split = split_layer(problem, problem.layers[0])
    assert split is not None
    assert (sorted(split[0]), split[1].value) == ([16, 24], 24)
