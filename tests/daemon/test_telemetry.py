"""What the last frames of a stage took, by segment and in all: medians of a window."""

from __future__ import annotations

import pytest

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.daemon.counting import Counting
from shisha_rt.daemon.fleet.telemetry import StageWindow, Telemetry, pooled
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.messages.worker import Done, Prepared
from shisha_rt.plan.plan import Plan
from shisha_rt.protocol.request import InferRequest


def window_of(*frames: tuple[float, ...]) -> StageWindow:
    window = StageWindow()
    add(window, *frames)
    return window


def add(window: StageWindow, *frames: tuple[float, ...]) -> None:
    for segments_s in frames:
        window.add(sum(segments_s), sum(segments_s), 0.0, segments_s)


def test_segments_are_medians_of_the_last_frames() -> None:
    window = window_of((1.0, 5.0), (3.0, 4.0), (2.0, 9.0))
    assert window.segments_s == [2.0, 5.0]
    add(window, *[(7.0, 7.5)] * 32)
    assert window.segments_s == [7.0, 7.5]


def test_a_stage_without_devices_has_no_segments() -> None:
    window = StageWindow()
    window.add(1.0, 1.0, 0.0)
    assert window.segments_s == []
    assert window.median_service_s == 1.0


def test_a_window_that_restarts_has_forgotten_all_but_the_count() -> None:
    window = window_of((1.0,), (1.0,))
    window.restart()
    assert (window.frames, window.segments_s, window.median_service_s) == (2, [], None)
    add(window, (4.0,))
    assert window.segments_s == [4.0]


def test_a_median_that_was_asked_for_in_vain_is_there_with_the_next_frame() -> None:
    """A place was changed after many frames, and somebody looked at once: it stayed unknown for sixteen more."""
    window = window_of(*[(1.0,)] * 500)
    window.restart()
    assert window.median_service_s is None
    add(window, (4.0,))
    assert window.median_service_s == 4.0
    for _ in range(2):  # it begins anew, and so every frame counts
        add(window, (6.0,))
    assert window.median_service_s == 6.0


def test_the_summary_has_medians_and_nothing_before_frames() -> None:
    assert StageWindow().summary()["service_s"] is None
    window = window_of((1.0,), (2.0,), (6.0,))
    assert window.summary()["service_s"] == pytest.approx(2.0)


def test_before_its_first_frame_a_stage_is_expected_to_take_what_it_took_to_warm_up() -> None:
    """One of over 5 s a frame was killed as hung before a first frame could tell how long it takes."""
    telemetry, plan = Telemetry(Counting()), Plan.chain([(0, 3, [["a"], ["b"]])])
    assert telemetry.expected_s(7, plan) == {"a": 0.0, "b": 0.0}
    for place, warm_s in (("a", 6.0), ("b", 8.0)):
        telemetry.window(7, 0, place).note_built(Prepared(7, 0, 1, 0.1, warm_s, 0, 0))
    telemetry.window(7, 0, "b").add(7.5, 7.5, 0.0)
    assert telemetry.expected_s(7, plan) == {"a": 6.0, "b": 7.5}


def test_a_run_of_several_frames_is_shared_out_among_them() -> None:
    telemetry, part = (
        Telemetry(Counting()),
        Descriptor(incarnation=1, frame=1, attempt=0, stage=0, epoch=7, slot=0),
    )
    tickets = [Ticket(InferRequest(str(frame), None, None, None, {}, (), 4), frame, print, 0.0) for frame in (1, 2)]
    assert telemetry.took(Done(part, 6.0, 4.0, 0.5, 0.0, (2.0, 4.0)), "a", tickets) == (3.0, (1.0, 2.0))
    window = telemetry.window(7, 0, "a")
    assert (window.median_service_s, window.segments_s) == (3.0, [1.0, 2.0])
    assert [ticket.compute_s for ticket in tickets] == [6.0, 6.0], "each waits for all of it"


def test_of_several_shapes_a_large_frame_may_come_after_small_ones() -> None:
    telemetry, plan = Telemetry(Counting(), shapes=2), Plan.chain([(0, 3, [["a"]])])
    telemetry.window(7, 0, "a").note_built(Prepared(7, 0, 1, 0.1, 6.0, 0, 0))
    telemetry.window(7, 0, "a").add(0.1, 0.1, 0.0)
    assert telemetry.expected_s(7, plan) == {"a": 6.0}
    for _ in range(3):
        telemetry.window(7, 0, "a").add(9.0, 9.0, 0.0)
    assert telemetry.expected_s(7, plan) == {"a": 9.0}


def test_a_median_is_of_the_frames_there_are_when_it_is_asked_for() -> None:
    window = window_of((1.0,))
    assert (window.median_service_s, window.median_service_s) == (1.0, 1.0)
    add(window, (3.0,), (3.0,))
    assert window.median_service_s == 3.0
    window.restart()
    assert window.median_service_s is None


def test_the_median_of_a_full_window_follows_within_some_frames() -> None:
    window = window_of(*[(1.0,)] * 129)
    assert window.median_service_s == 1.0
    add(window, *[(5.0,)] * 100)
    assert window.median_service_s == 5.0
    add(window, *[(2.0,)] * 100)
    assert window.median_service_s == 2.0
    add(window, *[(9.0,)] * 15)
    assert window.median_service_s == 2.0


def test_many_teams_are_summed_up_by_the_last_frames_of_each() -> None:
    windows = [window_of(*[(9.0,)] * 100, *[(float(team),)] * 16) for team in range(64)]
    summary = pooled(windows)
    assert summary["service_s"] == pytest.approx(31.5)
    assert summary["frames"] == 64 * 116
    assert pooled(windows[:1])["service_s"] == pytest.approx(9.0)
