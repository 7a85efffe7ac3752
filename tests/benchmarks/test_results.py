"""What stands in a result's file, and which files are to be taken again."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.__main__ import app
from benchmarks.cluster import serve
from benchmarks.live.branches import SIDES, alone_row
from benchmarks.live.goodput import goodput_row
from benchmarks.live.live_change import Change, Run, change_rows, show_changes
from benchmarks.live.load import AtRate, Step, step_row
from benchmarks.live.several import AtLoad
from benchmarks.partitiontuner import repeat
from benchmarks.partitiontuner.board import NETWORKS
from benchmarks.report import results
from benchmarks.report.facts import as_typed, commits_since, facts, git, host
from benchmarks.report.headers import header, stale_rows, with_kept
from benchmarks.report.readme import alone_table, branches_table, hosts_table, with_table
from benchmarks.report.report import Report
from benchmarks.report.results import Spread, read_csv, save_csv
from benchmarks.rigs.asking import Heard
from benchmarks.robust import campaign
from shisha_rt.errors import BadInput

HERE = {"cpu": "A", "kernel": "1"}


def test_a_file_says_which_code_which_machine_when_and_how_to_repeat_it(tmp_path: Path) -> None:
    about = facts()
    path = save_csv("x", [{"model": "a, b", "ms": 1.23456, "not measured": None}], about, tmp_path)
    assert path.read_text().startswith(f"# commit: {about['commit']}\n# date: ")
    assert header(path) == about
    assert header(path).items() >= host().items()
    assert read_csv(path) == [{"model": "a, b", "ms": "1.235", "not measured": ""}]


def test_a_header_tells_all_runs_that_its_rows_are_from(tmp_path: Path) -> None:
    path, begun = tmp_path / "x.csv", {"commit": "c1", "date": "d1", "repeat": "run a,b,c"}
    save_csv("x", *with_kept(path, "model", [{"model": name, "ms": 1} for name in "abc"], begun), tmp_path)
    for run, (commit, names) in enumerate((("c1", "b"), ("c2", "c"), ("c2", "d"))):
        about = {"commit": commit, "date": f"d{run + 2}", "repeat": f"run {names}"}
        for _ in range(2):  # as after each network of a run
            rows, facts_of_all = with_kept(path, "model", [{"model": names, "ms": 2}], about)
            save_csv("x", rows, facts_of_all, tmp_path)
    by_row = [(row["model"], row["commit"]) for row in read_csv(path)]
    assert by_row == [("d", "c2"), ("c", "c2"), ("b", "c1"), ("a", "c1")]
    assert header(path) == {
        "commit": "c2",
        "date": "d4",
        "repeat": "run d",
        "rows of c2": "d3, run c",
        "rows of c1": "d1, run a,b,c; d2, run b",
    }


def test_a_command_is_told_as_it_was_typed() -> None:
    words = ["race", "--models", "a,b", "--server-python", "mosec=/x/python", "--rounds", "3"]
    assert as_typed(words) == "python -m benchmarks race --models a,b --server-python PATH --rounds 3"


def test_every_result_that_is_kept_says_so() -> None:
    kept = sorted(results.RESULTS.glob("*.csv"))
    assert [path.name for path in kept if not header(path).keys() >= {"commit", "date", "repeat", *host()}] == []


def test_the_command_of_a_part_writes_over_nothing_else_that_is_kept() -> None:
    """That of an hour's campaign wrote over the usual one, that of one network over hosts over all of them."""
    names: dict[str, Callable[[Any], str]] = {
        "campaign": lambda given: campaign.file_of(given["minutes"], ipc=given["ipc"], clock=given["clock"]),
        "cluster serve": lambda given: serve.file_of(given["models"]),
    }
    wrong = []
    for path in results.RESULTS.glob("*.csv"):
        words = shlex.split(header(path)["repeat"])[3:]
        for name, file_of in names.items():
            command: Any = typer.main.get_command(app)
            if words[: len(parts := name.split())] == parts:
                for part in parts:
                    command = command.commands[part]
                given = command.make_context(name, words[len(parts) :]).params
                wrong += [path.stem] * (file_of(given) != path.stem)
    assert wrong == []


