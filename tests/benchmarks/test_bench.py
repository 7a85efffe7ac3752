"""`make bench` from its first step to its last."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import app
from benchmarks.report import results
from shisha_rt.model.zoo import SHIPPED


@pytest.mark.long
@pytest.mark.timeout(2700)  # a quarter of an hour of two cores, which other tests may have, too
def test_all_short_benchmarks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    app([], standalone_mode=False)
    # Of the first step, of one between and of the last.
    answered = results.read_csv(tmp_path / "answers.csv")
    assert {row["model"] for row in answered} >= set(SHIPPED)
    assert {path.name for path in tmp_path.glob("*.md")} >= {"dcg.md", "shisha.md"}
