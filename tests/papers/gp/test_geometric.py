"""Splits by geometric programs: the figures tried by hand, limits, rounding, and what must hold for random problems."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import islice, product

import numpy as np
import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import chain_faults, faults
from shisha_rt.papers.gp.geometric.condensation import condensed, share_costs
from shisha_rt.papers.gp.geometric.geometric import (
    FULL_NETWORK_K,
    GeometricSplit,
    PenalisedProgram,
    TighteningRule,
    geometric_split,
)
from shisha_rt.papers.gp.geometric.rounding import best_rounding, roundings
from shisha_rt.papers.gp.methods import split_by
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, Legs, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.planner.strategies import Execution
from tests.drawn import chunks
from tests.wording import raised, says

COARSE = TighteningRule(step=1 / 8)


def posynomial(*terms: tuple[float, dict[str, float]]) -> Posynomial:
    return Posynomial(tuple(Monomial(*term) for term in terms))


def device(name: str, each: float) -> SplitDevice:
    """Seconds a unit of C."""
    return SplitDevice(name, (Formula(posynomial((each, {"C": 1.0}))),))


def with_limit(unlimited: SplitDevice, limit: float, one_for_all: bool = False) -> SplitDevice:
    """One ALM a unit of C."""
    resources = {"ALM": posynomial((1.0, {"C": 1.0}))}
    return replace(unlimited, resources=resources, limits={"ALM": limit}, one_for_all=one_for_all)


def layer(units: int = 16, name: str = "conv1", block: int = 1) -> SplitLayer:
    features = {"H": 112.0, "W": 112.0, "C": float(units), "k": 1.0, "N": 32.0, "s": 1.0}
    return SplitLayer(name, features, "C", block)


def total(problem: SplitProblem, split: GeometricSplit) -> float:
    assert split.rounded is not None
    return sum(
        layer_cost(problem, conv, shares) for conv, shares in zip(problem.layers, split.rounded.shares, strict=True)
    )


def real(split: GeometricSplit) -> tuple[float, ...]:
    assert split.real is not None, split.reason
    return split.real[0]


def test_one_device_seven_times_the_others_cost() -> None:
    problem = SplitProblem((layer(),), (device("fpga", 1.0), device("gpu", 7.0)))
    split = geometric_split(problem)
    assert split.outcome == Outcome.FEASIBLE
    assert len(split.steps) == 19
    assert real(split) == pytest.approx((13.97, 2.03), abs=0.01)
    assert split.steps[-1].alpha == pytest.approx((19.0,))  # a 64th of 8 + 56 a step
    assert split.rounded is not None
    assert split.rounded.shares == ((14, 2),)
    assert total(problem, split) == 28.0


@pytest.mark.parametrize(("ratio", "rounds"), [(7.0, 1), (3.0, 2), (2.0, 3), (1.5, 6)])
def test_condensing_again_ends_at_fifteen_to_one(ratio: float, rounds: int) -> None:
    """So many rounds after the first, and one or two in which hardly anything moves.

    What is left for its bound alone is then dropped: the best of all is outside of the programs.
    """
    problem = SplitProblem((layer(),), (device("fpga", 1.0), device("gpu", ratio)))
    split = geometric_split(problem, again=True, rule=TighteningRule(step=1 / 16))
    assert real(split) == pytest.approx((15.0, 1.0), abs=0.01)
    assert split.rounds in {1 + rounds, 2 + rounds, 3 + rounds}
    assert total(problem, split) == 16.0


def test_alpha_beyond_the_first_goes_back_towards_the_starting_point() -> None:
    """Figure 4's rise: three times the alpha is 12.1 to 3.9."""
    costs = share_costs(SplitProblem((layer(),), (device("fpga", 1.0), device("gpu", 7.0))), None)
    parts, _ = PenalisedProgram(costs).solve(np.array([57.0]), condensed([[0.5, 0.5]]))
    assert parts is not None
    assert 16 * parts[0] == pytest.approx((12.1, 3.9), abs=0.1)


def test_side_by_side_devices_end_together() -> None:
    devices = (device("cpu", 6.0), device("gpu", 2.0), device("fpga", 1.0))
    problem = SplitProblem((layer(60),), devices, execution="parallel")
    split = geometric_split(problem)
    assert real(split) == pytest.approx((6.0, 18.0, 36.0), abs=0.1)
    assert split.rounded is not None
    assert split.rounded.shares == ((6, 18, 36),)


