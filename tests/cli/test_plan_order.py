"""`plan --order`: by how much another order of layers is better, the plan that has it, and where that is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, rewritten
from tests.wording import says

READ_BY = {"in": (-1, [0]), "a": (0, [1, 3]), "b": (1, [2]), "c": (2, [4]), "d": (3, [4]), "e": (4, [5])}
"""Tensors: a forks to layers 1 and 2, and to 3; 4 joins them."""


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """Two places, the same but for their names."""
    file = tmp_path / "fork.json"
    costs: dict[str, Any] = {
        "layers": [{"name": name, "weight": 1} for name in "abcde"],
        "places": [{"name": name, "rank": 1} for name in "pq"],
        "time_s": [[time_s] * 2 for time_s in (1, 1, 1, 3, 2)],
        "tensors": [
            {"name": name, "size_bytes": 1, "made": made, "readers": readers}
            for name, (made, readers) in READ_BY.items()
        ],
    }
    file.write_text(json.dumps(costs))
    return file


ORDER = ("order", "order_gain", "order_gain_most", "order_reason")


def order_of(run: Run, *arguments: object) -> list[Any]:
    answer = run("plan", *arguments, "--json").object
    return [answer[key] for key in ORDER]


def test_the_files_order_and_what_another_would_bring(run: Run, fork: Path) -> None:
    answer = run("plan", "--costs", fork, "--strategy", "exact", "--json").object
    assert (answer["bottleneck_s"], answer["lower_bound_s"], answer["outcome"]) == (5, 5, "optimal")
    assert order_of(run, "--costs", fork, "--strategy", "exact") == ["file", 1.25, 1.25, None]
    assert order_of(run, "--costs", fork, "--strategy", "guided") == ["file", 1.25, 1.25, None]
    words = run("plan", "--costs", fork, "--strategy", "exact").out
    assert "of the layers: 1.25 times as fast (--order best)" in words


def test_the_best_order(run: Run, fork: Path) -> None:
    ran = run("plan", "--costs", fork, "--strategy", "exact", "--order", "best", "--json")
    assert ran.status == 0
    assert ran.object["stages"] == [
        {"layers": [[0, 0], [3, 3]], "places": ["p"], "service_s": 4.0},
        {"layers": [[1, 2], [4, 4]], "places": ["q"], "service_s": 4.0},
    ]
    assert [ran.object[key] for key in ORDER] == ["best", 1.25, 1.25, None]
    assert (ran.object["bottleneck_s"], ran.object["lower_bound_s"], ran.object["outcome"]) == (4, 4, "optimal")
    assert ran.object["space"] == says("chains of stages, …")
    assert ran.object["space_size"] is None
    words = run("plan", "--costs", fork, "--strategy", "exact", "--order", "best").out
    assert "layers 0, 3" in words
    assert "1.25 times as" in words


def test_where_no_order_is_better(run: Run, fork: Path) -> None:
    """With copies two places alike share all there is."""
    assert order_of(run, "--costs", fork, "--strategy", "exact", "--replicate") == ["file", 1, 1, None]
    ran = run("plan", "--costs", fork, "--strategy", "exact", "--replicate", "--order", "best", "--json").object
    assert [stage["places"] for stage in ran["stages"]] == [["p", "q"]]
    assert "no better order" in run("plan", "--costs", fork, "--strategy", "exact", "--stages", 1).out


def test_where_only_another_order_has_room(run: Run, fork: Path) -> None:
    layers = [{"name": str(size), "weight": 1, "weight_bytes": size} for size in (2, 1, 4, 3, 0)]
    costs = rewritten(fork, layers=layers, places=[{"name": name, "rank": 1, "memory_bytes": 5} for name in "pq"])
    ran = run("plan", "--costs", costs, "--strategy", "exact", "--json")
    assert (ran.status, ran.object["order_gain"]) == (1, None)
    assert ran.object["order_reason"] == says("… layers in the file's order, but one …")
    ran = run("plan", "--costs", costs, "--strategy", "exact", "--order", "best", "--json")
    assert (ran.status, ran.object["outcome"], ran.object["bottleneck_s"]) == (0, "optimal", 4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tensors": []}, "… layer reads what (`tensors`)"),
        ({"transfer_s": [0, 0, 0.5, 0]}, "`transfer_s` says what … the file's order only"),
    ],
)
def test_what_is_not_known_says_why(run: Run, fork: Path, changes: dict[str, Any], reason: str) -> None:
    costs = rewritten(fork, **changes)
    assert order_of(run, "--costs", costs, "--strategy", "exact") == ["file", None, None, says(reason)]
    ran = run("plan", "--costs", costs, "--strategy", "exact", "--order", "best")
    expected = f"shisha-rt: {costs}: --order best: {reason}; … order\n"
    assert (ran.status, ran.err) == (2, says(expected))


@pytest.mark.parametrize(
    ("strategy", "options", "reason"),
    [
        ("seed", [], "… looked for with --strategy seed"),
        ("shisha", [], "… looked for with --strategy shisha"),
        ("exact", ["--objective", "latency"], "… looked for with --objective latency"),
    ],
)
def test_what_is_not_looked_for(run: Run, fork: Path, strategy: str, options: list[str], reason: str) -> None:
    assert order_of(run, "--costs", fork, "--strategy", strategy, *options) == ["file", None, None, says(reason)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--strategy", "seed"], "not with --strategy seed, expected --strategy exact"),
        (["--strategy", "guided"], "not with --strategy guided, expected --strategy exact"),
        (["--strategy", "exact", "--split"], "not with --split, …"),
        (
            ["--strategy", "exact", "--objective", "latency"],
            "not with --objective latency, …",
        ),
    ],
)
def test_what_does_not_go_with_it(run: Run, fork: Path, options: list[str], message: str) -> None:
    ran = run("plan", "--costs", fork, "--order", "best", *options)
    assert (ran.status, ran.err) == (2, says(f"shisha-rt: --order best: {message}\n"))


def test_of_a_model_it_is_known_what_reads_what(run: Run) -> None:
    answer = run("plan", "zoo:squeezenet", "--machine", "this-machine", "--strategy", "exact", "--json").object
    assert answer["order_reason"] is None
    assert answer["order_gain"] >= 1
