"""What sightings say of layers: by hand, against conditioning written out with whole matrices, and whom to trust."""

from __future__ import annotations

import numpy as np
import pytest

from shisha_rt.arrays import Floats
from shisha_rt.planner.belief import SCALES, Belief, Scales, Sighting, believe, likeliest, log_likelihoods

EXACT = 1e-9
OWN, SHARED = Scales(0.0, 0.3), Scales(0.3, 0.0)
POSITIONS = np.arange(4)


def seconds(*told_s: float) -> Floats:
    return np.array(told_s)


class TestByHand:
    def test_what_a_stage_was_off_by_is_dealt_out_by_variance(self) -> None:
        # 10 s more than told; deviations as 1 to 3, so variances as 1 to 9.
        belief = believe(seconds(1, 3, 5), [Sighting(0, 2, 14, EXACT)], OWN)
        assert belief.mean_s == pytest.approx([2, 12, 5])

    def test_a_shared_factor_reaches_layers_that_have_not_run(self) -> None:
        belief = believe(seconds(1, 3, 2), [Sighting(0, 2, 8, EXACT)], SHARED)
        assert belief.mean_s == pytest.approx([2, 6, 4])

    def test_half_as_sure_of_what_was_measured_as_of_what_was_told(self) -> None:
        # Variances 0.09 and 0.09: halfway. Repeated, the measured mean has half the variance: two thirds of the way.
        once = believe(seconds(1), [Sighting(0, 1, 2, 0.3)], OWN)
        twice = believe(seconds(1), [Sighting(0, 1, 2, 0.3)] * 2, OWN)
        assert once.mean_s == pytest.approx([1.5])
        assert twice.mean_s == pytest.approx([5 / 3])
        assert once.deviation_s(POSITIONS[:2])[0, 1] == pytest.approx(0.3 / 2**0.5)

    def test_what_was_measured_is_known_and_its_parts_are_not(self) -> None:
        deviation_s = believe(seconds(1, 1, 1), [Sighting(0, 2, 3, EXACT)], OWN).deviation_s(POSITIONS)
        assert deviation_s[0, 2] == pytest.approx(0, abs=1e-6)
        assert deviation_s[0, 1] == deviation_s[1, 2] == pytest.approx(0.3 / 2**0.5)
        assert deviation_s[2, 3] == pytest.approx(0.3)

    def test_nothing_measured(self) -> None:
        belief = believe(seconds(3, 4), [], OWN)
        assert belief.mean_s.tolist() == [3, 4]
        assert belief.deviation_s(POSITIONS[:3])[0, 2] == pytest.approx(0.3 * 5)


@pytest.mark.parametrize("seed", range(20))
def test_against_conditioning_with_whole_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = seed % len(SCALES)
    layers, scales = 9, SCALES[number]
    told_s = rng.uniform(0, 2, layers) * (rng.random(layers) < 0.8)
    spans = [sorted(rng.choice(layers + 1, 2, replace=False).tolist()) for _ in range(5)]
    seen = [Sighting(first, end, rng.uniform(0, 5), rng.uniform(0.01, 0.1)) for first, end in spans]
    rows = np.array([[first <= layer < end for layer in range(layers)] for first, end in spans], float)
    prior_s2 = scales.place**2 * np.outer(told_s, told_s) + scales.layer**2 * np.diag(told_s**2)
    noise_s2 = np.diag([sighting.error_s**2 for sighting in seen])
    among_s2 = rows @ prior_s2 @ rows.T + noise_s2
    off_s = np.array([sighting.time_s for sighting in seen]) - rows @ told_s
    gain = prior_s2 @ rows.T @ np.linalg.inv(among_s2)

    belief = believe(told_s, seen, scales)

    assert belief.mean_s == pytest.approx(told_s + gain @ off_s)
    left_s2 = prior_s2 - gain @ rows @ prior_s2
    deviation_s = belief.deviation_s(np.arange(layers + 1))
    for first in range(layers):
        for end in range(first + 1, layers + 1):
            assert deviation_s[first, end] ** 2 == pytest.approx(left_s2[first:end, first:end].sum(), abs=1e-9)
    _, log_determinant = np.linalg.slogdet(among_s2)
    expected = -(off_s @ np.linalg.inv(among_s2) @ off_s + log_determinant) / 2
    assert log_likelihoods(told_s, seen)[number] == pytest.approx(expected)


def test_what_is_small_beside_other_layers_is_not_lost() -> None:
    """Layers of 1e-12 s after one of 1e9 s: differences of sums over all layers would know nothing of them."""
    told_s = seconds(1e9, 1e-12, 1e-12)
    seen = [Sighting(0, 1, 1e9, 1e7), Sighting(1, 2, 2e-12, 1e-14), Sighting(2, 3, 2e-12, 1e-14)]
    assert np.isfinite(log_likelihoods(told_s, seen)).all()
    for scales in SCALES:
        believe(told_s, seen, scales)
    assert believe(told_s, seen, OWN).mean_s == pytest.approx([1e9, 2e-12, 2e-12], rel=0.01, abs=0)


class TestWhomToTrust:
    """Two places of 24 layers of a second, all seen in stages of three."""

    TOLD = (np.ones(24), np.ones(24))

    def likeliest(self, *factors: Floats) -> list[Belief]:
        seen = [[Sighting(i, i + 3, float(true[i : i + 3].sum()), 0.01) for i in range(0, 24, 3)] for true in factors]
        return likeliest(self.TOLD, seen)

    def test_nobody_who_has_not_been_seen(self) -> None:
        beliefs = likeliest(self.TOLD, [[], []])
        assert {belief.scales.layer for belief in beliefs} == {0.3}
        assert all(belief.mean_s is cost_s for belief, cost_s in zip(beliefs, self.TOLD, strict=True))

    def test_costs_that_hold(self) -> None:
        first, other = self.likeliest(np.ones(24), np.ones(24))
        assert first.scales == other.scales == Scales(0.01, 0.01)

    def test_layers_that_are_off(self) -> None:
        rng = np.random.default_rng(0)
        first, _ = self.likeliest(rng.lognormal(0, 0.3, 24), rng.lognormal(0, 0.3, 24))
        assert first.scales.layer == 0.3
        assert first.scales.place <= 0.1

    def test_a_place_that_is_slower_than_told(self) -> None:
        slower, as_told = self.likeliest(np.full(24, 1.4), np.ones(24))
        assert slower.scales == Scales(0.3, 0.01)
        assert as_told.mean_s == pytest.approx(np.ones(24), abs=0.01)