def test_the_trace_tells_each_step() -> None:
    problem = SplitProblem((layer(16, "a"), layer(64, "b")), (device("fpga", 1.0), device("gpu", 7.0)))
    split = geometric_split(problem)
    for before, after in zip(split.steps, split.steps[1:], strict=False):
        for now, then, whole in zip(before.alpha, after.alpha, before.sums, strict=True):
            assert (then == now) == (whole >= 1 - 1e-3)  # raised together, each frozen where it is met
    assert min(split.steps[-1].sums) >= 1 - 1e-3
    shares = split.steps[-1].shares
    assert split.steps[-1].cost == pytest.approx(sum(f + 7 * g for f, g in shares))


def test_fused_layers_communicate_almost_free_in_the_model_and_in_full_in_what_comes_of_it() -> None:
    moved = replace(device("fpga", 1.0), legs=Legs(posynomial((10.0, {"C": 1.0}))))
    problem = SplitProblem((layer(),), (moved, device("gpu", 7.0)))
    plain, fused = geometric_split(problem), geometric_split(problem, FULL_NETWORK_K)
    assert real(plain)[0] == pytest.approx(16 * 7 / 18, abs=0.1)
    assert real(fused)[0] == pytest.approx(14.0, abs=0.1)
    assert fused.steps[-1].cost == pytest.approx(28.0, rel=0.01)
    assert total(problem, fused) == 13 * 11 + 3 * 7  # rounded down, as that is cheaper in full


def test_energy_counts_the_power_of_computing_and_of_moving() -> None:
    """12 J a unit on the one, 2 + 5 x 2 on the other: alike."""
    gpu = replace(device("gpu", 1.0), power_w=12.0)
    fpga = replace(device("fpga", 2.0), legs=Legs(posynomial((5.0, {"C": 1.0}))), transfer_power_w=2.0)
    problem = SplitProblem((layer(),), (gpu, fpga), objective="energy", execution="parallel")
    assert real(geometric_split(problem)) == pytest.approx((8.0, 8.0), abs=0.01)


def test_a_limit_of_each_layer_and_one_for_all() -> None:
    layers = (layer(16, "a"), layer(16, "b"))
    fpga, gpu = device("fpga", 1.0), device("gpu", 7.0)
    each = geometric_split(SplitProblem(layers, (with_limit(fpga, 10.0), gpu)))
    assert each.rounded is not None
    assert each.rounded.shares == ((10, 6), (10, 6))
    problem = SplitProblem(layers, (with_limit(fpga, 10.0, one_for_all=True), gpu))
    split = geometric_split(problem)
    assert split.rounded is not None
    assert sum(shares[0] for shares in split.rounded.shares) == 10
    assert faults(problem, split.rounded.shares) == []


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ((8.0, 0.25), ["fpga: layer conv1 would need", "it has 8"]),
        ((8.0, 4.0), ["layer conv1 would need", "ALM"]),
        ((0.5, 0.25), ["layer conv1: fpga has room for 0 (ALM), gpu has room for 0 (ALM) of 16"]),
    ],
)
def test_limits_that_cannot_be_met_are_named(limits: tuple[float, float], named: list[str]) -> None:
    devices = (device("fpga", 1.0), device("gpu", 7.0))
    limited = [with_limit(unlimited, limit) for unlimited, limit in zip(devices, limits, strict=True)]
    split = geometric_split(SplitProblem((layer(),), tuple(limited)))
    assert split.outcome == Outcome.INFEASIBLE
    assert split.rounded is None
    for words in named:
        assert words in (split.reason or "")


@pytest.mark.parametrize("limit", [0.5, 0.0])
@pytest.mark.parametrize("k", [None, FULL_NETWORK_K])
@pytest.mark.parametrize("one_for_all", [False, True])
def test_a_device_that_cannot_hold_a_unit_has_no_part(limit: float, k: int | None, one_for_all: bool) -> None:
    """Resources of a layer mapped directly do not go with its rows: a part of one is as large as the whole."""
    wide = replace(layer(16, "wide"), features={**layer(16).features, "N": 4.0})
    resources = {"ALM": posynomial((1.0, {"N": 1.0}))}  # wide takes 4 of it, the other 32
    fpga = replace(device("fpga", 1.0), resources=resources, limits={"ALM": 4 + limit}, one_for_all=one_for_all)
    gpu, cpu = device("gpu", 7.0), device("cpu", 7.0)
    problem = SplitProblem((wide, layer(16, "deep")), (fpga, gpu, cpu))
    split = geometric_split(problem, k)
    assert split.outcome == Outcome.FEASIBLE, split.reason
    assert split.rounded is not None
    first, second = split.rounded.shares
    assert first[0] > 0
    assert second == (0, 8, 8)
    assert faults(problem, split.rounded.shares) == []
    alone = geometric_split(SplitProblem((layer(16),), (fpga, gpu)), k)
    assert alone.rounded is not None
    assert alone.rounded.shares == ((0, 16),)


