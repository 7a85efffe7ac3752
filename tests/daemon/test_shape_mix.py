"""Frames of several shapes, made comparable."""

from __future__ import annotations

import random
import statistics

import pytest

from shisha_rt.daemon.fleet.telemetry import ShapeMix


def test_the_average_is_of_the_mix_that_comes() -> None:
    """A stage takes a third of each frame: whatever comes, its parts look like those of the average frame."""
    rng, mix = random.Random(1), ShapeMix(3)
    assert mix.ratios == [1, 1, 1]
    takes_s = (0.003, 0.006, 0.030)
    for shares in ((1, 1, 2), (8, 1, 1)):
        for _ in range(2000):
            (shape,) = rng.choices(range(3), shares)
            mix.came(shape, takes_s[shape] * rng.uniform(0.9, 1.1))
        average_s = sum(share * time_s for share, time_s in zip(shares, takes_s, strict=True)) / sum(shares)
        alike_s = [ratio * time_s / 3 for ratio, time_s in zip(mix.ratios, takes_s, strict=True)]
        assert alike_s == pytest.approx([average_s / 3] * 3, rel=0.3)  # of 256 frames
        assert statistics.pstdev(alike_s) < 0.03 * statistics.mean(alike_s)


def test_a_shape_that_never_came_is_taken_as_it_is() -> None:
    mix = ShapeMix(2)
    mix.came(0, 2.0)
    mix.came(1, 0.0)  # so short that the clock says nothing
    assert mix.ratios == [1, 1]
