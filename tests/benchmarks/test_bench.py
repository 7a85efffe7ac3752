"""`make bench` from its first step to its last."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report.facts import ROOT
from benchmarks.report.results import read_csv


@pytest.mark.long
@pytest.mark.timeout(2700)  # ten minutes of two cores, which other tests may have, too
def test_all_short_benchmarks_run(tmp_path: Path) -> None:
    """A copy of them, which has a folder of results of its own."""
    copy = shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("results"))
    subprocess.run([sys.executable, "-m", "benchmarks"], cwd=tmp_path, check=True)
    # Of the first step, of one between and of the last.
    raced = read_csv(copy / "results" / "race_short.csv")
    assert {row["model"] for row in raced} == {"squeezenet"}
    assert {path.name for path in (copy / "results").glob("*.md")} >= {"dcg.md", "shisha.md"}
