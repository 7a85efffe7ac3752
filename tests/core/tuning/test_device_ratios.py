"""Which devices are found to be slower or faster than known, from what segments take in windows that the test makes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from shisha_rt.core.tuning.device_ratios import HOST_DRIFT, LEAST_S, OFF, DeviceRatios

DEVICES = ("cpu", "pim", "cpu")
COMPUTED_S = (2e-3, 1e-3, 3e-3)


class Stage:
    """Of three segments on two devices; `moved_s` of each is transfers that no ratio stretches."""

    def __init__(self, ratios: DeviceRatios, place: str = "near", moved_s: float = 0.0) -> None:
        self.ratios = ratios
        self.place = place
        self.moved_s = moved_s
        self.now_s = 0.0

    def predicted_s(self) -> list[float]:
        ratios = self.ratios.ratios
        return self._segments_s([ratios.get((self.place, device), 1.0) for device in DEVICES])

    def taken_s(self, slower: Mapping[str, float]) -> list[float]:
        return self._segments_s([slower.get(device, 1.0) for device in DEVICES])

    def _segments_s(self, slower: Sequence[float]) -> list[float]:
        return [self.moved_s + times * own_s for times, own_s in zip(slower, COMPUTED_S, strict=True)]

    def run(self, slower: Mapping[str, float] | None = None) -> bool:
        """One window, with devices so many times as slow as known."""
        return self.ratios.observe(self.place, DEVICES, self.predicted_s(), self.taken_s(slower or {}), self.now_s)


@pytest.fixture
def ratios() -> DeviceRatios:
    return DeviceRatios()


@pytest.fixture
def stage(ratios: DeviceRatios) -> Stage:
    return Stage(ratios)


def test_noise_changes_nothing(stage: Stage) -> None:
    noise = random.Random(5)
    for _ in range(500):
        assert not stage.run({device: noise.uniform(1 / (1 + OFF), 1 + OFF) for device in DEVICES})
    assert stage.ratios.ratios == {}


@pytest.mark.parametrize("stray", [3.0, 0.3])
def test_a_stray_window_changes_nothing(stage: Stage, stray: float) -> None:
    assert not any(stage.run({"cpu": slower}) for slower in (1.0, stray, 1.0, 1.0, stray, 1.0))


def test_two_stray_windows_in_a_row_do_not_agree(stage: Stage) -> None:
    assert not any(stage.run({"cpu": slower}) for slower in (3.0, 2.0, 1.0, 2.0, 3.0, 1.0))


@pytest.mark.parametrize("slower", [3.0, 1.2, 0.5])
def test_a_device_that_has_changed_is_found_and_predictions_then_agree(stage: Stage, slower: float) -> None:
    assert not stage.run({"cpu": slower})
    assert stage.run({"cpu": slower})
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(slower)}
    assert stage.predicted_s() == pytest.approx(stage.taken_s({"cpu": slower}))
    assert not any(stage.run({"cpu": slower}) for _ in range(10))


def test_a_window_in_which_it_changed_is_not_believed(stage: Stage) -> None:
    assert [stage.run({"cpu": slower}) for slower in (1.6, 3.0, 3.0)] == [False, False, True]
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(3.0)}


def test_the_windows_that_agree_may_be_noisy(stage: Stage) -> None:
    assert [stage.run({"cpu": slower}) for slower in (3.0, 3.2, 3.0, 3.3)] == [False, True, False, False]
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(3.2)}


def test_after_a_correction_two_more_are_needed(stage: Stage) -> None:
    changes = [stage.run({"cpu": slower}) for slower in (3.0, 3.0, 6.0, 6.0)]
    assert changes == [False, True, False, True]


@pytest.mark.parametrize("again", [1.0, 1.04, 0.96])
def test_a_device_recovers(stage: Stage, again: float) -> None:
    changes = [stage.run({"cpu": slower}) for slower in (3.0, 3.0, again, again)]
    assert changes == [False, True, False, True]
    assert stage.ratios.ratios == {}


def test_two_devices_are_independent(stage: Stage) -> None:
    assert not stage.run({"cpu": 3.0})
    assert stage.run({"cpu": 3.0, "pim": 2.0})
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(3.0)}
    assert stage.run({"cpu": 3.0, "pim": 2.0})
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(3.0), ("near", "pim"): pytest.approx(2.0)}


def test_a_device_is_another_on_another_place(stage: Stage) -> None:
    far = Stage(stage.ratios, "far")
    assert not any((stage.run({"cpu": 3.0}), far.run(), far.run({"cpu": 3.0})))
    assert stage.run({"cpu": 3.0})
    assert stage.ratios.ratios == {("near", "cpu"): pytest.approx(3.0)}


def test_transfers_in_a_prediction_are_closed_in_on(ratios: DeviceRatios) -> None:
    stage = Stage(ratios, moved_s=1e-3)
    slower = {"pim": 6.0}
    for _ in range(20):
        stage.run(slower)
    assert stage.predicted_s() == pytest.approx(stage.taken_s(slower), rel=OFF)
    assert not any(stage.run(slower) for _ in range(10))


def test_segments_that_are_too_short_say_nothing(ratios: DeviceRatios) -> None:
    short_s = [0.4 * LEAST_S] * 2
    for _ in range(5):
        assert not ratios.observe("near", ["pim", "pim"], short_s, [9 * s for s in short_s], 0.0)
    long_s = [0.6 * LEAST_S] * 2
    assert not ratios.observe("near", ["pim", "pim"], long_s, [9 * s for s in long_s], 0.0)
    assert ratios.observe("near", ["pim", "pim"], long_s, [9 * s for s in long_s], 0.0)


def test_ratios_that_were_kept_stay_as_they_were(stage: Stage) -> None:
    stage.run({"cpu": 3.0})
    stage.run({"cpu": 3.0})
    kept = stage.ratios.ratios
    stage.run()
    stage.run()
    assert kept == {("near", "cpu"): pytest.approx(3.0)}


def test_segments_have_one_device_and_two_times_each(ratios: DeviceRatios) -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios.observe("near", ["cpu", "pim"], [1e-3, 1e-3], [1e-3], 0.0)


class TestDevicesNotAtWork:
    """What is assumed of devices that no stage has used, from those beside them that one has."""

    def _seen(self, ratios: DeviceRatios, times: float) -> None:
        for _ in range(2):
            ratios.observe("p", ["used"], [1e-3], [times * 1e-3], 0.0)
        ratios.assume("p", ["used", "idle"])

    def test_a_host_that_has_drifted_has_for_all(self, ratios: DeviceRatios) -> None:
        self._seen(ratios, 1.25)
        assert ratios.ratios == {("p", "used"): pytest.approx(1.25), ("p", "idle"): pytest.approx(1.25)}

    @pytest.mark.parametrize(("times", "expected"), [(4.0, HOST_DRIFT), (0.25, 1 / HOST_DRIFT)])
    def test_a_device_that_is_off_by_more_is_off_alone(
        self, ratios: DeviceRatios, times: float, expected: float
    ) -> None:
        self._seen(ratios, times)
        assert ratios.ratios["p", "used"] == pytest.approx(times)
        assert ratios.ratios["p", "idle"] == pytest.approx(expected)

    def test_one_that_has_been_seen_keeps_its_own(self, ratios: DeviceRatios) -> None:
        self._seen(ratios, 1.25)
        ratios.observe("p", ["idle"], [1e-3], [1e-3], 0.0)
        for _ in range(2):
            ratios.observe("p", ["used"], [1e-3], [2e-3], 0.0)
        ratios.assume("p", ["used", "idle"])
        assert ratios.ratios["p", "idle"] == pytest.approx(1.25)

    def test_nothing_is_assumed_while_nothing_has_been_seen(self, ratios: DeviceRatios) -> None:
        ratios.assume("p", ["used", "idle"])
        assert ratios.ratios == {}
