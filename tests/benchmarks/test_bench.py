"""`make bench`, from its first step to its last, writes over no result that is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarks import __main__
from benchmarks.__main__ import COMMANDS
from benchmarks.report.facts import ROOT
from benchmarks.report.results import read_csv
from shisha_rt.errors import BadInput


def test_all_that_writes_results_runs_as_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """`live_change` did not: with each `make bench` it wrote over what `docs/how-it-works.md` cites."""
    ran: dict[str, bool] = {}
    for command in COMMANDS:
        note = partial(lambda name, *_, quick=False, **__: ran.update({name: quick}), command.__name__)
        monkeypatch.setattr(__main__, command.__name__, note)
    __main__.app([], standalone_mode=False)
    assert [name for name, quick in ran.items() if not quick] == ["emulation"]  # which writes none
    assert len(ran) > 5


@pytest.mark.parametrize(
    "line",
    [
        "several --targets-ms x",
        "several --targets-ms nan,1",
        "several --targets-ms 1,2,3",
        "several --percents 90,",
        "several --patterns x",
        "cluster serve --hosts x",
        "cluster serve --hosts 1.5",
        "cluster serve --hosts 0",
        "splits_executed --parts x",
        "load --rivals x",
        "fuzz --target x",
    ],
)
def test_a_list_with_a_wrong_word_is_bad_input_before_anything_runs(line: str) -> None:
    _, option, _ = line.rsplit(" ", 2)
    with pytest.raises(BadInput, match=option):
        __main__.app(line.split(), standalone_mode=False)


def test_bad_input_has_a_line_and_its_exit_status() -> None:
    command = [sys.executable, "-m", "benchmarks", "several", "--targets-ms", "x"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)


@pytest.mark.long
@pytest.mark.timeout(2700)  # ten minutes of two cores, which other tests may have, too
def test_all_short_benchmarks_run(tmp_path: Path) -> None:
    """A copy of them, which has a folder of results of its own."""
    copy = shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("results"))
    subprocess.run([sys.executable, "-m", "benchmarks"], cwd=tmp_path, check=True)
    assert [path.name for path in (copy / "results").iterdir()] == ["quick"]
    # Of the first step, of one between and of the last.
    assert {row["model"] for row in read_csv(copy / "results" / "quick" / "race.csv")} == {"squeezenet"}
    assert {path.name for path in (copy / "results" / "quick").glob("*.md")} >= {"dcg.md", "shisha.md"}
