"""What a slow frame waited for, in words."""

from __future__ import annotations

from typing import Any

from shisha_rt.show.why import why_lines


def status(*steps: dict[str, Any], latency_s: float = 0.1, **slow: Any) -> dict[str, Any]:
    frame = {"frame": 812, "code": "OK", "ago_s": 21.4, "latency_s": latency_s, "looked_at": 130, "trace_id": None}
    whole = [{"attempt": 0, "frames": 1, "begin_s": 0.0, **step} for step in steps]
    return {"frames": {"slots": 16}, "slow_frame": frame | slow | {"steps": whole}}


def at(what: str, seconds: float, stage: int = 0, place: str = "fast0", epoch: int = 3, **more: Any) -> dict[str, Any]:
    return {"what": what, "seconds": seconds, "stage": stage, "place": place, "epoch": epoch, **more}


def test_where_the_time_went() -> None:
    lines = why_lines(
        status(
            {"what": "queue", "seconds": 0.07},
            {"what": "copy_in", "seconds": 0.00001},
            at("wait", 0.008),
            at("run", 0.012, frames=4),
            {"what": "order", "seconds": 0.01},
        )
    )
    assert lines == [
        "the slowest of 130 frames looked at lately took 100 ms, 21 s ago: 70% of it waiting to be admitted",
        "70.0 ms  waiting to be admitted: 16 frames may be under way at once",
        "8.00 ms  waiting for stage 0 on fast0, which had other frames to compute",
        "12.0 ms  computed by stage 0 on fast0, together with 3 more",
        "10.0 ms  waiting for earlier frames of its stream",
    ]


def test_what_was_lost_and_another_plan() -> None:
    lines = why_lines(
        status(
            at("lost", 0.00001, place="slow1"),
            at("wait", 0.05),
            at("run", 0.02),
            at("wait", 0.02, epoch=4),
            at("run", 0.01, epoch=4),
            code="INTERNAL",
            trace_id="ab" * 16,
        )
    )
    assert lines[0].endswith(f"and ended in INTERNAL, 21 s ago: 50% of it waiting for a stage (trace {'ab' * 16})")
    assert [line.partition(" ms  ")[2] for line in lines[1:]] == [
        "lost with the worker on slow1, which ended while it had the frame",
        "again waiting for stage 0 on fast0, which had other frames to compute",
        "computed by stage 0 on fast0",
        "waiting for stage 0 on fast0, which had other frames to compute, now under another plan (epoch 4)",
        "computed by stage 0 on fast0",
    ]


def test_where_a_frame_was_when_it_was_given_up_is_told_however_short_it_was_there() -> None:
    lines = why_lines(status(at("run", 0.1), at("left", 0.00001, stage=1, place="slow0"), code="CANCELLED"))
    assert [line.partition("s  ")[2] for line in lines[1:]] == [
        "computed by stage 0 on fast0",
        "with stage 1 on slow0 when the answer was decided",
    ]


def test_a_daemon_of_a_later_version_is_understood_as_far_as_that_goes() -> None:
    head, line = why_lines(status(at("thinking", 0.06)))
    assert head.endswith("60% of it thinking")
    assert line.endswith("thinking stage 0 on fast0")


def test_nothing_yet() -> None:
    assert why_lines({"slow_frame": None}) == ["no frame has been looked at in the last minute"]
    assert why_lines({}) == ["no frame has been looked at in the last minute"]
