"""Hostile HTTP clients: `python -m benchmarks hostile`.

A well-behaved client sends frames at random times, at a tenth of capacity: alone, beside 200 connections that are slow
or half open, and beside a client that sends malformed requests as fast as they are answered. Measured are its
latencies, and memory and descriptors of the daemon's processes before and after.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.daemons import Rig
from shisha_rt.tensors import NUMPY_OF
from tests.commands import command_of

_MIB: Final = 2**20
_BUSY: Final = 0.1
_PIECE_S: Final = 5.0


def hostile(
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = "squeezenet",
    seconds: Annotated[float, typer.Option(min=1, help="Of the polite client alone, and beside the slow ones.")] = 20.0,
    count: Annotated[int, typer.Option(min=1, help="Malformed requests.")] = 100_000,
    slow: Annotated[int, typer.Option(min=1, help="Slow or half-open connections.")] = 200,
) -> None:
    """A polite client of HTTP alone, beside slow connections, and beside malformed requests."""
    report = Report("hostile")
    with Rig() as rig:
        daemon, control = rig.daemon(f"zoo:{model}", "--http", "127.0.0.1:0", "--objective", "throughput")
        metadata = control.metadata()["model"]
        port = int(daemon.http[0].rpartition(":")[2])
        inputs = [tensor | {"dtype": NUMPY_OF[tensor["datatype"]].str} for tensor in metadata["inputs"]]
        polite = rig.child("http_process", ports=[port], model=metadata["name"], inputs=inputs, in_flight=4)
        strange = {"port": port, "model": metadata["name"], "tensor": metadata["inputs"][0], "seed": 0}
        strangers = rig.child("strangers_process", **strange)
        rate = _BUSY / polite.ask(seconds=2.0)["frame_s"]
        rows = [_row("alone", *_polite(polite, rate, seconds), daemon.pid, {})]
        for who, order in (
            (f"{slow} slow or half-open connections", {"slow": slow, "seconds": seconds}),
            (f"{count} malformed requests", {"malformed": count}),
        ):
            latencies_s, lost, answers = beside(polite, rate, strangers, order)
            rows.append(_row(who, latencies_s, lost, daemon.pid, answers))
        rows.append(_row("alone again", *_polite(polite, rate, seconds), daemon.pid, {}))
    first = rows[0]["p99 ms"]
    assert isinstance(first, float)
    rows = [{**row, "p99 / alone": row["p99 ms"] / first} for row in rows if isinstance(row["p99 ms"], float)]
    notes = ["answers: of the strangers, by status or whom the server cut off"]
    report.keep(f"strangers at the door, {model}", rows, notes)


def beside(
    polite: ChildProcess, rate: float, strangers: ChildProcess, order: Mapping[str, object]
) -> tuple[list[float], int, Mapping[str, int]]:
    """Results of the well-behaved client beside hostile ones with an order, and theirs. Raises what ends these."""
    latencies_s, lost = list[float](), 0
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(strangers.ask, **order)
        while not (latencies_s and going.done()):
            more_s, more_lost = _polite(polite, rate, _PIECE_S)
            latencies_s, lost = latencies_s + more_s, lost + more_lost
        return latencies_s, lost, going.result()["found"]


def _polite(client: ChildProcess, rate: float, seconds: float) -> tuple[list[float], int]:
    """Latencies in seconds of the well-behaved client, and how many frames failed, were refused or were lost."""
    generator = random.Random(0)
    gaps = [generator.expovariate(rate) for _ in range(max(1, round(rate * seconds)))]
    results = client.ask(arrivals=list(accumulate(gaps)))
    return results["latencies_s"], results["refused"] + results["failed"] + results["lost"]


def _row(who: str, latencies_s: list[float], lost: int, pid: int, answers: Mapping[str, Any]) -> Row:
    ordered = sorted(1e3 * latency_s for latency_s in latencies_s)
    return {
        "beside": who,
        "polite answers": len(ordered),
        "refused or lost": lost,
        "p50 ms": statistics.median(ordered),
        "p99 ms": ordered[int(0.99 * len(ordered))],
        **_held(pid),
        "answers": ", ".join(f"{status} {times}" for status, times in sorted(answers.items())) or None,
    }


def _held(pid: int) -> Row:
    """Memory and descriptors of the daemon and its HTTP process."""
    row: dict[str, float] = {}
    daemon = psutil.Process(pid)
    http = next(child for child in daemon.children() if "shisha_rt.http.process" in command_of(child))
    for name, process in (("daemon", daemon), ("http", http)):
        row[f"{name} MiB"] = process.memory_info().rss / _MIB
        row[f"{name} descriptors"] = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    return row
