"""Counters and histograms that every frame updates, cheap enough for the loop.

Those of the client library take a lock and walk through the buckets: about 4 us for each value, and each frame has
three. Here they are plain numbers that only the loop writes. The page's thread copies them on request, so a page may
show a value in a count that is not yet in the sum.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar


class CountsByLabel(Collector):
    """A counter with one label. `counts`: by the label's value."""

    def __init__(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> None:
        self._about = name, text, label
        self._counts = counts

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = self._family()
        for value, count in list(self._counts.items()):
            family.add_metric([value], count)
        yield family

    def _family(self) -> CounterMetricFamily:
        name, text, label = self._about
        return CounterMetricFamily(name, text, labels=[label])


class PlainSeries:
    """Number of values in each bucket, the last of which is above all bounds, and the values' sum.

    `exemplars`: by bucket, its last value that has a trace.
    """

    __slots__ = ("_bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def exemplify(self, value: float, trace_id: str) -> None:
        """Attach a trace to a value that has been observed."""
        exemplar = Exemplar({"trace_id": trace_id}, value, time.time())
        self.exemplars[bisect_left(self._bounds, value)] = exemplar


class PlainHistogram(Collector):
    """A series for each combination of labels; `bounds`: upper bounds of the buckets, in order."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._about = name, text, labels
        self._bounds = bounds
        self._series: dict[tuple[str, ...], PlainSeries] = {}
        if not labels:
            self.labels()

    def labels(self, *values: object) -> PlainSeries:
        """The series of these label values, made now if there is none."""
        key = tuple(map(str, values))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = PlainSeries(self._bounds)
        return series

    def remove(self, *values: object) -> None:
        """Remove the series of these label values, if there is one."""
        self._series.pop(tuple(map(str, values)), None)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = self._family()
        names = [*map(str, self._bounds), "+Inf"]
        for values, series in list(self._series.items()):
            counts, exemplars = accumulate(series.counts[:]), series.exemplars.copy()
            buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = [
                (name, count, exemplars[bucket]) if bucket in exemplars else (name, count)
                for bucket, (name, count) in enumerate(zip(names, counts, strict=True))
            ]
            family.add_metric(values, buckets, series.sum)
        yield family

    def _family(self) -> HistogramMetricFamily:
        name, text, labels = self._about
        return HistogramMetricFamily(name, text, labels=labels)
