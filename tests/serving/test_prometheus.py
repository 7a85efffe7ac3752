"""A real Prometheus server scrapes a daemon that tunes itself, and is asked what it has seen: all that the dashboard,
the rules and the page of metrics ask.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from benchmarks.report.dashboard import filled_in, load_dashboard, queries
from benchmarks.rigs.prometheus import HINT, MISSING, Prometheus, prometheus
from benchmarks.rigs.servers import free_ports
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import Load, assert_kept
from tests.serving.tuned import await_trials, events, tuned, tuner, verdicts
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=HINT)

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
QUESTION: Final = re.compile(r"^\| [^|`]+ \| `((?:[^`\\]|\\\|)+)` \|$", re.MULTILINE)
NAME: Final = re.compile(r"\b(?:shisha|process|instance)\w*(?::\w+)*(?=[{\[\s)]|$)")
EMPTY_HERE: Final = {
    "shisha_http_requests_total": "it serves no HTTP",
    "shisha_access_refused_total": "nobody is refused",
    "shisha_memory_reserved_bytes_total": "its memories have no limit",
    "shisha_memory_bandwidth_bytes_per_second": "its memories have no limit",
    "shisha_device_speed_ratio": "its places have no devices",
    "shisha_placement_cost_seconds": "its places have no devices",
    "shisha_tuner_gap_ratio": "NaN: `shisha` knows no bound",
    "shisha_load_ratio": "NaN: the objective is not auto",
    'emulated="false"': "both places are emulated",
    "> (shisha_worker_restarts_total": "no worker dies",
    "ALERTS": "nothing is wrong",
}
"""What the queries that have these words find nothing of with this daemon, and why."""
AMID_FRAMES: Final = (
    "rate(shisha_frames_total[1m]) > 0",
    "histogram_quantile(0.5, rate(shisha_frame_latency_seconds_bucket[1m]))",
    "rate(shisha_stage_service_seconds_sum[1m]) / rate(shisha_stage_service_seconds_count[1m])",
)
"""What takes two scrapes with frames between them: without a load it would never come."""
ENDINGS: Final = ("live", "refused", "dropped")


@dataclass(frozen=True, slots=True)
class Scraped:
    daemon: DaemonProcess
    asked: Prometheus
    sent: int


@pytest.fixture(scope="module")
def scraped(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A daemon that is tuned under load, and paused after two trials, and the server that has watched it."""
    folder = tmp_path_factory.mktemp("scraped")
    address = (
        f"127.0.0.1:{free_ports(1)[0]}"  # Prometheus takes 5 s before it asks anybody: it has them while this starts
    )
    # A page that is not there within the interval is a scrape that failed: on a busy host half a second is little.
    with prometheus(address, folder, "1s") as asked, tuned(identity, folder, "--fresh", "--metrics", address) as daemon:
        client = daemon.control
        until(lambda: asked.now("shisha_plan_epoch"), "the plan before any trial: none begins without frames")
        with Load(daemon.endpoint) as load:
            await_trials(client, 2, load)
            await_found(asked, AMID_FRAMES)
            client.call("tuner_set", pause=True)
        assert_kept(load)
        yield Scraped(daemon, asked, load.sent)


