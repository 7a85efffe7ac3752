"""Throughput and latency from what the daemon counts."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from shisha_rt.daemon.counting import LATENCIES_S
from shisha_rt.daemon.metrics import PlainSeries
from shisha_rt.http.page.history import KEPT, History, Reading, percentile


def look(clock_s: float, latencies_s: list[float], set_by_s: float = 0.0) -> Reading:
    """As after these latencies in all, on a host whose time was set by so much."""
    series = PlainSeries(LATENCIES_S)
    for latency_s in latencies_s:
        series.observe(latency_s)
    pairs = [(bound, count) for bound, count in zip((*LATENCIES_S, None), series.counts, strict=True) if count]
    success = {"count": len(latencies_s), "ns": round(sum(latencies_s) * 1e9)}
    statistics = {"model_stats": [{"inference_stats": {"success": success}, "latency_counts": pairs}]}
    return Reading.of(clock_s + set_by_s, clock_s, statistics)


def test_percentiles_are_near_those_of_the_values() -> None:
    rng = random.Random(1)
    latencies_s = [rng.lognormvariate(-4, 0.7) for _ in range(5000)]
    history = History()
    history.saw(look(10.0, latencies_s[:1000]))
    history.saw(look(12.0, latencies_s))
    ((time_s, rate, mean_s, median_s, slow_s),) = history.since(0)
    later = sorted(latencies_s[1000:])
    assert (time_s, rate) == (12.0, 2000.0)
    assert mean_s == pytest.approx(sum(later) / len(later), rel=1e-3)
    assert median_s == pytest.approx(later[len(later) // 2], rel=0.05)
    assert slow_s == pytest.approx(later[int(0.99 * len(later))], rel=0.05)


def test_seconds_without_frames_and_without_a_daemon() -> None:
    history = History()
    history.saw(look(1.0, [0.01]))
    history.saw(look(2.0, [0.01]))
    history.missed(3.0)
    history.saw(look(4.0, [0.01] * 5))
    history.saw(look(5.0, [0.01] * 7))
    assert [sample[:2] for sample in history.since(0)] == [(2.0, 0.0), (3.0, None), (5.0, 2.0)]
    assert history.since(0)[0][2:] == (None, None, None)


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_a_host_whose_time_is_set_has_the_same_rate(set_by_s: float) -> None:
    """An hour ahead it was next to none, and an hour back a second was left out."""
    history = History()
    history.saw(look(1.0, []))
    history.saw(look(2.0, [0.01] * 5, set_by_s))
    assert [sample[:2] for sample in history.since(0)] == [(2.0 + set_by_s, 5.0)]


def test_a_daemon_that_counts_from_nothing_again_is_no_negative_rate() -> None:
    history = History()
    history.saw(look(1.0, [0.01] * 50))
    history.saw(look(2.0, [0.01] * 3))
    history.saw(look(3.0, [0.01] * 4))
    assert [sample[1] for sample in history.since(0)] == [1.0]


def test_a_reader_gets_what_is_new_to_it_and_no_more_than_is_kept() -> None:
    history = History()
    for second in range(KEPT + 101):
        history.saw(look(float(second), []))
    assert len(history.since(0)) == KEPT
    assert [sample[0] for sample in history.since(history.number - 2)] == [KEPT + 99, KEPT + 100]
    assert history.since(history.number) == []


def test_what_is_beyond_all_bounds_has_no_percentile() -> None:
    assert percentile([(0.1, 1), (math.inf, 9)], 0.5) is None
    assert percentile([], 0.5) is None
    assert percentile(sorted(Counter({0.1: 4}).items()), 1.0) == 0.1
