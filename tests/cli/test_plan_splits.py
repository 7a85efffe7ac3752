"""`plan --split`: the stages that it prints, and what it needs to be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.errors import Error
from shisha_rt.plan.form import plan_of
from tests.cli.conftest import Run
from tests.wording import says

HEAVY: dict[str, Any] = {
    "layers": [
        {"name": name, "weight": weight, "weight_bytes": 10 * weight}
        for name, weight in zip("abc", (1, 12, 2), strict=True)
    ],
    "places": [{"name": "p", "rank": 1}, {"name": "q", "rank": 1}],
    "time_s": [[1, 1], [12, 12], [2, 2]],
    "splits": [{"first": 1, "last": 1, "axis": "channels", "units": 48, "block": 4}],
    "shard_s": 0.0,
}


def file_of(folder: Path, **changes: object) -> Path:
    path = folder / "COSTS.json"
    path.write_text(json.dumps(HEAVY | changes))
    return path


@pytest.mark.parametrize("strategy", ["exact", "guided"])
def test_stages_carry_their_shares(run: Run, tmp_path: Path, strategy: str) -> None:
    path = file_of(tmp_path)
    answer = run("plan", "--costs", path, "--strategy", strategy, "--split", "--json").object
    assert answer["bottleneck_s"] == 8
    assert sorted(stage["split"]["shares"] for stage in answer["stages"] if "split" in stage) in (
        [[24, 24]] * 2,
        [[20, 28]] * 2,
        [[28, 20]] * 2,
    )
    plan = plan_of(answer["stages"])
    assert CostsEvaluator(parse_costs(path.read_bytes(), "")).measurement_of(plan).bottleneck_s == 8
    assert (answer["space_size"], answer["explored_fraction"]) == (None, None)
    whole = run("plan", "--costs", path, "--strategy", strategy, "--json").object
    assert whole["bottleneck_s"] == 13
    assert not any("split" in stage for stage in whole["stages"])


def test_what_is_proven(run: Run, tmp_path: Path) -> None:
    answer = run("plan", "--costs", file_of(tmp_path), "--strategy", "exact", "--split", "--json").object
    assert answer["space"].endswith("layers 1 split in any shares")
    assert answer["lower_bound_s"] <= answer["bottleneck_s"]
    picture = run("plan", "--costs", file_of(tmp_path), "--strategy", "exact", "--split").out
    assert "/48 channels)" in picture
    assert "layers 1 split in any" in picture


def test_one_layer_on_two_places(run: Run, tmp_path: Path) -> None:
    """More places than layers: without `--stages` all of them count."""
    changes = {
        "layers": HEAVY["layers"][1:2],
        "time_s": [[4, 12]],
        "splits": [HEAVY["splits"][0] | {"first": 0, "last": 0}],
    }
    argv = ("plan", "--costs", file_of(tmp_path, **changes), "--strategy", "exact", "--split", "--json")
    answer = run(*argv).object
    assert (answer["bottleneck_s"], answer["outcome"], answer["lower_bound_s"]) == (3, "optimal", 3)
    assert run(*argv, "--stages", 1).object["bottleneck_s"] == 4
    assert run(*argv, "--objective", "latency").object["latency_s"] == 3


def test_what_has_no_room_whole(run: Run, tmp_path: Path) -> None:
    places = [{"name": name, "rank": 1, "memory_bytes": 95} for name in "pq"]
    argv = ("plan", "--costs", file_of(tmp_path, places=places), "--strategy", "exact", "--json")
    assert run(*argv).object["outcome"] == "infeasible"
    assert run(*argv, "--split").object["bottleneck_s"] == 8


def test_costs_that_state_no_splits(run: Run, tmp_path: Path) -> None:
    path = file_of(tmp_path, splits=[])
    complaint = run("plan", "--costs", path, "--strategy", "exact", "--split").complaint_of(Error.COSTS_MISSING)
    assert complaint == says(f"shisha-rt: {path}: has no `splits`, … --split")
