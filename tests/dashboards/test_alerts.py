"""Each alert fires when it should and else not, in Prometheus' own tests of rules."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.report.dashboard import CONFIGS
from benchmarks.rigs.prometheus import HINT, MISSING
from tests.waiting import PATIENCE_S

needs_promtool: Final = pytest.mark.skipif(bool(MISSING), reason=HINT)
FOLDER: Final = CONFIGS / "prometheus"
ALERTS: Final = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
STEP_S: Final = 30
NONE: Final = "NoDaemonIsScraped"
OK: Final = 'shisha_frames_total{outcome="OK"}'

Series = Mapping[str, str]
"""What was scraped: a metric with its labels -> values in promtool's notation."""


def stays(value: float) -> str:
    return f"{value:g}+0x150"


def grows(per_s: float) -> str:
    return f"0+{per_s * STEP_S:g}x150"


@dataclass(frozen=True, slots=True)
class Case:
    """What makes an alert fire and what nearly does; when it is looked at; its labels beside those of the daemon."""

    fires: Series
    quiet: Series
    minutes: int = 20
    labels: tuple[tuple[str, str], ...] = ()


def share(outcome: str) -> Case:
    """Of answers with an error: one in 50 is too many, one in 200 is not."""
    failed = f'shisha_frames_total{{outcome="{outcome}"}}'
    return Case({OK: grows(49), failed: grows(1)}, {OK: grows(199), failed: grows(1)})


def tuner(state: str, minutes: int, quiet: str = "watching") -> Case:
    name = "shisha_tuner_state"
    return Case(
        {f'{name}{{{name}="{state}"}}': stays(1)},
        {f'{name}{{{name}="{state}"}}': stays(0), f'{name}{{{name}="{quiet}"}}': stays(1)},
        minutes,
    )


def in_buckets(*counted: tuple[str, str]) -> Series:
    return {f'shisha_frame_latency_seconds_bucket{{le="{le}"}}': values for le, values in counted}


BUSY: Final = {
    OK: grows(10),
    "shisha_pipeline_throughput_fps": stays(30),
    'shisha_stage_layers{stage="0",place="fast0"}': stays(3),
    'shisha_stage_layers{stage="1",place="slow0"}': stays(6),
    'shisha_stage_queue_frames{stage="0",place="fast0"}': stays(1),
}
SLOW0: Final = (("place", "slow0"),)
STARTED: Final = "process_start_time_seconds"
RESTARTS: Final = 'shisha_worker_restarts_total{place="slow0"}'
DROPPED: Final = 'shisha_pacing_dropped_seconds_total{place="slow0"}'
REFUSED: Final = 'shisha_access_refused_total{reason="http_no_token"}'
UP, STARTING, AWAY, GIVEN_UP = (
    f'shisha_place_state{{place="slow0",shisha_place_state="{state}"}}'
    for state in ("up", "starting", "away", "given_up")
)
QUEUE: Final = 'shisha_stage_queue_frames{stage="1",place="slow0"}'

CASES: Final[Mapping[str, Case]] = {
    "DaemonDown": Case({"up": stays(0)}, {"up": stays(1)}),
    NONE: Case({}, {"up": stays(1)}),
    "DaemonRestarts": Case({STARTED: "1+0x9 2+0x9 3+0x9 4+0x60"}, {STARTED: "1+0x9 2+0x9 3+0x60"}),
    "FileDescriptorsRunOut": Case(
        {"process_open_fds": stays(900), "process_max_fds": stays(1024)},
        {"process_open_fds": stays(700), "process_max_fds": stays(1024)},
    ),
    "FramesHang": Case(
        {"shisha_frames_in_flight": stays(3), OK: stays(700)}, {"shisha_frames_in_flight": stays(3), OK: grows(0.1)}
    ),
    "FramesFail": share("INTERNAL"),
    "FramesAreRefused": share("RESOURCE_EXHAUSTED"),
    "DeadlinesAreMissed": share("DEADLINE_EXCEEDED"),
    "FramesAreSlow": Case(
        in_buckets(("1", grows(98)), ("2", grows(100)), ("+Inf", grows(100))),
        in_buckets(("1", grows(100)), ("2", grows(100)), ("+Inf", grows(100))),
    ),
    "ThroughputFarBelowPlan": Case({**BUSY, QUEUE: stays(5)}, {**BUSY, QUEUE: stays(1)}),
    "ClientsDoNotRead": Case(
        {"shisha_answers_undeliverable_total": "0+0x30 7+0x370"}, {"shisha_answers_undeliverable_total": stays(7)}
    ),
    "ConnectionsCut": Case(
        {"shisha_connections_cut_total": "0+0x30 1+0x370"}, {"shisha_connections_cut_total": stays(1)}
    ),
    "WorkersDie": Case({RESTARTS: "0+0x30 4+0x370"}, {RESTARTS: "0+0x30 2+0x370"}, labels=SLOW0),
    "PlaceGivenUp": Case({GIVEN_UP: stays(1), UP: stays(0)}, {GIVEN_UP: stays(0), UP: stays(1)}, labels=SLOW0),
    # It starts, is away, and starts again: however its state changes meanwhile, it is not up.
    "PlaceIsNotUp": Case(
        {STARTING: "1+0x9 0+0x9 1+0x9 0+0x60", AWAY: "0+0x9 1+0x9 0+0x9 1+0x60"},
        {STARTING: "1+0x2 0+0x150", AWAY: stays(0)},
        minutes=9,
        labels=SLOW0,
    ),
    "PacingDropsLateness": Case({DROPPED: grows(0.02)}, {DROPPED: grows(0.005)}, labels=SLOW0),
    "TunerHasNoCosts": tuner("no_costs", 5),
    "TunerWaitsForCosts": tuner("profiling", 40),
    "TuningDoesNotEnd": tuner("tuning", 70),
    "AccessRefused": Case(
        {REFUSED: "_x30 12+0x370"}, {REFUSED: "0+0x30 8+0x370"}, labels=(("reason", "http_no_token"),)
    ),
    "HttpErrors": Case(
        {'shisha_http_requests_total{status="200"}': grows(49), 'shisha_http_requests_total{status="500"}': grows(1)},
        {'shisha_http_requests_total{status="200"}': grows(49), 'shisha_http_requests_total{status="404"}': grows(9)},
    ),
}


