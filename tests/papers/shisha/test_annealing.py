"""Simulated annealing: its schedule, and which moves it follows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from shisha_rt.papers.shisha.annealing import Annealed, Annealing
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.plan.measurement import Measurement
from tests.wording import says

SPACE = space_of(6, ["a", "b"], stage_count=2)


def measured(bottleneck_s: float) -> Measurement:
    return Measurement((bottleneck_s,), band=0.0, frames=1, took_s=1.0)


def fed(tuner: Annealing, times_s: Sequence[float]) -> list[tuple[Annealed, str]]:
    """The states and reasons after each observation, until it ends."""
    state, proposal = tuner.init()
    history = [(state, proposal.reason)]
    for time_s in times_s:
        state, proposed = tuner.step(state, measured(time_s))
        history.append((state, proposed if isinstance(proposed, str) else proposed.reason))
        if isinstance(proposed, str):
            break
    return history


def test_44_temperatures() -> None:
    # 0.9 ** 43 = 0.0108 is still above 0.01, 0.9 ** 44 is not; the start itself is one trial more.
    history = fed(Annealing(SPACE, random.Random(0)), [1.0] * 500)
    assert len(history) - 1 == 45
    assert history[-1][1] == says("… is down to 0.01")
    assert (history[1][1], history[-2][1]) == (
        says("… move at temperature 1"),
        says("… move at temperature 0.0108"),
    )


def followed(at_s: float, tried_s: float, draws: int = 2000) -> float:
    """How often the first move, at temperature 1, is followed."""
    count = 0
    rng = random.Random(7)
    for _ in range(draws):
        tuner = Annealing(SPACE, rng)
        state, _ = tuner.init()
        state, _ = tuner.step(state, measured(at_s))
        moved, _ = tuner.step(state, measured(tried_s))
        count += moved.at == state.tried
    return count / draws


@pytest.mark.parametrize(
    ("at_s", "tried_s", "share"),
    [
        (4.0, 4.0, 1.0),
        (4.0, 1.0, 1.0),
        (4.0, 6.0, math.exp(-0.5)),
        (0.004, 0.006, math.exp(-0.5)),  # relative: units do not matter
        (4.0, math.inf, 0.0),
        (math.inf, math.inf, 1.0),
        (math.inf, 9.0, 1.0),
        (0.0, 1.0, 0.0),
    ],
)
def test_a_worse_move_is_followed_by_how_much_worse_it_is(at_s: float, tried_s: float, share: float) -> None:
    assert followed(at_s, tried_s) == pytest.approx(share, abs=0.04)


def test_cold_it_hardly_follows_a_worse_move() -> None:
    tuner = Annealing(SPACE, random.Random(2))
    state, _ = tuner.init()
    state, proposed = tuner.step(state, measured(1.0))
    while not isinstance(proposed, str):
        before = state
        assert before.at_s is not None
        state, proposed = tuner.step(state, measured(before.at_s * 1.2))
        assert before.moves < 30 or state.at == before.at  # 0.9 ** 29 = 0.047: one in 70


@pytest.mark.parametrize("space", [space_of(1, ["a"], stage_count=1), space_of(3, ["a"], stage_count=1)])
def test_a_space_of_one_plan(space: Space) -> None:
    assert fed(Annealing(space, random.Random(0)), [1.0])[-1][1] == says("there is no …")
