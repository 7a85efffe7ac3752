"""What is counted as it happens: answers, parts, trials. Gauges are looked up instead (`gauges.py`)."""

from __future__ import annotations

import functools
from collections import Counter

from shisha_rt.daemon.front.requests import FrameAnswer
from shisha_rt.daemon.metrics import Metrics


class Counting:
    """`outcomes`: answers by OK or error code; the seconds are sums over those with a result."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.outcomes: Counter[str] = Counter()
        self.latency_s = self.queue_s = self.compute_s = 0.0
        # Looking a label up costs more than counting.
        self._service_of = functools.cache(metrics.histogram("shisha_stage_service_seconds").labels)
        self._latency = metrics.histogram("shisha_frame_latency_seconds")
        self._answered_as = functools.cache(metrics.counter("shisha_frames").labels)

    def answered(self, answer: FrameAnswer) -> None:
        outcome = "OK" if answer.code is None else answer.code.value
        self.outcomes[outcome] += 1
        self._answered_as(outcome).inc()
        if answer.code is None:
            self._latency.observe(answer.latency_s)
            self.latency_s += answer.latency_s
            self.queue_s += answer.queue_s
            self.compute_s += answer.compute_s

    def part_done(self, stage: int, place: str, service_s: float, dropped_s: float) -> None:
        """`dropped_s`: lateness that an emulated place has given up making up for."""
        self._service_of(stage, place).observe(service_s)
        if dropped_s:
            self.metrics.counter("shisha_pacing_dropped_seconds").labels(place).inc(dropped_s)

    def trial(self, verdict: str, moves: int) -> None:
        self.metrics.counter("shisha_tuner_trials").labels(verdict).inc()
        self.metrics.counter("shisha_tuner_moves").inc(moves)

    def solved(self, solver: str) -> None:
        self.metrics.counter("shisha_placement_solves").labels(solver).inc()

    def restarted(self, place: str) -> None:
        self.metrics.counter("shisha_worker_restarts").labels(place).inc()

    def settled(self, ending: str) -> None:
        self.metrics.counter("shisha_plan_proposals").labels(ending).inc()
