"""ODIN's walk and least-loaded scheduling, worked by hand: who takes a layer, and when they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from shisha_rt.costs.costs import CostPlace
from shisha_rt.papers.shisha.rebalancing import LeastLoaded, Odin
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.tune import ShishaTuner
from tests.planner.evaluators import ScriptedEvaluator
from tests.wording import says

PLACES = [CostPlace(name, rank, None) for name, rank in (("a", 2), ("b", 1), ("c", 2), ("d", 2))]
START = Plan.of([(0, 1, "a"), (2, 3, "b"), (4, 5, "c"), (6, 7, "d")])


def tuned(
    walk: type[ShishaTuner], script: Mapping[str, Sequence[float]], *, band: float = 0.0, alpha: int = 10
) -> Result:
    start = Plan.of([(0, 1, "a"), (2, 7, "b")])
    return run(walk.of(start, PLACES[:2], alpha=alpha), ScriptedEvaluator(script, band))


def takes(walk: type[ShishaTuner], service_s: tuple[float, ...], start: Plan = START) -> str:
    """The plan after one move."""
    tuner = walk.of(start, PLACES, order=("a", "b", "c", "d"))
    _, proposal = tuner.step(tuner.init()[0], Measurement(service_s, band=0.0, frames=1, took_s=1.0))
    return str(proposal.plan)


class TestWhoTakesTheLayer:
    def test_the_least_loaded_wherever_and_however_slow_it_is(self) -> None:
        assert takes(LeastLoaded, (9, 2, 3, 1)) == "a: 0-0 | b: 1-2 | c: 3-4 | d: 5-7"
        assert takes(LeastLoaded, (9, 1, 3, 2)) == "a: 0-0 | b: 1-3 | c: 4-5 | d: 6-7"

    def test_of_equals_the_nearest(self) -> None:
        assert takes(LeastLoaded, (1, 9, 5, 1)) == "a: 0-2 | b: 3-3 | c: 4-5 | d: 6-7"

    def test_odin_s_is_the_lightest_on_the_side_that_has_less_to_do(self) -> None:
        # The lightest of all is `d`, but `a` has less to do than `b` and `d` together.
        assert takes(Odin, (5, 3, 9, 1)) == "a: 0-1 | b: 2-3 | c: 4-4 | d: 5-7"
        assert takes(Odin, (2, 1, 9, 4)) == "a: 0-1 | b: 2-4 | c: 5-5 | d: 6-7"
        assert takes(Odin, (3, 9, 2, 2)) == "a: 0-2 | b: 3-3 | c: 4-5 | d: 6-7"

    def test_at_the_ends_there_is_one_side(self) -> None:
        assert takes(Odin, (9, 2, 3, 1)) == "a: 0-0 | b: 1-2 | c: 3-4 | d: 5-7"
        assert takes(Odin, (3, 1, 2, 9)) == "a: 0-1 | b: 2-4 | c: 5-6 | d: 7-7"

    @pytest.mark.parametrize("walk", [LeastLoaded, Odin])
    def test_a_place_without_layers_has_nothing_to_do(self, walk: type[ShishaTuner]) -> None:
        empty = Plan.of([(0, 1, "a"), (2, 3, "b"), (4, 7, "c")])
        assert takes(walk, (1, 1, 9), empty) == "a: 0-1 | b: 2-3 | c: 4-6 | d: 7-7"

    @pytest.mark.parametrize("walk", [LeastLoaded, Odin])
    def test_one_stage_has_nobody_to_give_to(self, walk: type[ShishaTuner]) -> None:
        result = run(walk.of(Plan.of([(0, 3, "a")]), PLACES), ScriptedEvaluator({"a: 0-3": (1,)}))
        assert result.reason == says("best of 1 plans; there is no …")


class TestWhenItEnds:
    SCRIPT: Mapping[str, Sequence[float]] = {
        "a: 0-1 | b: 2-7": (1, 9),
        "a: 0-2 | b: 3-7": (1, 8),
        "a: 0-3 | b: 4-7": (1, 8),
        "a: 0-4 | b: 5-7": (1, 8.5),
        "a: 0-5 | b: 6-7": (1, 7),
        "a: 0-6 | b: 7-7": (7, 1),
    }

    def test_least_loaded_once_the_rate_has_fallen_and_not_before(self) -> None:
        result = tuned(LeastLoaded, self.SCRIPT)
        assert [str(trial.plan) for trial in result.trials] == list(self.SCRIPT)[:4]
        assert (str(result.solution), result.reason) == ("a: 0-2 | b: 3-7", "best of 4 plans; the rate has fallen")

    def test_a_fall_within_the_noise_is_none(self) -> None:
        result = tuned(LeastLoaded, self.SCRIPT, band=0.07)
        assert str(result.solution) == "a: 0-5 | b: 6-7"

    def test_odin_goes_on_through_plans_that_are_no_better(self) -> None:
        result = tuned(Odin, self.SCRIPT, alpha=3)
        assert (len(result.trials), str(result.solution)) == (6, "a: 0-5 | b: 6-7")
        assert (len(tuned(Odin, self.SCRIPT, alpha=2).trials)) == 4
