"""Measurements by MLPerf's load generator: `python -m benchmarks loadgen --python PATH`.

`examples/loadgen.py` in turns on the daemon, which has tuned itself, and on plain ONNX Runtime (two copies with one
thread each, in LoadGen's own process, without a daemon or client). First `Offline`, in several rounds; then `Server` at
a fraction of the slower side's rate, where 99% of frames must be answered within ten times the time of one frame on a
core. VALID is LoadGen's own verdict, for runs shorter than MLPerf's rules require.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.progress import Progress
from benchmarks.report.results import Row, Spread, save_csv, show
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.served import IN_FLIGHT
from benchmarks.rigs.tune import tune
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.errors import Failure
from shisha_rt.model.zoo import zoo_path

_EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "loadgen.py"
_SYSTEMS: Final = ("daemon", "onnxruntime")
_LOAD: Final = 0.6
_TIMES: Final = 10
_MORE: Final = 1.5
"""Factor on the rate that LoadGen is told to expect: it sends all frames at once, and they must last long enough."""
_LEAST_QUERIES: Final = 800
"""LoadGen needs 662 for a 99th percentile."""


def loadgen(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "squeezenet,resnet50",
    seconds: Annotated[float, typer.Option(min=1, help="Of each run, at least.")] = 30.0,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Of each scenario.")] = 3,
    python: Annotated[Path, typer.Option(metavar="PATH", help="The interpreter that has LoadGen.")] = Path(
        sys.executable
    ),
) -> None:
    """MLPerf LoadGen, Offline and Server, against the daemon and plain ONNX Runtime."""
    progress = Progress("loadgen")
    rows: list[Row] = []
    for model in models.split(","):
        progress.step(model)
        with (
            child_daemon(f"zoo:{model}", "--objective", "throughput", "--fresh") as daemon,
            Client(daemon.endpoint, timeout_s=60) as control,
        ):
            with child_process("benchmarks.rigs.client_process", endpoint=daemon.endpoint, in_flight=IN_FLIGHT) as (
                client,
                _,
            ):
                tune(control, client)
            base = [str(python), str(_EXAMPLE), str(zoo_path(model, print)), "--endpoint", daemon.endpoint]
            allows = control.status()["throughput_fps"]
            lasts = ["--seconds", f"{seconds:g}", "--rate", f"{_MORE * allows:.1f}"]
            offline = _rounds([*base, "--scenario", "Offline", *lasts], count)
            rate = _LOAD * min(statistics.median(one["frames_per_s"] for one in offline[name]) for name in _SYSTEMS)
            best = max(statistics.median(one["frames_per_s"] for one in offline[name]) for name in _SYSTEMS)
            within_ms = _TIMES * 2e3 / best
            lasts = ["--seconds", f"{max(seconds, _LEAST_QUERIES / rate):.1f}"]
            asked = ["--scenario", "Server", *lasts, "--rate", f"{rate:.1f}", "--latency-ms", f"{within_ms:.1f}"]
            server = _rounds([*base, *asked], count)
            rows += [_row(model, found[name]) for found in (offline, server) for name in _SYSTEMS]
    progress.done()
    show("MLPerf LoadGen", rows, ["asked fps, within ms: of the scenario Server"])
    save_csv("loadgen", rows, facts(f"loadgen --models {models} --seconds {seconds:g} --rounds {count} --python PATH"))


def _rounds(command: list[str], count: int) -> dict[str, list[dict[str, Any]]]:
    """Results by system; the systems take turns."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in _SYSTEMS}
    for _ in range(count):
        for name in _SYSTEMS:
            done = subprocess.run([*command, "--system", name], capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failure(f"loadgen, {name}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
            found[name].append(json.loads(done.stdout))
    return found


def _row(model: str, runs: list[dict[str, Any]]) -> Row:
    first = runs[0]
    return {
        "model": model,
        "scenario": first["scenario"],
        "system": first["system"],
        "valid": f"{sum(one['result'] == 'VALID' for one in runs)} of {len(runs)}",
        "fps": Spread.of(one["frames_per_s"] for one in runs),
        "p99 ms": Spread.of(one["p99_ms"] for one in runs) if first["scenario"] == "Server" else None,
        "asked fps": first.get("asked_per_s"),
        "within ms": first.get("within_ms"),
    }
