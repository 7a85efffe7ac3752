"""The programs that the page for researchers prints do what it says."""

from __future__ import annotations

import random
import re
import runpy
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.papers.shisha.arrangement import space_of
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.planner.loop import run
from tests.planner.evaluators import costs_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "research.md"
SEARCH, COMPARISON = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COSTS: Final = """{"layers": [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}],
    "places": [{"name": "p", "rank": 1}, {"name": "q", "rank": 1}], "time_s": [[1, 1], [1, 1]]}"""


def test_the_rival_climbs_to_a_plan_without_a_better_neighbour(tmp_path: Path) -> None:
    file = tmp_path / "steepest.py"
    file.write_text(SEARCH)
    steepest = runpy.run_path(str(file), run_name=file.stem)["Steepest"]
    space = space_of(4, ["p0", "p1"], stage_count=2)
    result = run(
        Search(steepest(space, random.Random(0)), Limit()), SimulatedEvaluator(costs_of([[1, 2]] * 4, ranks=(1, 2)))
    )
    assert result.reason.endswith("no neighbour is better")
    assert result.measurement.bottleneck_s == 3  # three layers on the fast place, against two of 2 s


def test_the_comparison_has_a_line_for_each_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "costs.json").write_text(COSTS)
    (tmp_path / "steepest.py").write_text(SEARCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(COMPARISON, "research.md", "exec"), {})
    names, times_ms = zip(*(line.split()[:2] for line in capsys.readouterr().out.splitlines()), strict=True)
    assert {"shisha", "guided", "steepest"} < set(names)
    assert set(times_ms) == {"1000.00"}  # two layers of a second on two alike places
