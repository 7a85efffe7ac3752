"""A first start beside a busy neighbour, against a calm one: `python -m benchmarks busy_start`.

A daemon without stored profiles or plans serves a client that always has several frames in flight. `busy`: another
program uses one core fully from before the start until the daemon has served for a minute; then the host is calm.
`calm`: no other program runs. After another minute the rate of each side is measured, and the latency of one frame at a
time, as the objective follows the load. Sides take turns.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.control import live_plan
from benchmarks.rigs.daemons import Rig
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.model.zoo import resolve_model

BUSY, CALM = "busy", "calm"
_MEASURED_S: Final = 10.0
_HOG: Final = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while True: pass
"""


def busy_start(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "squeezenet,inception_v1",
    busy_s: Annotated[float, typer.Option(min=1.0, help="How long the neighbour stays, from when frames flow.")] = 60.0,
    after_s: Annotated[float, typer.Option(min=1.0, help="From then until what was found is measured.")] = 60.0,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 3,
) -> None:
    """A first start beside a program that takes a core, against a calm one: what is found in the end."""
    report, rows = Report("busy_start"), list[Row]()
    for model in models.split(","):
        report.step(model)
        starts = {side: partial(_start, model, busy_s, after_s, hogged=side == BUSY) for side in (CALM, BUSY)}
        readings = report.rounds(model, starts, count)
        for figure in ("frames/s", "ms alone"):
            busy, calm = ([reading[side][figure] for reading in readings] for side in (BUSY, CALM))
            over = (b / c if figure == "ms alone" else c / b for b, c in zip(busy, calm, strict=True))
            rows.append(
                {
                    "model": model,
                    "figure": figure,
                    CALM: Spread.of(calm),
                    BUSY: Spread.of(busy),
                    "worse by": Spread.of(over),
                    "at most": 1.05,
                    **{
                        f"plans, {side}": " / ".join(dict.fromkeys(each[side]["plans"][figure] for each in readings))
                        for side in (CALM, BUSY)
                    },
                }
            )
        report.save(rows)
    report.show("A first start beside a busy neighbour, a minute after it has gone", rows, ["worse by: of each round"])


def _start(model: str, busy_s: float, after_s: float, *, hogged: bool) -> dict[str, Any]:
    path = resolve_model(f"zoo:{model}")
    with fresh_cache(), contextlib.ExitStack() as neighbour, Rig() as rig:
        if hogged:
            neighbour.enter_context(_hog(usable_cores()[0]))
        control, asked = rig.served(str(path))
        asked.ask(seconds=busy_s, in_flight=IN_FLIGHT)
        neighbour.close()
        asked.ask(seconds=after_s, in_flight=IN_FLIGHT)
        fps = asked.ask(seconds=_MEASURED_S, in_flight=IN_FLIGHT)["fps"]
        under_load = str(live_plan(control))
        asked.ask(seconds=_MEASURED_S, in_flight=1)
        alone_fps = asked.ask(seconds=_MEASURED_S, in_flight=1)["fps"]
        plans = {"frames/s": under_load, "ms alone": str(live_plan(control))}
        return {"frames/s": fps, "ms alone": 1e3 / alone_fps, "plans": plans}


@contextlib.contextmanager
def _hog(core: int) -> Iterator[None]:
    """Start another program that uses a core fully."""
    with subprocess.Popen([sys.executable, "-c", _HOG, str(core)]) as hog:
        try:
            yield
        finally:
            hog.kill()
