"""What is counted as it happens: answers, parts, trials. Gauges are looked up instead (`gauges.py`)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from shisha_rt.core.lifecycle.streams import Streams
from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.metrics import Metrics
from shisha_rt.daemon.plain_metrics import PlainSeries
from shisha_rt.plan.plan import Plan

LATENCIES_S: Final = tuple(float(f"{1e-4 * 2 ** (step / 8):.4g}") for step in range(140))
"""The upper bounds that latencies are counted under: eight for each doubling, 0.1 ms to 17 s, so that percentiles
between two looks are known within some 5%."""

MOST_SERIES: Final = 256
"""Of stages' service times, beyond those of live plans: every plan that is tried may add some, 20 lines each."""


class Counting:
    """`in_time`: answers within `target_s`, of those with a result. `outcomes`: answers by OK or error code; the
    seconds are sums over those with a result (`failed_s`: without), and `by_shape` counts those by the number of their
    shape. `last_ms`: when the last was given, since 1970; 0: none yet.
    """

    def __init__(self, metrics: Metrics, target_s: float = math.inf) -> None:
        self.metrics = metrics
        self.target_s = target_s
        self.in_time = 0
        self.outcomes = metrics.outcomes
        self.by_shape: Counter[int] = Counter()
        self.queue_s = self.compute_s = self.failed_s = 0.0
        self.last_ms = 0
        # Looking a label up costs more than counting.
        self._services: dict[tuple[int, str], PlainSeries] = {}
        self._service = metrics.histogram("shisha_stage_service_seconds")
        self._runs = metrics.histogram("shisha_run_frames")
        self._latency = metrics.histogram("shisha_frame_latency_seconds").labels()
        self._latencies = PlainSeries(LATENCIES_S)

    def answered(self, answer: Ticket) -> None:
        self.last_ms = time.time_ns() // 1_000_000
        if answer.error is not None:
            self.outcomes[answer.error.code.value] += 1
            self.failed_s += answer.latency_s
            return
        self.outcomes["OK"] += 1
        self.by_shape[answer.request.layout] += 1
        self.in_time += answer.latency_s <= self.target_s
        self._latency.observe(answer.latency_s)
        self._latencies.observe(answer.latency_s)
        self.queue_s += answer.queue_s
        self.compute_s += answer.compute_s

    def exemplify(self, answer: Ticket, trace_id: str | None) -> None:
        """Name the trace of an answer that has been counted; None: it has none that anybody could look up."""
        if trace_id is not None and answer.error is None:
            self._latency.exemplify(answer.latency_s, trace_id)

    @property
    def latency_s(self) -> float:
        return self._latency.sum

    def latencies(self) -> list[tuple[float | None, int]]:
        """How many answers took at most so many seconds, and more than the bound before; None: beyond the last one.

        Of bounds that have any.
        """
        counts = self._latencies.counts
        return [(bound, count) for bound, count in zip((*LATENCIES_S, None), counts, strict=True) if count]

    def frames(self, streams: Streams, in_flight: int) -> FramesCounted:
        """All of clients since the start."""
        arrived = self.outcomes.total() + in_flight
        return FramesCounted(arrived, streams.met, self.outcomes["OK"], self.latency_s, in_flight)

    def service(self, stage: int, place: str) -> PlainSeries:
        """The histogram of what a stage's parts take on a place."""
        service = self._services.get((stage, place))
        if service is None:
            service = self._services[stage, place] = self._service.labels(stage, place)
        return service

    def run(self, stage: int, place: str, frames: int) -> None:
        """So many frames shared a run, of a stage whose runs may have several."""
        self._runs.labels(stage, place).observe(frames)

    def dropped(self, place: str, seconds: float) -> None:
        """An emulated place has given up making up for so much lateness."""
        self.metrics.counter("shisha_pacing_dropped_seconds").labels(place).inc(seconds)

    def plan_ended(self, others: Iterable[Plan]) -> None:
        """Beyond so many, the oldest series of stages that no other plan has on that place are dropped."""
        used = {(i, lead) for plan in others for i, stage in enumerate(plan.stages) for lead in stage.leads}
        spare = [series for series in self._services if series not in used]
        for series in spare[: max(0, len(spare) - MOST_SERIES)]:
            del self._services[series]
            self._service.remove(*series)
            self._runs.remove(*series)

    def trial(self, verdict: str, moves: int) -> None:
        self.metrics.counter("shisha_tuner_trials").labels(verdict).inc()
        self.metrics.counter("shisha_tuner_moves").inc(moves)

    def solved(self, solver: str) -> None:
        self.metrics.counter("shisha_placement_solves").labels(solver).inc()

    def restarted(self, place: str) -> None:
        self.metrics.counter("shisha_worker_restarts").labels(place).inc()

    def settled(self, ending: str) -> None:
        self.metrics.counter("shisha_plan_proposals").labels(ending).inc()
