"""What a way to split costs over the exact one, and how that is summed up."""

from __future__ import annotations

import pytest

from benchmarks.splits.gap import AGAIN, GEOMETRIC, Found, layer_found, summaries
from benchmarks.splits.networks import CASES
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.geometric.geometric import GeometricSplit
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, SplitDevice, SplitLayer, SplitProblem

FEATURES = {"H": 112.0, "W": 112.0, "C": 3.0, "k": 1.0, "N": 16.0, "s": 1.0}


def found_by(fast: float, case: str, block: int, name: str = "conv1") -> Found:
    """One device 7 times the other's cost, as in the paper's Figure 3; the program gave the fast one so much of 16."""
    formulas = {of: (Formula(Posynomial((Monomial(each, {"N": 1.0}),))),) for of, each in (("f", 1.0), ("g", 7.0))}
    devices = tuple(SplitDevice(of, formula) for of, formula in formulas.items())
    objective, execution = CASES[case]
    problem = SplitProblem((SplitLayer(name, FEATURES, "N", block),), devices, objective, execution)
    program = GeometricSplit(Outcome.FEASIBLE, real=((fast, 16 - fast),)), 0.25
    return layer_found("network", case, problem, program, program)


def test_a_split_in_proportion_costs_three_quarters_more_in_sequence() -> None:
    result = found_by(14.0, "latency, in sequence", 1)
    assert (result.exact.blocks, result.exact.value, result.geometric) == ((16, 0), 16, (14, 2))
    assert result.gaps[GEOMETRIC] == result.gaps[AGAIN] == pytest.approx(28 / 16 - 1)
    assert result.seconds[GEOMETRIC] == 0.25
    beside = found_by(14.0, "latency, side by side", 1)
    assert (beside.exact.blocks, beside.gaps[GEOMETRIC], beside.gaps["proportional"]) == ((14, 2), 0.0, 0.0)


def test_the_same_program_is_rounded_to_blocks() -> None:
    result = found_by(9.0, "latency, side by side", 4)
    assert result.geometric in ((8, 8), (12, 4))
    assert result.gaps[GEOMETRIC] == pytest.approx(28 / 16 - 1)


def test_summed_up_by_case_and_block() -> None:
    results = [
        found_by(fast, case, block, name)
        for block in (16, 1)
        for case in CASES
        for fast, name in ((14.0, "good"), (8.0, "bad"))
    ]
    rows = list(summaries(results))
    assert [(row["case"], row["in blocks of"], row["layers"]) for row in rows] == [
        (case, block, 2) for block in (16, 1) for case in CASES
    ]
    assert rows[0]["geometric: median, worst"] == "0.00%, 0.0%"
    assert rows[3]["geometric: median, worst"] == f"{(12 / 16 + 48 / 16) / 2:.2%}, 300.0%"
    assert rows[3]["geometric's worst"] == "network bad"