def test_some_networks_of_a_paper_are_a_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickest look wrote over the page that is kept."""
    folders: list[Path] = []
    monkeypatch.setattr(repeat, "cases", lambda *_: [])

    def save(results_so_far: repeat._Found) -> dict[str, list[results.Row]]:
        folders.append(results_so_far.report.folder)
        return {}

    monkeypatch.setattr(repeat._Found, "save", save)
    for networks in ("squeezenet,resnet18", ",".join(NETWORKS)):
        repeat.partitiontuner(networks, rounds=0, answers=0, graphs=0, sets=0, lines=0)
    assert folders == [results.QUICK_RESULTS, results.RESULTS]


HEARD = Heard([0.01, 0.02], 1, 0, 0)
AT_RATE = AtRate("net", 80.0, 10.0, [{"target": HEARD}, {"target": HEARD}])
STEPS = [Step("throughput", 0.0, 1.0), Step("latency", 1.0, 2.0)]
FOLLOWED = [
    {"kind": "objective_changed", "time_s": step.at_s, "objective": step.objective, "plan": "p"} for step in STEPS
]
CHANGED = Run(
    "net",
    tuple(float(at_s) for at_s in range(100)),
    (Change("one layer", 48.5, 49.5, ({"build_s": 0.01, "private_bytes": 0},)),),
)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("branches_alone", [alone_row("net", [dict.fromkeys(SIDES, 1.0)], "a plan")]),
        ("goodput", [goodput_row(AT_RATE, "target", 0.05, 1.0)]),
        ("live_change", list(change_rows(CHANGED))),
        ("load", [AT_RATE.row("target")]),
        ("load_steps", [step_row("net", STEPS, FOLLOWED, [HEARD])]),
        ("several", AtLoad("walk", 90.0, "a side", 10.0, [HEARD, HEARD], 0, []).rows("ab", [9.0, 9.0], [1.0, 1.0])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_kept_file_has_the_columns_that_are_written_now(tmp_path: Path, name: str, rows: list[results.Row]) -> None:
    kept, anew = results.RESULTS / f"{name}.csv", save_csv(name, rows, {}, tmp_path)
    assert list(read_csv(kept)[0]) == list(read_csv(anew)[0])


def test_no_change_within_the_stream_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        show_changes([Run("net", CHANGED.answered_s, ())], Report("live_change", quick=True))


def test_a_quick_run_writes_over_no_result_that_is_kept() -> None:
    quick = results.QUICK_RESULTS
    asked = subprocess.run(["git", "check-ignore", "-q", quick / "dcg.md"], cwd=results.RESULTS, check=False)
    assert (asked.returncode, Report("").folder) == (0, results.RESULTS)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in results.RESULTS.parent.rglob("*.py")}
    saving = {name for name, text in texts.items() if '"--quick"' in text and re.search("save_|Report[(]", text)}
    assert saving > {"pim_board", "race", "live_change"}
    assert [name for name in saving if "quick=quick)" not in texts[name]] == []


def test_a_figure_of_several_rounds_has_its_quartiles(tmp_path: Path) -> None:
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)
    spread = Spread.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert spread == Spread(2.0, 3.0, 4.0)
    assert str(spread) == "3 (2 to 4)"
    rows: list[results.Row] = [{"model": "a", "ms": None, "n": 1}, {"model": "b", "ms": spread, "n": 2}]
    assert save_csv("x", rows, {}, tmp_path).read_text().splitlines() == [
        'model,ms,"ms, lower quartile","ms, upper quartile",n',
        "a,,,,1",
        "b,3,2,4,2",
    ]


def test_a_result_is_stale_by_its_code_or_its_machine() -> None:
    current = git("rev-parse", "HEAD")
    if current is None or commits_since(f"{current}~1") is None:
        pytest.skip("not in a repository with a past")
    written = {"commit": current, "date": "d", "repeat": "r", **HERE}
    headers = {
        "current.csv": written,
        "a.csv": {**written, "kernel": "2"},
        "b.csv": {**written, "kernel": "2"},
        "changed.csv": {**written, "commit": f"{current} and changes"},
        "silent.csv": HERE,
    }
    assert [(row["files"], row["changes to the code since"], row["machine"]) for row in stale_rows(headers, HERE)] == [
        ("a.csv b.csv", "", "other: 2"),
        ("changed.csv", "0", "this one"),
        ("silent.csv", "unknown", "this one"),
    ]


def test_the_table_of_single_frames_has_a_row_for_each_pause(tmp_path: Path) -> None:
    took = {side: Spread.of([ms]) for side, ms in [("latency", 5.0), ("auto", 6.0), ("ort_threads", 4.0)]}
    rows: list[results.Row] = [
        {"model": "squeezenet", "pause ms": pause_ms, **took, "openvino_latency": Spread.of([8.0])}
        | {"latency / best engine": Spread(1.2, 1.25, 1.5), "auto / best engine": Spread.of([1.5])}
        for pause_ms in (0.0, 20.0)
    ]
    made_by = {"commit": "c", "date": "2026-01-02 03:04 UTC", "cpu": "a processor"}
    save_csv("alone", rows, made_by, tmp_path)
    _, _, none, long, _, source = alone_table(tmp_path).splitlines()
    times = "5.00 ms | 6.00 ms | 4.00 ms | 8.00 ms | 1.25 (1.20 to 1.50) | 1.50 (1.50 to 1.50) |"
    assert none == f"| SqueezeNet | 0 ms | {times}"
    assert long == f"| SqueezeNet | 20 ms | {times}"
    assert source.endswith("commit c, a processor.")


def test_the_table_of_branches_says_what_they_can_gain_and_did(tmp_path: Path) -> None:
    made_by = {"commit": "c", "date": "2026-01-02 03:04 UTC"}
    gains = [("squeezenet", "layers", 1.0), ("squeezenet", "openvino", 1.066), ("mine", "layers", 1.5)]
    rows: list[results.Row] = [{"model": model, "layers": form, "whole / critical": g} for model, form, g in gains]
    save_csv("branches", rows, made_by, tmp_path)
    ratio = Spread(1.25, 2.0, 2.5)
    mine = {"model": "mine", "branches / better": ratio, "latency / better": Spread.of([1.0])}
    squeezenet = {"model": "squeezenet", "branches / better": None, "latency / better": ratio}
    save_csv("branches_alone", [mine, squeezenet], made_by, tmp_path)
    _, _, first, second, _, source = branches_table(tmp_path).splitlines()
    assert first == "| SqueezeNet | 1.00 | not measured | 1.07 | - | 0.50 (0.40 to 0.80) |"
    assert second == "| mine | 1.50 | not measured | not measured | 0.50 (0.40 to 0.80) | 1.00 (1.00 to 1.00) |"
    assert source.count("commit c") == 2


def test_the_table_of_hosts_says_what_does_not_fit(tmp_path: Path) -> None:
    of = {"network": "resnet50", "hosts": 3, "memory": None, "over": None}
    none, rate = Spread.of([2.0]), Spread(1.25, 1.5, 2.0)
    rows: list[results.Row] = [
        of | {"side": "daemon_shared", "frames/s": Spread.of([12.0]), "rate over it": rate},
        of | {"side": "serve_handle", "frames/s": Spread.of([8.0]), "rate over it": None},
        of | {"side": "daemon_shared", "memory": "60 MB each", "frames/s": none, "rate over it": None},
    ]
    save_csv("cluster_serve", rows, {"commit": "c", "date": "2026-01-02 03:04 UTC"}, tmp_path)
    _, _, free, tight, _, source = hosts_table(tmp_path).splitlines()
    assert free == "| ResNet-50 | 3 | 12.0 | not measured | 8.0 | not measured | 1.50 (1.25 to 2.00) | - |"
    assert tight == "| ResNet-50, 60 MB each | 3 | 2.0 | does not fit | does not fit | does not fit | - | - |"
    assert source.endswith("commit c.")


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(BadInput, match="expected a table of results"):
        with_table("# A page\n", "| |", "race")
