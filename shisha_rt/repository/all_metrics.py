"""One metrics page for all models: the pages of their daemons, each sample with a label `model`."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_PATIENCE_S: Final = 2.0
_OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0"


class ModelsCollector(Collector):
    """`pages`: URL of each daemon's page; `places`: number of places of each model. The page's thread calls both.

    `own`: counters of the host process, in no registry, as daemons have counters of the same names.
    """

    def __init__(
        self,
        pages: Callable[[], Mapping[str, str]],
        places: Callable[[], Mapping[str, int]],
        own: Iterable[Collector] = (),
    ) -> None:
        self._pages = pages
        self._places = places
        self._own = tuple(own)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are not known before the daemons serve."""
        return ()

    def collect(self) -> Iterator[Metric]:
        dealt = GaugeMetricFamily("shisha_model_places", "Places that a model has, shared ones too.", labels=["model"])
        for model, count in self._places().items():
            dealt.add_metric([model], count)
        yield dealt
        merged = {metric.name: metric for counter in self._own for metric in counter.collect()}
        for model, page in self._pages().items():
            for family in _families(page):
                metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                metric.samples += [
                    sample._replace(labels={"model": model, **sample.labels}) for sample in family.samples
                ]
        yield from merged.values()


def _families(page: str) -> Iterable[Metric]:
    """The daemon's metrics named `shisha_...`; none if it has just ended or does not answer.

    Metrics of its process are left out: the host process reports only its own.
    """
    asked = urllib.request.Request(page, headers={"Accept": _OPEN_METRICS})  # which has one family for each name
    try:
        with urllib.request.urlopen(asked, timeout=_PATIENCE_S) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))  # type: ignore[no-untyped-call]
    except (OSError, ValueError, HTTPException):  # the last: it ended amid its answer
        return ()
    return [family for family in families if family.name.startswith("shisha_")]
