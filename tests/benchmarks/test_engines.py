"""What the benchmarks of devices make of costs and times: placements, predictions, gains and their tables."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dcg.board import ALS, CPU_P_FIRST, DUET, OPT, PIM_FIRST
from benchmarks.live.engines import Gain, gain, transfers_s, verdicts
from benchmarks.live.pim_board import AS_RUN, SCHEMES, Executed, executed_rows
from benchmarks.report.results import Spread
from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.one_place import by_order, predicted_s
from shisha_rt.cache import cache_folder
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.device import Device, Transfer
from shisha_rt.placement.stage_problem import place_stage, stage_problem
from tests.costs.networks import chain

GRAPH = chain([3, 4, 4, 4])  # Conv, Relu, three times
FAST = Device("fast", "fast.toml", "onnxruntime", "fast", "fp32", transfer_in=Transfer(0.5, 1e18))
WIDE = replace(FAST, name="wide", source="wide.toml", memory="wide")
COSTS = OperatorCosts((FAST, WIDE), np.array([[1, 9], [9, 2], [9, 3], [9, 4], [math.inf, 5], [6, 9]], dtype=float))
BEST = ("fast", "wide", "wide", "wide", "wide", "fast")


def test_each_operator_is_on_the_first_device_that_can_run_it() -> None:
    assert by_order(COSTS, (0, 1)) == ("fast", "fast", "fast", "fast", "wide", "fast")
    assert by_order(COSTS, (1, 0)) == ("wide",) * 6


def test_a_placement_is_predicted_as_the_solver_counts_it() -> None:
    problem = stage_problem(GRAPH, 0, 5, COSTS)
    best = place_stage(GRAPH, 0, 5, COSTS)
    assert best.devices == BEST
    # The network's input enters for nothing; two tensors change engines, each for half a second.
    assert predicted_s(problem, best.devices) == best.cost_s == pytest.approx(1 + 2 + 3 + 4 + 5 + 6 + 2 * 0.5)
    assert predicted_s(problem, ("wide",) * 6) == pytest.approx(9 + 2 + 3 + 4 + 5 + 9)
    assert predicted_s(problem, ("fast",) * 6) == math.inf
    assert transfers_s(COSTS, best) == pytest.approx(2 * 0.5)


def test_the_gain_is_over_the_engine_that_is_better_on_the_whole() -> None:
    rounds = [
        {"fast": 4.0, "wide": 3.0, "placement": 2.0},
        {"fast": 8.0, "wide": 6.0, "placement": 5.0},  # a slow second
        {"fast": 2.0, "wide": 3.0, "placement": 3.0},
    ]
    outcome = gain(rounds, ("wide", "fast"))
    assert outcome == Gain(Spread((1 + 6 / 5) / 2, 6 / 5, (6 / 5 + 3 / 2) / 2), itself=None)
    assert outcome.verdict == "gain"


@pytest.mark.parametrize(
    ("placement_s", "devices", "verdict"),
    [
        ((2.6, 2.5, 2.7), ("fast", "fast"), "noise"),  # 15% faster than itself
        ((2.6, 2.5, 2.7), ("wide", "wide"), "noise"),  # faster than the better engine, and yet the other
        ((2.6, 2.5, 2.7), ("fast", "wide"), "gain"),
        ((2.6, 3.5, 2.7), ("fast", "wide"), "within noise"),
        ((3.6, 3.5, 3.7), ("fast", "wide"), "loss"),
        ((3.6, 3.5, 3.7), ("wide", "wide"), "loss"),  # one engine, but not the better one
    ],
)
def test_a_gain_is_more_than_the_same_engine_gains_on_itself(
    placement_s: tuple[float, ...], devices: tuple[str, ...], verdict: str
) -> None:
    rounds = [{"fast": 3.0, "wide": 4.0, "placement": seconds} for seconds in placement_s]
    assert gain(rounds, devices).verdict == verdict


def test_aims_are_counted() -> None:
    def narrow(ratio: float) -> Spread:
        return Spread(ratio - 0.01, ratio, ratio + 0.01)

    gains = [*(Gain(narrow(ratio), None) for ratio in (0.99, 1.2, 0.95)), Gain(narrow(1.06), narrow(1.135))]
    mixed, not_slower, faster, noise = verdicts(gains)
    assert "3 of 4" in mixed
    assert ": 2 (" in not_slower
    assert ": 1 (" in faster
    assert "13.5%" in noise
    wide = verdicts([Gain(Spread(0.9, 1.3, 1.5), None)])
    assert len(wide) == 3
    assert ": 0 (" in wide[2]


def test_schemes_on_the_board_are_held_against_als_and_the_optimum() -> None:
    measured_s = {
        8: {CPU_P_FIRST: 4.0, PIM_FIRST: 6.0, DUET[50]: 2.2, ALS: 2.0, OPT: 1.5, AS_RUN: 1.0},
        64: {CPU_P_FIRST: 3.0, PIM_FIRST: 9.0, DUET[50]: 3.3, ALS: 3.0, OPT: 2.5, AS_RUN: 2.0},
    }
    results = [
        Executed(
            "bert",
            p,
            scheme,
            segments=3,
            on_paper_s=1.0,
            predicted_s=times_s[scheme] / 1.25,
            measured_s=times_s[scheme],
        )
        for p, times_s in measured_s.items()
        for scheme in SCHEMES
    ]
    rows = list(executed_rows(results))
    assert len(rows) == 12
    assert all(row["error %"] == pytest.approx(25) for row in rows)
    by_key = {(row["p"], row["scheme"]): row for row in rows}
    assert by_key[64, PIM_FIRST]["ALS over it"] == 3.0
    assert by_key[8, PIM_FIRST]["optimum over it"] == 6.0


def test_a_fresh_cache_is_empty_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with fresh_cache():
        inside = Path(os.environ["XDG_CACHE_HOME"])
        assert cache_folder().parent == inside != tmp_path
        assert not any(inside.iterdir())
    assert not inside.exists()
    assert cache_folder().parent == tmp_path
    monkeypatch.delenv("XDG_CACHE_HOME")
    with fresh_cache():
        pass
    assert "XDG_CACHE_HOME" not in os.environ