def test_shares_that_both_limits_together_leave_no_room_for() -> None:
    devices = (with_limit(device("fpga", 1.0), 8.0), with_limit(device("gpu", 7.0), 6.0))
    split = geometric_split(SplitProblem((layer(),), devices))
    assert split.outcome == Outcome.INFEASIBLE
    assert "ALM" in (split.reason or "")
    roomy = tuple(with_limit(limited, 8.5) for limited in devices)
    assert geometric_split(SplitProblem((layer(),), roomy)).outcome == Outcome.FEASIBLE


def test_fewer_units_than_devices() -> None:
    split = geometric_split(SplitProblem((layer(1),), (device("fpga", 1.0), device("gpu", 7.0))))
    assert split.outcome == Outcome.INFEASIBLE
    assert split.reason == says("layer conv1: 1 units, … 2 devices")


def test_a_device_that_runs_no_block_of_a_layer_has_no_part_of_it() -> None:
    """It runs channels by sixteens, of which layers of ten have none: they take nothing of its limit either."""
    by_sixteens = replace(device("npu", 1.0), formulas=(Formula(posynomial((1.0, {"C": 1.0})), channels=16),))
    layers = tuple(layer(10, name, block=16) for name in ("conv1", "conv2", "conv3"))
    problem = SplitProblem(layers, (with_limit(by_sixteens, 2.5, one_for_all=True), device("cpu", 5.0)))
    split = geometric_split(problem, rule=COARSE)
    assert split.rounded is not None, split.reason
    assert split.rounded.shares == ((0, 10),) * 3


def test_a_tightening_that_is_stopped_says_so() -> None:
    problem = SplitProblem((layer(),), (device("fpga", 1.0), device("gpu", 7.0)))
    split = geometric_split(problem, rule=TighteningRule(most_steps=5))
    assert split.outcome == Outcome.LIMIT
    assert split.reason == "after 5 steps layer conv1 is not whole"
    assert len(split.steps) == 5


