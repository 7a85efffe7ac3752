"""Rivals do what the paper says of them, and none is better than the exact answer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import chain_faults, step_costs
from shisha_rt.papers.gp.fused import fused_split, split_network
from shisha_rt.papers.gp.methods import RivalName, split_by
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, Legs, SplitDevice, SplitLayer, SplitProblem
from shisha_rt.papers.gp.split_answer import alone_on_each
from shisha_rt.planner.strategies import SplitMethod
from tests.papers.gp.random_splits import random_split_problem
from tests.papers.gp.test_fused import random_chain
from tests.wording import raised, says

MACS = {"H": 1.0, "W": 1.0, "C": 1.0, "k": 2.0, "N": 1.0}
ROOM = Posynomial((Monomial(1.0, {"C": 1.0, "N": 1.0}),))


def layer(name: str, filters: int = 64, channels: int = 16, rows: int = 8) -> SplitLayer:
    features = {"H": rows, "W": rows, "C": channels, "k": 3, "N": filters, "s": 1}
    return SplitLayer(name, features, "N", 16)


def device(name: str, slowness: float, limit: float | None = None, *, one_for_all: bool = False) -> SplitDevice:
    resources, limits = ({}, {}) if limit is None else ({"ALM": ROOM}, {"ALM": limit})
    latency = Posynomial((Monomial(slowness, MACS),))
    return SplitDevice(name, (Formula(latency),), resources=resources, limits=limits, one_for_all=one_for_all)


def shares(name: RivalName, problem: SplitProblem) -> list[tuple[int, ...]]:
    split = split_by(name, problem)
    assert split.steps is not None, split.reason
    return [step.shares for step in split.steps]


def test_greedy_fills_the_fastest_and_spills_over() -> None:
    devices = (device("slow", 3), device("fast", 1, 600), device("middle", 2, 300))
    assert shares("greedy", SplitProblem((layer("a"),), devices)) == [(16, 32, 16)]


def test_greedy_leaves_nothing_for_later_layers() -> None:
    """One limit for all layers: the first has it all, whatever the second would gain."""
    devices = (device("slow", 3), device("fast", 1, 1024, one_for_all=True))
    problem = SplitProblem((layer("a"), layer("b", rows=64)), devices)
    assert shares("greedy", problem) == [(0, 64), (64, 0)]
    exact = split_network(problem)
    assert exact.steps is not None
    assert [step.shares for step in exact.steps] == [(64, 0), (0, 64)]


def test_balanced_and_proportional() -> None:
    problem = SplitProblem((layer("a"), layer("odd", 40)), (device("slow", 3), device("fast", 1)))
    assert shares("balanced", problem) == [(32, 32), (24, 16)]
    assert shares("proportional", problem) == [(16, 48), (0, 40)]
    limited = SplitProblem((layer("a", 96),), (device("slow", 3), device("fast", 1, 256), device("other", 3)))
    assert shares("balanced", limited) == [(48, 16, 32)]


def test_the_true_step_thinks_parts_move_for_free() -> None:
    """Eq. 12: a device with nearly all pays nothing, so it gets all but a block; the checker counts what is moved."""
    far = replace(device("far", 0.1), legs=Legs(Posynomial((Monomial(1e6, {}),))))
    problem = SplitProblem((layer("a"),), (device("host", 1.0), far))
    assert shares("step", problem) == [(16, 48)]
    assert split_by("step", problem).value == pytest.approx(0.25 * 64 * 16 * 64 * 9 * (1 + 0.3) + 1e6)


def test_communication_alone_fuses_whatever_it_costs() -> None:
    """Tiles move the least; what they compute twice counts for nothing, nor which device is slow."""
    legs = Legs(Posynomial((Monomial(1.0, {"H": 1, "W": 1, "C": 1}),)), Posynomial((Monomial(1.0, {"H": 1, "N": 1}),)))
    devices = tuple(replace(device(name, slow), legs=legs) for name, slow in (("a", 1), ("b", 9)))
    problem = SplitProblem((layer("x"), layer("y", channels=64)), devices)
    split = split_by("communication", problem)
    assert split.steps is not None
    assert [(step.mode, step.shares) for step in split.steps] == [("tiles", (4, 4))]
    moved_s = sum(cost.moved_s for cost in step_costs(problem, split.steps))
    best = fused_split(problem)
    assert best.steps is not None
    assert best.value < split.value
    assert moved_s > 0


def test_a_rival_without_room_names_the_limit() -> None:
    problem = SplitProblem((layer("a"), layer("b")), (device("d", 1, 1500, one_for_all=True),))
    for name in ("greedy", "balanced", "proportional"):
        split = split_by(name, problem)
        assert (split.outcome, split.reason) == (
            Outcome.INFEASIBLE,
            "layer b: d has room for 16 (ALM) of 64 in blocks of 16",
        )
    all_layers = "d: all layers … need 2048 ALM, it has 1500"
    assert split_by("communication", problem).reason == says(all_layers)


@pytest.mark.parametrize("seed", range(25))
def test_none_beats_the_exact_answer(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_split_problem(rng, most=40, layers=2)
    problem = replace(problem, devices=tuple(replace(drawn, one_for_all=seed % 2 > 0) for drawn in problem.devices))
    exact = split_network(problem)
    for name in get_args(RivalName):
        if name == "communication":
            continue
        split = split_by(name, problem)
        if split.steps is not None:
            assert exact.outcome is Outcome.OPTIMAL
            assert split.value >= exact.value * (1 - 1e-9)
            assert chain_faults(problem, split.steps) == []
        else:
            assert split.reason
    chain = random_chain(rng, one_for_all=False)
    communication = split_by("communication", chain)
    assert communication.steps is not None or communication.reason
    assert communication.value >= fused_split(chain).value * (1 - 1e-9)


@pytest.mark.parametrize("name", ["greedy", "proportional"])
def test_a_device_that_takes_no_time_has_all(name: RivalName) -> None:
    layer = SplitLayer("conv", {"H": 8.0, "W": 8.0, "C": 64.0, "k": 3.0, "N": 64.0, "s": 1.0, "G": 1.0}, "N", 16)
    devices = (
        SplitDevice("free", (Formula(Posynomial(())),)),
        SplitDevice("cpu", (Formula(Posynomial((Monomial(1e-6, {"N": 1.0}),))),)),
    )
    split = split_by(name, SplitProblem((layer,), devices))
    assert split.steps is not None
    assert [step.shares for step in split.steps] == [(64, 0)]


def test_too_many_combinations_of_shared_limits_are_refused() -> None:
    cost = Posynomial((Monomial(1e-6, {"N": 1.0, "C": 1.0}),))
    layer = SplitLayer("fc", {"H": 1.0, "W": 1.0, "C": 25088.0, "k": 1.0, "N": 4096.0, "s": 1.0, "G": 1.0}, "C", 16)
    resources, limits = {"ALM": cost}, {"ALM": 1e9}
    limited = [
        SplitDevice(name, (Formula(cost),), Legs(cost), resources=resources, limits=limits, one_for_all=True)
        for name in "ab"
    ]
    with raised(BadInput, Error.SPACE_TOO_LARGE):
        split_by("integer", SplitProblem((layer,), (SplitDevice("cpu", (Formula(cost),)), *limited)))


@pytest.mark.parametrize("starts", [(0,), (0, 1)])
def test_communication_keeps_a_limit_for_all_layers(starts: tuple[int, ...]) -> None:
    """Each of two parts alone would fit."""
    devices = (device("host", 1), device("limited", 1, 1024, one_for_all=True))
    problem = SplitProblem((layer("a"), layer("b", channels=64)), devices, starts=starts)
    split = split_by("communication", problem)
    assert split.steps is None or not chain_faults(problem, split.steps)


@pytest.mark.parametrize("name", get_args(SplitMethod))
def test_no_method_gives_a_device_what_it_cannot_run(name: SplitMethod) -> None:
    """One that runs multiples of 16 is quick, but has no share of three input channels, nor of the last two filters."""
    if name == "geometric":
        pytest.importorskip("cvxpy")
        pytest.importorskip("clarabel")
    seconds = Posynomial((Monomial(1e-6, {"C": 1.0, "N": 1.0}),))
    picky = SplitDevice("picky", (Formula(seconds.times(0.01), 1, 16, 16),))
    problem = SplitProblem(
        tuple(
            SplitLayer(f"of {channels}", {"H": 8, "W": 8, "C": channels, "k": 3, "N": filters, "s": 1}, "N", 16)
            for channels, filters in ((3, 64), (64, 66))
        ),
        (picky, SplitDevice("any", (Formula(seconds),))),
    )
    split = split_by(name, problem)
    assert split.steps is not None
    assert chain_faults(problem, split.steps) == []
    first, *_ = split.steps
    assert (first.mode, first.shares) == ("whole" if name == "fused" else "split", (0, 64))
    assert split.steps[-1].shares[0] > 0
    assert alone_on_each(problem)["picky"] is None
