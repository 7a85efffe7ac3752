"""Events as a daemon writes them, for tests of how they are told."""

from __future__ import annotations

from typing import Any, Final

SEED: Final = "fast0: 0-11 | slow0: 12-25"
MOVED: Final = "fast0: 0-12 | slow0: 13-25"


def event(number: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": number, "time_s": 1_700_000_000.0 + number, "kind": kind, **fields}


def trial(number: int, trial: int, verdict: str, fps: float | None, **fields: Any) -> dict[str, Any]:
    measured: dict[str, Any] = {
        "service_s": None,
        "throughput_fps": None,
        "band": None,
        "frames": 0,
        "measured_in_s": 0.0,
        "latency_s": None,
    }
    if fps is not None:
        measured |= {"service_s": [0.001, 1 / fps], "throughput_fps": fps, "band": 0.012, "frames": 32}
    usual = {"run": 2, "trial": trial, "epoch": 4 + trial, "plan": SEED if trial == 0 else MOVED, "trouble": None}
    reason = "where the walk starts" if trial == 0 else "layer 12 from stage 1 (slow0) to stage 0 (fast0)"
    return event(number, "trial", **(usual | {"reason": reason, "verdict": verdict} | measured | fields))


def a_run() -> list[dict[str, Any]]:
    return [
        event(10, "tuning_began", run=2, reason="the speed of fast0 is 0.5 now", plan=SEED, alpha=10),
        trial(11, 0, "first", 200.0),
        trial(12, 1, "better", 250.0),
        trial(13, 2, "not_better", 251.0),
        trial(14, 3, "cannot_run", None, trouble="dropped: a worker died"),
        event(
            15, "tuning_ended", run=2, plan=MOVED, reason="best of 4 plans; no gain in 2 moves", trials=4,
            seconds=3.21, throughput_fps=250.0,
        ),
        event(16, "place_down", place="slow1"),
    ]  # fmt: skip
