"""The metrics page of a daemon that has served: the names that are promised, and figures that add up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.client import DeadlineExceeded
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS, frame_of
from tests.serving.page import scrape, value, values
from tests.waiting import until

FRAMES: Final = 50
FEW: Final = 20
"""More than are in flight at once."""
LATE: Final = 3
QUEUE: Final = "shisha_stage_queue_frames"
PROMISED: Final = {
    "shisha_frames_total",
    "shisha_frame_latency_seconds_bucket",
    "shisha_frames_in_flight",
    "shisha_stage_service_seconds_bucket",
    "shisha_stage_layers",
    QUEUE,
    "shisha_pipeline_throughput_fps",
    "shisha_pipeline_bottleneck_stage",
    "shisha_plan_epoch",
    "shisha_frames_replayed_total",
    "shisha_place_speed_ratio",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}


def test_the_figures_add_up(identity: Path, two_places: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", two_places) as daemon:
        control = daemon.control
        plan = [{"first": 0, "last": 2, "places": ["fast0"]}, {"first": 3, "last": LAYERS - 1, "places": ["slow0"]}]
        epoch = control.set_plan(plan)["epoch"]
        assert control.set_plan(plan[:1])["outcome"] == "refused"
        with control.stream() as stream:
            answers = list(stream.run(frame_of(i) for i in range(FRAMES)))
        for _ in range(LATE):
            with pytest.raises(DeadlineExceeded):
                control.infer(frame_of(0), deadline_s=0.0)
        # Gauges are brought up to date every quarter of a second.
        until(lambda: value(scrape(daemon.metrics), "shisha_pipeline_throughput_fps") > 0, "a measured throughput")
        until(lambda: value(scrape(daemon.metrics), "shisha_plan_epoch") == epoch, "the epoch")
        samples = scrape(daemon.metrics)

        assert {sample.name for sample in samples} >= PROMISED
        assert values(samples, "shisha_frames_total", "outcome") == {"OK": FRAMES, "DEADLINE_EXCEEDED": LATE}
        assert value(samples, "shisha_frame_latency_seconds_count") == FRAMES
        latency_s = sum(answer.queue_s + answer.compute_s for answer in answers)
        assert value(samples, "shisha_frame_latency_seconds_sum") == pytest.approx(latency_s, abs=2e-6 * FRAMES)
        service = values(samples, "shisha_stage_service_seconds_count", "stage")
        assert service["0"] >= FRAMES
        assert service["1"] >= FRAMES
        assert values(samples, "shisha_stage_layers", "stage") == {"0": 3, "1": LAYERS - 3}
        assert values(samples, "shisha_stage_layers", "place") == {"fast0": 3, "slow0": LAYERS - 3}
        assert values(samples, QUEUE, "stage") == {"0": 0, "1": 0}
        assert value(samples, "shisha_pipeline_bottleneck_stage") in (0, 1)
        assert value(samples, "shisha_frames_in_flight") == 0
        assert value(samples, "shisha_frames_replayed_total") == 0
        assert value(samples, "shisha_answers_undeliverable_total") == 0
        assert values(samples, "shisha_place_speed_ratio", "place") == {"fast0": 1, "slow0": 1}
        assert values(samples, "shisha_place_speed_ratio", "emulated") == {"false": 2}  # of both
        assert values(samples, "shisha_plan_proposals_total", "outcome") == {"live": 2, "refused": 1}
        status = control.status()
        assert Counter(status["frames"]["answered"]) == Counter(OK=FRAMES, DEADLINE_EXCEEDED=LATE)
        (statistics,) = control.call("model_statistics")["model_stats"]
        assert statistics["inference_count"] == FRAMES
        assert statistics["inference_stats"]["fail"]["count"] == LATE


def test_what_is_answered_is_not_in_flight_and_a_killed_worker_is_counted(
    identity: Path, two_places: Path, tmp_path: Path
) -> None:
    with DaemonProcess(tmp_path, identity, "--machine", two_places) as daemon:
        for _ in range(10):
            with daemon.control.stream() as stream:
                assert len(list(stream.run(frame_of(i) for i in range(FEW)))) == FEW
            samples = scrape(daemon.metrics)
            assert value(samples, "shisha_frames_in_flight") == 0
            assert not any(values(samples, QUEUE, "stage").values())
        pid = daemon.wait_for_workers()["slow0"]
        daemon.kill_worker(pid)
        daemon.wait_for_workers()
        assert values(scrape(daemon.metrics), "shisha_worker_restarts_total", "place") == {"fast0": 0, "slow0": 1}