def test_what_it_scrapes_is_what_happened(scraped: Scraped) -> None:
    client = scraped.daemon.control

    def ask(query: str) -> dict[str, float]:
        return values(scraped.asked, query)

    def comes_to(query: str, expected: Callable[[], Mapping[str, float]]) -> None:
        """What is expected may still change, as a plan that was on its way goes live."""
        until(lambda: ask(query) == expected(), f"{query} as the daemon has it", every_s=0.1)

    def endings() -> dict[str, float]:
        counts = {ending: len(events(client, f"plan_{ending}")) for ending in ENDINGS}
        return {ending: count for ending, count in counts.items() if count}

    def always(expected: dict[str, float]) -> Callable[[], dict[str, float]]:
        return lambda: expected

    comes_to("up", always({"": 1}))
    comes_to("shisha_frames_total", always({"OK": scraped.sent}))
    comes_to("shisha_frame_latency_seconds_count", always({"": scraped.sent}))
    comes_to("shisha_frames_in_flight", always({"": 0}))
    comes_to("shisha_plan_epoch", lambda: {"": client.plan()["epoch"]})
    comes_to("shisha_tuner_trials_total", lambda: verdicts(events(client, "trial")))
    comes_to("sum(shisha_tuner_trials_total)", lambda: {"": tuner(client)["trials_total"]})
    comes_to("shisha_tuner_moves_total", lambda: {"": tuner(client)["moves_total"]})
    comes_to("shisha_tuner_state == 1", always({"paused": 1}))
    comes_to("shisha_plan_proposals_total", endings)
    comes_to("max by (place) (shisha_place_speed_ratio)", always({"fast0": 0.45, "slow0": 0.05}))
    comes_to('sum by (place) (shisha_place_state{shisha_place_state="up"})', always({"fast0": 1, "slow0": 1}))
    comes_to("sum by (place) (shisha_place_state)", always({"fast0": 1, "slow0": 1}))
    assert endings()["live"] > 1


def test_promtool_finds_nothing_to_say_about_the_page(scraped: Scraped) -> None:
    with urllib.request.urlopen(scraped.daemon.metrics, timeout=PATIENCE_S) as answer:
        page = answer.read()
    assert b"shisha_tuner_trials_total{" in page
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_query_of_the_dashboard_finds_something(scraped: Scraped) -> None:
    asked = scraped.asked
    exprs = {filled_in(query.expr, asked.instance, step_s=1, rate_s=60) for query in queries(load_dashboard())}
    await_found(asked, [expr for expr in exprs if not is_empty_here(expr)])
    assert [expr for expr in exprs if is_empty_here(expr) and finds(asked, expr)] == []


def test_every_query_of_the_page_finds_something(scraped: Scraped) -> None:
    asked = [query.replace("\\|", "|") for query in QUESTION.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(asked) > 5
    if scraped.daemon.control.status()["host"]["quota_cores"] is None:  # then a part of no periods is no number
        asked = [query for query in asked if "shisha_host_periods" not in query]
    await_found(scraped.asked, [query for query in asked if not is_empty_here(query)])


def test_every_rule_has_something_to_go_by_and_no_alert_fires(scraped: Scraped) -> None:
    asked = scraped.asked
    until(lambda: all(rule["health"] == "ok" for rule in asked.rules()), "rules that are well", every_s=0.1)
    rules = asked.rules()
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    await_found(asked, recorded)
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    assert {rule["name"]: rule["alerts"] for rule in alerts if rule["state"] == "firing"} == {}
    names = {name for rule in rules for name in NAME.findall(rule["query"])} - {"instance"}
    assert {"shisha_frames_in_flight", "process_open_fds", recorded[0]} - names == set()
    await_found(asked, [name for name in names if not is_empty_here(name)])


def finds(asked: Prometheus, query: str) -> bool:
    """Whether it ever had a value since the server began."""
    results = asked.over(query, asked.began_s, time.time())
    return any(math.isfinite(value) for series in results for _, value in series.points)


def await_found(asked: Prometheus, wanted: Iterable[str]) -> None:
    """Until each has had a value: of two scrapes, or of a rule, the second may be still to come."""
    for query in sorted(wanted):
        until(lambda query=query: finds(asked, query), f"a value of {query}", every_s=0.1)  # type: ignore[misc]


def values(asked: Prometheus, query: str) -> dict[str, float]:
    """What a query gives now, by its only label but `instance` and `job` (or '')."""
    by_label = {}
    for series in asked.now(query):
        (label,) = [v for name, v in series.labels.items() if name not in ("__name__", "instance", "job")] or [""]
        ((_, by_label[label]),) = series.points
    return by_label


def is_empty_here(query: str) -> bool:
    return any(words in query for words in EMPTY_HERE)