def of_daemon(series: str, instance: str, model: str = "") -> str:
    """`model`: empty in a daemon of one model, whose series have no such label."""
    name, _, labels = series.partition("{")
    of_model = f'model="{model}",' if model else ""
    return f'{name}{{job="shisha",instance="{instance}",{of_model}{labels or "}"}'


def is_told_by_model(case: Case) -> bool:
    return all(name.startswith("shisha_") for name in case.fires)


def world(series: Mapping[str, str], looks: list[dict[str, Any]]) -> dict[str, Any]:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": f"{STEP_S}s", "input_series": inputs, "promql_expr_test": looks}


def look(alert: str, case: Case, *where: Mapping[str, str]) -> dict[str, Any]:
    """The alert fires for whatever has these labels, and for nothing else."""
    names = ("job", "instance", "model", *dict(case.labels))
    samples = []
    for of_whom in where:
        labels = {"job": "shisha", **of_whom, **dict(case.labels)}
        written = ",".join(f'{name}="{value}"' for name, value in labels.items())
        samples.append({"labels": f"{{{written}}}", "value": 1})
    return {
        "expr": f'count by ({",".join(names)}) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": f"{case.minutes}m",
        "exp_samples": samples,
    }


def crowd(cases: Mapping[str, Case], looks: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Two daemons for each alert, and one of two models, of which one has what makes the alert fire."""
    series: dict[str, str] = {}
    own_looks: list[dict[str, Any]] = []
    for alert, case in cases.items():
        models = f"models of {alert}" if is_told_by_model(case) else ""
        daemons = [(case.fires, alert, ""), (case.quiet, f"not {alert}", "")]
        daemons += [(case.fires, models, "a"), (case.quiet, models, "b")] * bool(models)
        for its_series, instance, model in daemons:
            series |= {of_daemon(name, instance, model): values for name, values in its_series.items()}
        fires_at = [{"instance": alert}, *[{"instance": models, "model": "a"}] * bool(models)]
        if alert != NONE:
            own_looks.append(look(alert, case, *fires_at))
    return world(series, [*own_looks, *looks])


def blocks() -> dict[str, str]:
    """By alert, what its rule says."""
    _, *rest = ALERTS.split("- alert: ")
    return {block.split("\n", 1)[0]: block.split("\n  - name:")[0] for block in rest}


def test_every_alert_has_a_case_and_says_what_to_do() -> None:
    assert list(blocks()) == list(CASES)
    page = (CONFIGS.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [alert for alert in CASES if f"| `{alert}` |" not in page] == []
    for alert, block in blocks().items():
        assert re.search(r"labels: \{severity: (critical|warning|info)\}", block), alert
        assert re.search(r'summary: ".+"\n\s+description: >-\n\s+\S', block), alert
        known = {name for name, _ in CASES[alert].labels} | (set() if alert == NONE else {"instance"})
        assert set(re.findall(r"\$labels\.(\w+)", block)) <= known, alert


def test_rules_tell_models_apart() -> None:
    rules = (FOLDER / "recording_rules.yml").read_text(encoding="utf-8") + ALERTS
    groups = [group.split(", ") for group in re.findall(r"\b(?:by|on) \(([^)]+)\)", rules)]
    assert len(groups) > 10
    assert [group for group in groups if group[:3] != ["job", "instance", "model"]] == []


@needs_promtool
def test_alerts_fire_when_they_should_and_else_not(tmp_path: Path) -> None:
    """Many daemons in one world: what makes one alert fire leaves the others quiet, too."""
    soon: dict[str, Case] = {}
    late: dict[str, Case] = {}
    for alert, case in CASES.items():
        (soon if case.minutes <= 20 else late)[alert] = case
    none = {"expr": f'ALERTS{{alertname="{NONE}"}}', "eval_time": "20m", "exp_samples": []}
    about = {
        "rule_files": [str(FOLDER / name) for name in ("recording_rules.yml", "alerts.yml")],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [crowd(soon, [none]), crowd(late), world({}, [look(NONE, CASES[NONE], {})])],
    }
    path = tmp_path / "alerts_test.yml"
    path.write_text(json.dumps(about), encoding="utf-8")  # which YAML can be
    promtool("test", "rules", path)


@needs_promtool
@pytest.mark.parametrize(
    ("what", "names"), [("config", ["prometheus.yml"]), ("rules", ["recording_rules.yml", "alerts.yml"])]
)
def test_the_files_are_valid(what: str, names: list[str]) -> None:
    promtool("check", what, *(FOLDER / name for name in names))


def promtool(*arguments: object) -> None:
    """It must find nothing wrong."""
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
