"""From the start of a process to its first answer: `python -m benchmarks first_answer`.

The daemon with an empty cache (cold: it compiles the model) and with a full one (warm), and an ONNX Runtime session in
a fresh process; the model's file is present. A cold daemon measures costs of layers while it serves, so frames are sent
from its first answer on: how many it answers during that, and at what rate compared with afterwards.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, spreads
from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.control import is_watching
from benchmarks.rigs.resources import whole_pss_bytes
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client
from shisha_rt.model.zoo import resolve_model

MODELS: Final = "squeezenet,shufflenet,inception_v1"
_IN_FLIGHT: Final = 6
_PATIENCE_S: Final = 300.0
_AFTER_S: Final = 3.0
_SOON_S: Final = 0.002
_COLUMNS: Final = (
    *("engine_s", "cold_ready_s", "cold_s", "warm_ready_s", "warm_s", "warm - engine_s", "profiling_s"),
    *("frames answered meanwhile", "meanwhile_fps", "tuned_fps", "killed worker back_s", "all processes_mib"),
)


def first_answer(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name.")] = "this-machine",
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 3,
) -> None:
    """How long a user waits for the first answer, and what frames get while layers are measured."""
    report, rows = Report("first_answer"), list[Row]()
    for model in models.split(","):
        report.step(model)
        path = resolve_model(f"zoo:{model}", print)
        figures = spreads([_round(path, machine) for _ in range(count)])
        rows.append({"model": model, **{name: figures[name] for name in _COLUMNS}})
        report.save(rows)
    notes = ["medians over the rounds, and their quartiles", "warm - engine: at most 2 s is the aim"]
    report.show(f"start to first answer, {machine}", rows, notes)


def _round(path: Path, machine: str) -> dict[str, float]:
    """Seconds and frames of all sides, one after the other, so that each has the machine to itself."""
    started_s = time.monotonic()
    with child_process("benchmarks.rigs.first_session", path=str(path)):
        figures = {"engine_s": time.monotonic() - started_s}
    with fresh_cache():
        with _started(path, machine, figures, "cold") as daemon:
            figures |= _served(daemon)
        with _started(path, machine, figures, "warm") as daemon:
            figures |= _lost_and_found(daemon)
    return {**figures, "warm - engine_s": figures["warm_s"] - figures["engine_s"]}


@contextmanager
def _started(path: Path, machine: str, figures: dict[str, float], how: str) -> Iterator[ChildDaemon]:
    started_s = time.monotonic()
    with child_daemon(str(path), "--machine", machine) as daemon:
        figures[f"{how}_ready_s"] = time.monotonic() - started_s
        with Client(daemon.endpoint, timeout_s=_PATIENCE_S) as client:
            (frame,) = random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)
            client.infer(frame)
        figures[f"{how}_s"] = time.monotonic() - started_s
        yield daemon


def _lost_and_found(daemon: ChildDaemon) -> dict[str, float]:
    """How long the place of a killed worker has none, and the memory of all processes; shared memory counts once."""
    with Client(daemon.endpoint, timeout_s=_PATIENCE_S) as client:

        def workers() -> list[int | None]:
            return [place["pid"] if place["state"] == "up" else None for place in client.status()["places"]]

        while (victim := workers()[0]) is None:
            time.sleep(_SOON_S)
        mib = whole_pss_bytes(daemon.pid) / 2**20
        killed_s = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        while workers()[0] in (None, victim):
            time.sleep(_SOON_S)
        return {"killed worker back_s": time.monotonic() - killed_s, "all processes_mib": mib}


def _served(daemon: ChildDaemon) -> dict[str, float]:
    """Send frames without a pause, while layers are measured, and for a moment after the search that follows."""
    with Client(daemon.endpoint, timeout_s=_PATIENCE_S) as client, SteadyLoad(daemon.endpoint, _IN_FLIGHT) as load:
        _await(load, "the end of profiling", lambda: "profiling_ended" in _times_s(client))
        began_s, ended_s = (_times_s(client)[kind] for kind in ("profiling_began", "profiling_ended"))
        _await(load, "the end of tuning", lambda: is_watching(client))
        after_s = time.time()
        time.sleep(_AFTER_S)
        after = load.answered_since(after_s) / (time.time() - after_s)
        tally = load.stop()
    assert tally.clean, tally
    during = load.answered_since(began_s) - load.answered_since(ended_s)
    return {
        "profiling_s": ended_s - began_s,
        "frames answered meanwhile": during,
        "meanwhile_fps": during / (ended_s - began_s),
        "tuned_fps": after,
    }


def _times_s(client: Client) -> dict[str, float]:
    """The time of the last event of each kind."""
    return {event["kind"]: event["time_s"] for event in client.events(0, 10_000)["events"]}


def _await(load: SteadyLoad, what: str, came: Callable[[], bool]) -> None:
    if not load.wait(came, _PATIENCE_S):
        raise RuntimeError(f"{what} has not come after {_PATIENCE_S:g} s")
