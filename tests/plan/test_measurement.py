"""What a measurement says, and whether its band holds what it promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.plan import measure
from shisha_rt.plan.measure import BAND_FLOOR, MIN_FRAMES, StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


def measured(windows: Sequence[Sequence[float]], *, took_s: float, band_floor: float = BAND_FLOOR) -> Measurement:
    """Of a plain chain."""
    plan = Plan.of((i, i, f"p{i}") for i in range(len(windows)))
    frames = [StageFrames([0] * len(window), window) for window in windows]
    frames_per_s = (min(map(len, windows)) - 1) / took_s if took_s else math.inf
    with mock.patch.object(measure, "BAND_FLOOR", band_floor):
        return measure_window(plan, frames, took_s=took_s, frames_per_s=frames_per_s)


def of(*service_s: float, band: float = 0.0) -> Measurement:
    return Measurement(service_s, band=band, frames=1, took_s=0.0)


class TestMeasurement:
    def test_what_follows_from_service_times(self) -> None:
        trial = of(1.0, 4.0, 2.0, 4.0)
        assert (trial.bottleneck_s, trial.throughput_fps, trial.slowest_stage, trial.can_run) == (4.0, 0.25, 1, True)

    def test_a_plan_that_cannot_run(self) -> None:
        trial = of(1.0, math.inf)
        assert (trial.throughput_fps, trial.slowest_stage, trial.can_run) == (0.0, 1, False)

    def test_a_slower_machine(self) -> None:
        trial = replace(of(1.0, 4.0), alone_s=6.0, team_s=((1.0,), (4.0, 5.0)), energy_j=2.0).scaled(3.0)
        assert (trial.service_s, trial.alone_s, trial.energy_j) == ((3.0, 12.0), 18.0, 6.0)
        assert trial.team_s == ((3.0,), (12.0, 15.0))
        assert of(1.0).scaled(3.0).alone_s is None

    def test_a_plan_that_takes_no_time(self) -> None:
        assert of(0.0, 0.0).throughput_fps == math.inf

    @pytest.mark.parametrize(
        ("trial", "other", "is_better"),
        [
            (of(1.0), of(1.0), False),  # Algorithm 2, line 9: equal is not better
            (of(0.999), of(1.0), True),  # with no band, anything less is
            (of(5.0, 1.0), of(1.0, 5.1), True),
            (of(1.0, band=0.1), of(1.05, band=0.1), False),
            (of(1.0, band=0.1), of(1.2, band=0.1), True),
            (of(1.0), of(1.08, band=0.1), True),  # the noise of one alone: 0.108 / sqrt(2) s
            (of(1.0), of(1.07, band=0.1), False),
            (of(1.0), of(math.inf), True),
            (of(math.inf), of(1.0), False),
            (of(math.inf), of(math.inf), False),
            (of(0.0), of(0.0), False),
        ],
    )
    def test_better_is_better_beyond_the_noise(self, trial: Measurement, other: Measurement, is_better: bool) -> None:
        assert trial.is_better_than(other) is is_better
        assert not other.is_better_than(trial) or trial.bottleneck_s > other.bottleneck_s

    bottlenecks = st.floats(0, 1e3) | st.just(math.inf)
    bands = st.floats(0, 2)

    @given(first=st.tuples(bottlenecks, bands), second=st.tuples(bottlenecks, bands))
    def test_exactly_one_of_better_worse_and_in_agreement(
        self, first: tuple[float, float], second: tuple[float, float]
    ) -> None:
        trial, other = of(first[0], band=first[1]), of(second[0], band=second[1])
        assert trial.is_better_than(other) + other.is_better_than(trial) + trial.agrees_with(other) == 1
        assert trial.agrees_with(other) == other.agrees_with(trial)


class TestWindow:
    @pytest.mark.parametrize(("frames_per_s", "load"), [(1.0, 0.5), (2.0, 1.0), (8.0, 1.0)])
    def test_the_load_is_at_most_full_and_only_copies_overlap(self, frames_per_s: float, load: float) -> None:
        window = [StageFrames([0, 1] * MIN_FRAMES, [0.5] * 2 * MIN_FRAMES)]
        plain, copies = Plan.of([(0, 0, "a")]), Plan.chain([(0, 0, ("a", "b"))])
        alone = measure_window(
            plain, [StageFrames([0] * MIN_FRAMES, [0.5] * MIN_FRAMES)], took_s=1.0, frames_per_s=frames_per_s
        )
        shared = measure_window(copies, window, took_s=1.0, frames_per_s=2 * frames_per_s)
        assert (alone.load, alone.overlap) == (load, 1.0)
        assert (shared.load, shared.overlap) == (load, load)
        free = measure_window(
            plain, [StageFrames([0] * MIN_FRAMES, [0.0] * MIN_FRAMES)], took_s=1.0, frames_per_s=frames_per_s
        )
        assert free.load == 1.0

    def test_medians_of_stages_and_the_shortest_window(self) -> None:
        trial = measured([[3.0] * 9 + [90.0], [5.0] * 8], took_s=35.0)
        assert trial == Measurement((3.0, 5.0), band=BAND_FLOOR, frames=8, took_s=35.0)

    def test_a_band_worked_by_hand(self) -> None:
        # 16 frames of 101 to 116 ms. sqrt(16) ranks on either side of the middle rank, 7.5 (from 0): rank 3.5, rounded
        # to 4, and 11; so (112 - 105) ms are 7 ranks, 2 x 7/4 deviations: 2 ms. Times sqrt(2) * 2.36, over 108.5 ms.
        trial = measured([[0.001 * ms for ms in range(101, 117)]], took_s=0.0)
        assert trial.band == pytest.approx(math.sqrt(2) * 2.36 * 2 / 108.5)

    def test_another_stage_counts_only_if_its_noise_reaches_the_bottleneck(self) -> None:
        steady, noisy = [1.0] * 32, [0.5, 1.3] * 16
        assert measured([steady, noisy], took_s=0.0).band > 0.3
        assert measured([steady, [0.1 * value for value in noisy]], took_s=0.0).band == BAND_FLOOR

    def test_slow_swings_widen_the_band(self) -> None:
        frames = [1 + 0.1 * math.sin(i / 20) for i in range(128)]
        mixed = np.random.default_rng(0).permutation(frames).tolist()
        swinging = measured([frames], took_s=0.0).band
        assert swinging > 1.5 * measured([mixed], took_s=0.0).band

    def test_the_floor(self) -> None:
        assert measured([[1.0] * 8], took_s=0.0, band_floor=0.0).band == 0.0
        assert measured([[0.0] * 8], took_s=0.0).band == BAND_FLOOR

    @pytest.mark.parametrize("windows", [[], [[1.0] * 8, [1.0] * (MIN_FRAMES - 1)]])
    def test_too_few_frames(self, windows: list[list[float]]) -> None:
        with pytest.raises(ValueError, match="expected at least 8 each"):
            measured(windows, took_s=0.0)


Frames = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Frames]


def outliers(rng: np.random.Generator, n: int) -> Frames:
    """One frame in ten is late, by three times its time on average."""
    return 1 + 0.03 * rng.standard_normal(n) + (rng.random(n) < 0.1) * rng.exponential(3, n)


def two_modes(rng: np.random.Generator, n: int) -> Frames:
    """A quarter of the frames takes half as long again, as where the clock steps down."""
    return np.where(rng.random(n) < 0.25, 1.5, 1.0) + 0.01 * rng.standard_normal(n)


def swings(rng: np.random.Generator, n: int) -> Frames:
    """Each frame takes half of its deviation from the one before."""
    shocks = rng.standard_normal(n + 30)
    deviations = [0.0]
    for shock in shocks:
        deviations.append(0.5 * deviations[-1] + float(shock))
    return 1 + 0.03 * np.array(deviations[-n:])


NOISES: dict[str, Noise] = {
    "normal": lambda rng, n: 1 + 0.05 * rng.standard_normal(n),
    "lognormal": lambda rng, n: rng.lognormal(0, 0.5, n),
    "uniform": lambda rng, n: 1 + 0.2 * rng.random(n),
    "outliers": outliers,
    "two_modes": two_modes,
    "swings": swings,
}
CASES = [
    ("normal", (8, 16, 32, 100)),
    ("lognormal", (8, 16, 32, 100)),
    ("uniform", (8, 16, 32, 100)),
    ("outliers", (8, 16, 32, 100)),
    ("two_modes", (32, 100)),
    ("swings", (100, 200)),
]


@pytest.mark.parametrize(("noise", "frames"), [(name, n) for name, counts in CASES for n in counts])
@pytest.mark.parametrize("stages", [1, 4])
def test_two_measurements_of_one_plan_agree(noise: str, frames: int, stages: int) -> None:
    """At most 5% of neighbours in a long row of measurements differ by more than the band; no floor helps."""
    rng = np.random.default_rng(11)
    row = [
        measured([NOISES[noise](rng, frames).tolist() for _ in range(stages)], took_s=0.0, band_floor=0.0)
        for _ in range(1000 if stages == 1 else 400)
    ]
    apart = sum(not trial.agrees_with(other) for trial, other in pairwise(row))
    assert apart / (len(row) - 1) <= 0.05


@pytest.mark.parametrize("noise", ["normal", "lognormal", "outliers"])
def test_the_band_is_not_idle(noise: str) -> None:
    """It is at most six times what two measurements typically differ by, and narrows as frames are added."""
    rng = np.random.default_rng(12)

    def typical(frames: int) -> tuple[float, float]:
        row = [measured([NOISES[noise](rng, frames).tolist()], took_s=0.0, band_floor=0.0) for _ in range(300)]
        apart = [abs(a.bottleneck_s - b.bottleneck_s) / a.bottleneck_s for a, b in pairwise(row)]
        return float(np.median([m.band for m in row])), float(np.median(apart))

    (few, _), (many, apart) = typical(32), typical(128)
    assert many < 6 * apart
    assert few / many == pytest.approx(2, rel=0.25)


def test_what_runs_is_better_than_what_cannot_however_it_was_measured() -> None:
    cannot = Measurement((math.inf,), 0.0, 0, 1.0, failed_stage=0)
    for runs in (Measurement((1.0,), 0.05, 32, 1.0, overlap=0.6), Measurement((1.0,), 0.05, 32, 1.0, throttled=0.6)):
        assert runs.is_better_than(cannot)
        assert not cannot.is_better_than(runs)
