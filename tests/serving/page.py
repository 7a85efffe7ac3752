"""The metrics page, as a scraper reads it."""

from __future__ import annotations

import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.waiting import PATIENCE_S


def scrape(address: str) -> list[Sample]:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert all(family.documentation for family in families)
    return [sample for family in families for sample in family.samples]


def values(samples: list[Sample], name: str, label: str) -> dict[str, float]:
    """The samples of one name by the value of one label: sums over all others."""
    sums: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        if sample.name == name:
            sums[sample.labels[label]] += sample.value
    return dict(sums)


def standing(address: str) -> dict[str, str]:
    """What has become of each place."""
    name = "shisha_place_state"
    return {
        sample.labels["place"]: sample.labels[name]
        for sample in scrape(address)
        if sample.name == name and sample.value
    }


def value(samples: list[Sample], name: str) -> float:
    """The one sample of this name."""
    (reading,) = (sample.value for sample in samples if sample.name == name)
    return reading


def counter(address: str, name: str) -> Callable[[], float]:
    return lambda: value(scrape(address), name)


def shared_runs(address: str) -> tuple[Counter[str], Counter[str]]:
    """Of each stage: its runs, if they may have several frames, and the frames that these had."""
    samples = scrape(address)
    runs, frames = (
        Counter({stage: int(count) for stage, count in values(samples, f"shisha_run_frames_{what}", "stage").items()})
        for what in ("count", "sum")
    )
    return runs, frames