@pytest.mark.parametrize("module", ["cvxpy", "clarabel"])
def test_a_missing_solver_is_one_clear_line(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with raised(BadInput, Error.EXTRA_MISSING, match=rf"geometric: {module} is missing, .*shisha-rt\[solve\]"):
        geometric_split(SplitProblem((layer(),), (device("fpga", 1.0), device("gpu", 7.0))))


def test_rounding_is_in_blocks_and_what_is_left_over_goes_to_one() -> None:
    assert next(roundings(layer(64, block=16), (40.0, 24.0))) == (48, 16)
    assert next(roundings(layer(16), (13.968, 2.032))) == (14, 2)
    options = list(roundings(layer(100, block=16), (61.0, 39.0)))
    assert all(sum(shares) == 100 and sum(units % 16 == 4 for units in shares) == 1 for shares in options)
    assert set(options) == {(64, 36), (68, 32), (48, 52), (52, 48)}
    options = list(roundings(layer(16), (10.5, 5.5, 0.0, 0.0)))
    assert sorted(options) == [(10, 6, 0, 0), (11, 5, 0, 0)]


def test_a_broken_limit_is_mended_block_by_block() -> None:
    problem = SplitProblem((layer(16),), (with_limit(device("fpga", 1.0), 9.0), device("gpu", 7.0)))
    assert best_rounding(problem, [(13.0, 3.0)]).shares == ((9, 7),)
    alone = SplitProblem((layer(16),), (with_limit(device("fpga", 1.0), 9.0), with_limit(device("gpu", 7.0), 3.0)))
    assert len(best_rounding(alone, [(13.0, 3.0)]).faults) == 1


def drawn_problem(seed: int) -> SplitProblem:
    """Two or three devices; costs, transfers and limits over several decades."""
    draw = random.Random(seed)
    devices = []
    for number in range(draw.choice([2, 2, 3])):
        terms = [(10 ** draw.uniform(-7, -5), {"C": draw.choice([0.8, 1.0, 1.3]), "N": 1.0})]
        if draw.random() < 0.5:
            terms.append((10 ** draw.uniform(-6, -4), {}))
        moved = posynomial((1e-5, {}), (10 ** draw.uniform(-9, -7), {"H": 1.0, "W": 1.0, "C": 1.0}))
        drawn = SplitDevice(
            f"d{number}",
            (Formula(posynomial(*terms)),),
            Legs(moved) if draw.random() < 0.5 else None,
            draw.uniform(1, 9),
        )
        if number == 0 and draw.random() < 0.5:
            drawn = with_limit(drawn, draw.uniform(1.0, 40.0), draw.random() < 0.5)
        devices.append(drawn)
    layers = tuple(layer(draw.choice([8, 16, 30]), f"conv{n}", draw.choice([1, 4])) for n in range(draw.choice([1, 3])))
    objective = draw.choice(["latency", "latency", "energy"])
    execution: Execution = draw.choice(["sequence", "parallel"])
    return SplitProblem(layers, tuple(devices), objective, execution)  # type: ignore[arg-type]


def best_of_all(problem: SplitProblem, conv: SplitLayer) -> float:
    """By enumeration, each device with a part."""
    counts = range(1, conv.units)
    return min(
        layer_cost(problem, conv, (*some, conv.units - sum(some)))
        for some in product(counts, repeat=len(problem.devices) - 1)
        if sum(some) < conv.units
    )


@pytest.mark.parametrize("seeds", chunks(200, 10, short=2))
def test_random_problems(seeds: range) -> None:
    """Each step is the least of its own program, the shares make up the layers, and limits are kept or named."""
    for seed in seeds:
        problem = drawn_problem(seed)
        k = random.Random(seed).choice([None, 1, FULL_NETWORK_K])
        split = geometric_split(problem, k, rule=COARSE)
        if split.outcome == Outcome.INFEASIBLE:
            assert "ALM" in (split.reason or ""), seed
            continue
        assert split.outcome == Outcome.FEASIBLE, (seed, split.reason)
        assert split.rounded is not None
        assert faults(problem, split.rounded.shares) == [], seed
        for conv, shares in zip(problem.layers, split.rounded.shares, strict=True):
            assert sum(units % conv.block != 0 for units in shares) <= (conv.units % conv.block != 0), seed
        _least_of_its_program(problem, split, k, seed)


def _least_of_its_program(problem: SplitProblem, split: GeometricSplit, k: int | None, seed: int) -> None:
    """No point drawn near it that keeps the limits costs less, penalty and all."""
    costs, draw = share_costs(problem, k), np.random.default_rng(seed)
    sums = condensed(np.full((len(problem.layers), len(problem.devices)), 1 / len(problem.devices)))
    units = np.array([[conv.units] for conv in problem.layers])
    step = split.steps[-1]
    alpha, at = np.array(step.alpha), np.array(step.shares) / units
    here = float(costs.of_layers(at).sum() + (alpha / sums.at(at)).sum())
    for _ in range(20):
        other = np.clip(at * draw.uniform(0.8, 1.05, at.shape), 1 / units, 1)
        other = np.clip(other / np.maximum(1, other.sum(axis=1, keepdims=True)), 1 / units, 1)
        if other.sum(axis=1).max() > 1 + 1e-9 or any("ALM" in line for line in faults(problem, other * units)):
            continue
        assert here <= float(costs.of_layers(other).sum() + (alpha / sums.at(other)).sum()) * (1 + 1e-4), seed


@pytest.mark.parametrize("seeds", chunks(100, 10, short=1, first=1000))
def test_side_by_side_the_answer_is_near_the_best_of_all(seeds: range) -> None:
    """Within 2% in the median: costs without a call time, so that no device is better left out."""
    gaps = []
    for seed in seeds:
        draw = random.Random(seed)
        devices = tuple(device(f"d{n}", 10 ** draw.uniform(-0.5, 0.5)) for n in range(3))
        problem = SplitProblem((layer(64),), devices, execution="parallel")
        gaps.append(total(problem, geometric_split(problem, rule=COARSE)) / best_of_all(problem, problem.layers[0]))
    assert min(gaps) >= 1 - 1e-9
    assert sorted(gaps)[len(gaps) // 2] <= 1.02
    assert max(gaps) <= 1.1


def test_the_roundings_looked_at_are_counted() -> None:
    many = tuple(1.0 for _ in range(20))
    assert len(list(islice(roundings(layer(20), many), 100))) == 100


@pytest.mark.parametrize("limit", [11.0, 1.0])
def test_layers_that_are_split_exactly_count_in_limits_for_all_layers(limit: float) -> None:
    """The narrow layer is all on the fast device; what that leaves is for the wide one, if it is enough for a unit."""
    devices = (device("slow", 7.0), with_limit(device("fast", 1.0), limit, one_for_all=True))
    problem = SplitProblem((layer(1, "narrow"), layer(16, "wide")), devices)
    split = split_by("geometric", problem)
    assert split.outcome == Outcome.FEASIBLE, split.reason
    assert split.steps is not None
    assert not chain_faults(problem, split.steps)
