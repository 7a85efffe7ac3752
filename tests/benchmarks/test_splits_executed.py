"""What the benchmark of executed splits tells daemons to do, and what it makes of what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.report.results import Row, Spread
from benchmarks.splits.alone import write_convolution, write_product
from benchmarks.splits.executed import ALONE, LIVE, ON_BOARD, SLOWED, findings
from benchmarks.splits.plans import Shared, nearest_shares, plan_with, way_of
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.split import Splittable
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

PLAIN = Splittable(1, 1, "channels", 64, 16, ("y",))
SUMMED = Splittable(2, 2, "inputs", 100, 1, ("z",), summed=True, joined=True)
LAST = Splittable(4, 4, "columns", 10, 1, ("w",), joined=True)
WAYS = (PLAIN, SUMMED, LAST)
RULES = PlanRules(
    layer_count=5,
    places=("a", "b"),
    legal_cuts=frozenset(range(4)),
    operator_counts=(1,) * 5,
    splits={((way.first, way.last), way.axis): way for way in WAYS},
)


def _in_halves(way: Splittable) -> Shared:
    return Shared(way, nearest_shares(way, (0.5, 0.5)), ("a", "b"))


@pytest.mark.parametrize("ways", [WAYS, (PLAIN,), (SUMMED,), (LAST,), (PLAIN, SUMMED), (SUMMED, LAST), ()])
def test_any_layers_can_be_told_to_be_split(ways: tuple[Splittable, ...]) -> None:
    plan = plan_with(5, "a", [_in_halves(way) for way in ways])
    assert RULES.problems(plan) == []
    assert {stage.split.span for stage in plan.stages if stage.split is not None} == {(w.first, w.last) for w in ways}


def test_a_join_goes_on_with_the_layers_behind_it() -> None:
    plan = plan_with(5, "a", [_in_halves(SUMMED)])
    assert [(stage.first, stage.last, stage.after) for stage in plan.stages] == [
        (0, 1, ()),
        (2, 2, (0,)),
        (2, 2, (0,)),
        (2, 4, (1, 2)),
    ]
    assert plan_with(5, "a", []) == Plan.of([(0, 4, "a")])


def test_shares_are_whole_blocks_near_the_fractions() -> None:
    assert nearest_shares(PLAIN, (0.5, 0.5)) == (32, 32)
    assert nearest_shares(PLAIN, (0.99, 0.01)) == (48, 16)
    assert nearest_shares(PLAIN, (0.01, 0.01, 0.98)) == (16, 16, 32)
    assert nearest_shares(SUMMED, (2 / 3, 1 / 3)) == (67, 33)
    assert way_of(WAYS, 2, "inputs") is SUMMED


def test_a_product_is_one_row_of_the_size_that_is_told(tmp_path: Path) -> None:
    write_product(12, 7, tmp_path / "gemm.onnx")
    graph = read_model(tmp_path / "gemm.onnx").graph
    assert (graph.inputs[0].shape, graph.outputs[0].shape) == ((1, 12), (1, 7))


def test_a_convolution_has_the_features_that_are_told(tmp_path: Path) -> None:
    features = {"H": 9, "W": 7, "C": 5, "k": 3, "N": 4, "s": 2}
    write_convolution(features, tmp_path / "conv.onnx")
    graph = read_model(tmp_path / "conv.onnx").graph
    assert (graph.inputs[0].shape, graph.outputs[0].shape) == ((1, 5, 18, 14), (1, 4, 9, 7))


def test_the_page_says_what_is_within_the_aims_and_what_is_not() -> None:
    shard = {"network": "m", "layer": "n0", "place": "fpga", "share": "8 of 64 rows", "predicted ms": 2.0}
    board: list[Row] = [
        {**shard, "error %": 1.0, "computed here ms": 0.1},
        {**shard, "error %": -60.5, "computed here ms": 1.5},
    ]
    counted, furthest = findings(ON_BOARD, board)
    assert counted.startswith("- Of 2 shards and joins 1 are within 5% of what was")
    assert furthest == "- m n0 on fpga (8 of 64 rows): -60.5%, computing took 75% of its time."
    ratios = [("big", 9.0, 1.3), ("small", 1.0, 4.0), ("fine", 6.0, 0.8)]
    layers: list[Row] = [
        {
            "layer": name,
            "one core ms": Spread.of([ms]),
            "split / team": Spread.of([ratio]),
            "split / ORT, 2 threads": Spread.of([1.0]),
        }
        for name, ms, ratio in ratios
    ]
    assert findings(ALONE, layers) == [
        "- At most 1.1 times team: 1 of 2 layers over 5 ms; not big (1.30).",
        "- At most 1.1 times ORT, 2 threads: 2 of 2 layers over 5 ms.",
    ]
    off = {"predicted: off %, median": 28.0, "corrected: off %, median": 4.0}
    on_slowed: list[Row] = [
        {**off, "speed": 0.4, "corrected: off %, median": None},
        {**off, "speed": 0.4},
        {**off, "speed": 0.4, "corrected: off %, median": 12.0},
        {**off, "speed": 1.0},
    ]
    assert findings(SLOWED, on_slowed[:1]) == []
    (line,) = findings(SLOWED, on_slowed)
    assert re.findall(r"\d+", line) == ["10", "1", "2", "8", "28"]  # percent, plans within it, of so many, medians
    counts = {"sent": 9, "answered": 9, "lost": 0, "refused": 0, "out of order": 0, "different": 0}
    served: list[Row] = [{"case": "m", **counts}] * 2
    (frames,) = findings(LIVE, served)
    assert frames.startswith("- Frames: 18 sent, 18 answered, 0 lost")
