"""From ready to the best plan under load: `python -m benchmarks best_plan`.

A client keeps several frames in flight from the start on, and the daemon tunes itself for throughput until it has
watched one plan for some seconds. Three starts with one cache: `cold`, with nothing known; `profiled`, with times of
engines and layers but no plan (`--fresh`); `kept`, with the final plan of the first start.

`best plan s`: from ready until the final plan served without interruption; `settled s`: until it was known to be the
best. `compared`: candidates compared with the plan that served; `trials`: plans that a search measured.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.progress import Progress
from benchmarks.report.results import RESULTS, Row, Spread, save_csv, show
from benchmarks.rigs.cache_place import cache_at
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.journal import events_since
from benchmarks.rigs.served import IN_FLIGHT
from benchmarks.rigs.tune import settle
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.model.zoo import resolve_model

MODELS: Final = "squeezenet,shufflenet,text_recogniser,inception_v1,resnet50"
STARTS: Final[Mapping[str, tuple[str, ...]]] = {"cold": (), "profiled": ("--fresh",), "kept": ()}
_TIMEOUT_S: Final = 60.0
_DECIDED: Final = ("comparison_ended", "tuning_ended", "tuning_resumed")


def best_plan(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds, each with a cache of its own.")] = 3,
) -> None:
    """Seconds and trials from ready to the best plan, by what an earlier start has left."""
    about = facts(f"best_plan --models {models} --rounds {count}")
    progress, rows = Progress("best_plan"), list[Row]()
    for model in models.split(","):
        readings: dict[str, list[dict[str, Any]]] = {start: [] for start in STARTS}
        for number in range(count):
            with tempfile.TemporaryDirectory(prefix="best-plan-") as folder, cache_at(Path(folder)):
                path = resolve_model(f"zoo:{model}")
                for start, options in STARTS.items():
                    progress.step(f"{model}: {start}, round {number + 1} of {count}")
                    readings[start].append(_start(path, *options))
        rows += [_row(model, start, readings[start]) for start in STARTS]
        save_csv("best_plan", rows, about)
    progress.done()
    show("From ready to the best plan", rows)
    print(f"written to {RESULTS}: best_plan.csv")


def _start(path: Path, *options: str) -> dict[str, Any]:
    with contextlib.ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="best-plan-daemon-"))
        objective = ("--objective", "throughput", *options)
        daemon = closing.enter_context(child_daemon(str(path), *objective, endpoint=f"ipc://{folder}/daemon"))
        asked, _ = closing.enter_context(child_process("benchmarks.rigs.arrivals_process", endpoint=daemon.endpoint))
        control = closing.enter_context(Client(daemon.endpoint, timeout_s=_TIMEOUT_S))
        settle(control, asked, in_flight=IN_FLIGHT)
        events = list(events_since(control))
        ready_s = next(event["time_s"] for event in events if event["kind"] == "ready")
        live = [event for event in events if event["kind"] == "plan_live"]
        decided = [event["time_s"] for event in events if event["kind"] in _DECIDED]
        return {
            "best plan s": max(0.0, live[-1]["time_s"] - ready_s),
            "settled s": max(0.0, decided[-1] - ready_s) if decided else 0.0,
            "compared": sum(event["kind"] == "plans_compared" for event in events),
            "trials": sum(event["kind"] == "trial" for event in events),
            "plan": live[-1]["plan"],
        }


def _row(model: str, start: str, readings: list[dict[str, Any]]) -> Row:
    return {
        "model": model,
        "start": start,
        **{name: Spread.of(reading[name] for reading in readings) for name in ("best plan s", "settled s")},
        **{name: statistics.median(reading[name] for reading in readings) for name in ("compared", "trials")},
        "plans": " / ".join(dict.fromkeys(reading["plan"] for reading in readings)),
    }
