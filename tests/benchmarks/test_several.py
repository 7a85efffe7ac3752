"""How two models' loads change, and what is made of what was heard."""

from __future__ import annotations

import pytest

from benchmarks.live.several import PATTERNS, AtLoad, arrivals, segments
from benchmarks.rigs.asking import Heard


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_lasts_as_long_as_it_is_to_and_leaves_each_model_something(pattern: str) -> None:
    shared = segments(pattern, 62.0, seed=3)
    assert sum(long_s for long_s, _ in shared) == pytest.approx(62.0)
    assert shared == segments(pattern, 62.0, seed=3)
    assert all(0.1 <= part <= 0.9 for _, part in shared)
    assert len({part for _, part in shared}) > 1


def test_arrivals_follow_the_parts_and_are_the_same_for_all_sides() -> None:
    shared = [(10.0, 0.8), (10.0, 0.2)]
    both = arrivals(shared, [1000.0, 100.0], "seed")
    assert both == arrivals(shared, [1000.0, 100.0], "seed")
    assert all(at_s == sorted(at_s) and at_s[-1] < 20.0 for at_s in both)
    counts = [[sum(begun_s <= at < begun_s + 10.0 for at in at_s) for begun_s in (0.0, 10.0)] for at_s in both]
    assert counts[0] == [pytest.approx(8000, rel=0.1), pytest.approx(2000, rel=0.1)]
    assert counts[1] == [pytest.approx(200, rel=0.5), pytest.approx(800, rel=0.2)]


def test_goodput_is_what_comes_within_the_target_in_parts_of_what_a_model_gets_alone() -> None:
    heard = [Heard([0.01] * 300 + [0.2] * 100, 100, 0, 0), Heard([0.3] * 40, 0, 1, 2)]
    first, second, both = AtLoad("walk", 90.0, "a side", 10.0, heard, 3, [2.0, 0.5, 1.0]).rows(
        ["a", "b"], [100.0, 8.0], [0.05, 0.4]
    )
    assert (first["in time/s"], first["of the machine"], first["refused %"]) == (30.0, 0.3, 20.0)
    assert (second["in time/s"], second["of the machine"], second["failed or lost"]) == (4.0, 0.5, 3)
    assert (both["of the machine"], both["core moves"], both["s until a core moves"]) == (0.8, 3, 1.0)
    assert first.keys() == second.keys() == both.keys()
