"""Counters and histograms, updated as things happen: answers, parts, trials. `gauges.py` sets gauges periodically."""

from __future__ import annotations

import math
import time
from collections import Counter as Counts
from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Enum, Gauge

from shisha_rt.core.lifecycle.places import STANDINGS
from shisha_rt.core.lifecycle.streams import Streams
from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.core.tuning.state import WAITING, State
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.host_share import RELEASED
from shisha_rt.daemon.metrics import (
    BUCKETS_FRAMES,
    BUCKETS_S,
    COUNTERS,
    FRAMES,
    GAUGES,
    HISTOGRAMS,
    CountsByLabel,
    MetricsPage,
    PlainHistogram,
    PlainSeries,
)
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE

LATENCIES_S: Final = tuple(float(f"{1e-4 * 2 ** (step / 8):.4g}") for step in range(140))
"""Upper bounds of latency buckets: eight for each doubling, so that percentiles are known to within about 5%."""

MOST_SERIES: Final = 256
"""Most series (of 20 lines) that are kept for stages of no live plan: every plan tried may add some."""


class Counting(MetricsPage):
    """Every metric of one daemon, in a registry of its own (several daemons may share a process).

    `in_time`: answers with a result within `target_s`. `outcomes`: answers by OK or error code. `queue_s`,
    `compute_s`: sums over answers with a result. `failed_s`: summed latency of answers without. `by_shape`: answers
    with a result, by the number of their shape. `last_ms`: time of the last answer, in ms since 1970; 0: none yet.
    """

    def __init__(self, target_s: float = math.inf) -> None:
        super().__init__()
        self.target_s = target_s
        self.in_time = 0
        self.by_shape: Counts[int] = Counts()
        self.queue_s = self.compute_s = self.failed_s = 0.0
        self.last_ms = 0
        self.outcomes: Counts[str] = Counts()
        registry, (frames, text, (outcome,)) = self.registry, FRAMES
        registry.register(CountsByLabel(frames, text, outcome, self.outcomes))
        self.counters = {
            name: Counter(name, text, labels, registry=registry) for name, text, labels in COUNTERS if name != frames
        }
        self._gauges = {name: Gauge(name, text, labels, registry=registry) for name, text, labels in GAUGES}
        for name in ("shisha_tuner_gap_ratio", "shisha_load_ratio"):
            self.gauge(name).set(math.nan)
        self.tuner = Enum(
            "shisha_tuner_state",
            "What the tuner is doing.",
            states=[*(state.value for state in State), WAITING],
            registry=registry,
        )
        self.objective = Enum(
            "shisha_objective", "What the live plan is chosen for.", states=[*EVERY_OBJECTIVE], registry=registry
        )
        self.place = Enum(
            "shisha_place_state",
            "What has become of a place.",
            ("place",),
            states=[*STANDINGS, RELEASED],
            registry=registry,
        )
        latencies, self._service, self._runs = (self._histogram(*about) for about in HISTOGRAMS)
        # Looking a label up costs more than counting.
        self._services: dict[tuple[int, str], PlainSeries] = {}
        self._latency = latencies.labels()
        self._latencies = PlainSeries(LATENCIES_S)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> PlainHistogram:
        buckets = BUCKETS_S if name.endswith("_seconds") else BUCKETS_FRAMES
        histogram = PlainHistogram(name, text, labels, buckets)
        self.registry.register(histogram)
        return histogram

    def gauge(self, name: str) -> Gauge:
        return self._gauges[name]

    def answered(self, answer: Ticket) -> None:
        self.last_ms = time.time_ns() // 1_000_000
        if answer.error is not None:
            self.outcomes[answer.error.code.value] += answer.frames if answer.refused else 1
            self.failed_s += answer.latency_s
            return
        self.outcomes["OK"] += 1
        self.by_shape[answer.request.layout] += 1
        self.in_time += answer.latency_s <= self.target_s
        self._latency.observe(answer.latency_s)
        self._latencies.observe(answer.latency_s)
        self.queue_s += answer.queue_s
        self.compute_s += answer.compute_s

    def turned_away(self, frames: int) -> None:
        """Count frames that the HTTP process has refused on behalf of the full daemon."""
        if frames:
            self.outcomes[Error.TOO_MANY_FRAMES.code.value] += frames

    def exemplify(self, answer: Ticket, trace_id: str | None) -> None:
        """Attach the trace of an answer that has been counted, as an exemplar; None: its trace was not sent."""
        if trace_id is not None and answer.error is None:
            self._latency.exemplify(answer.latency_s, trace_id)

    @property
    def latency_s(self) -> float:
        return self._latency.sum

    def latencies(self) -> list[tuple[float | None, int]]:
        """(upper bound in seconds, answers) of each latency bucket that has any; None: the bucket above all bounds."""
        counts = self._latencies.counts
        return [(bound, count) for bound, count in zip((*LATENCIES_S, None), counts, strict=True) if count]

    def frames(self, streams: Streams, in_flight: int) -> FramesCounted:
        arrived = self.outcomes.total() + in_flight
        return FramesCounted(arrived, streams.met, self.outcomes["OK"], self.latency_s, in_flight)

    def service(self, stage: int, place: str) -> PlainSeries:
        """Histogram of the times of a stage's parts on a place."""
        service = self._services.get((stage, place))
        if service is None:
            service = self._services[stage, place] = self._service.labels(stage, place)
        return service

    def run(self, stage: int, place: str, frames: int) -> None:
        self._runs.labels(stage, place).observe(frames)

    def plan_ended(self, others: Iterable[Plan]) -> None:
        """Drop the oldest series of (stage, place) that no plan of `others` uses, beyond `MOST_SERIES`."""
        used = {(i, lead) for plan in others for i, stage in enumerate(plan.stages) for lead in stage.leads}
        spare = [series for series in self._services if series not in used]
        for series in spare[: max(0, len(spare) - MOST_SERIES)]:
            del self._services[series]
            self._service.remove(*series)
            self._runs.remove(*series)
