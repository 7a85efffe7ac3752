"""The effect on frames of a killed copy, and of a change of objective: `python -m benchmarks copies_disturbed`.

Two unthrottled cores with a copy of the whole network each; clients stream without a pause and check every answer (R1).
A frame that a dead worker was computing runs again on the same place, and later frames of its stream wait for it; so
there are several streams. Two disturbances, each several times:

- one copy's worker is killed. `longest gap`: between two answers, over the median gap, from the kill until the next
  worker is up; `while down`: throughput in that time over that of one place, which is half of the throughput before.
- the objective changes, to latency and back: the longest gap from the request until the plan for it is live.

The same figures over the second before each disturbance show the host's own variation (`quiet`).
"""

from __future__ import annotations

import bisect
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.profiled import profiled
from benchmarks.rigs.steady_load import SteadyLoad, Tally
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.errors import Failure
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.plan.plan import Plan

MODELS: Final = "squeezenet,resnet50"
_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02
_QUIET_S: Final = 1.5
_STREAMS: Final = 5
_IN_FLIGHT: Final = 2  # frames of each stream

_TOLD: Final = {
    "sent": "sent",
    "answered": "answered",
    "lost": "lost",
    "errors": "errors",
    "out_of_order": "out of order",
    "different": "different",
}

Times = Sequence[float]
"""Times of answers, ascending."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance from `began_s` to `ended_s`, when all was as before, or as requested."""

    what: str
    began_s: float
    ended_s: float

    def row(self, model: str, answered_s: Times) -> Row:
        quiet = _between(answered_s, self.began_s - _QUIET_S, self.began_s)
        within = _between(answered_s, self.began_s, self.ended_s)
        usual_s = median(_gaps(quiet))
        fps_before = 1 / usual_s if usual_s else 0.0
        fps = (len(within) - 1) / (within[-1] - within[0])
        return {
            "model": model,
            "what": self.what,
            "lasted_s": self.ended_s - self.began_s,
            "median_gap_ms": 1e3 * usual_s,
            "longest_gap_ms": 1e3 * max(_gaps(within)),
            "over_median": max(_gaps(within)) / usual_s,
            "quiet_over_median": max(_gaps(quiet)) / usual_s,
            "fps_before": fps_before,
            "fps_meanwhile": fps,
            "of_one_place": fps / (fps_before / 2),
        }


def _between(answered_s: Times, first_s: float, last_s: float) -> Times:
    """The answers between two times, and one more on either side, so that gaps across the ends count."""
    first, last = bisect.bisect_left(answered_s, first_s), bisect.bisect_left(answered_s, last_s)
    return answered_s[max(0, first - 1) : last + 1]


def _gaps(answered_s: Times) -> list[float]:
    return [after - before for before, after in pairwise(answered_s)]


class _Served:
    """A daemon under load that is disturbed."""

    def __init__(self, control: Client, loads: Sequence[SteadyLoad]) -> None:
        self._control = control
        self._loads = loads
        self.layers: int = control.status()["model"]["layers"]
        self.places: list[str] = [place["name"] for place in control.status()["places"]]

    def take_copies(self) -> None:
        end = self._control.set_plan(Plan.chain([(0, self.layers - 1, [(place,) for place in self.places])]))
        if end["outcome"] != "live":
            raise Failure(f"copies: {end['reason']}")

    def kill_copy(self, number: int) -> Disturbance:
        name = self.places[number % len(self.places)]
        before = self._place(name)
        began_s = time.time()
        os.kill(before["pid"], signal.SIGKILL)
        self._until(lambda: self._place(name)["restarts"] > before["restarts"] and self._place(name)["state"] == "up")
        return Disturbance("a copy is killed", began_s, time.time())

    def change_objective(self, objective: str) -> Disturbance:
        epoch = self._control.plan()["epoch"]
        began_s = time.time()
        self._control.call("tuner_set", objective=objective)
        self._until(lambda: self._control.plan()["epoch"] != epoch)
        return Disturbance(f"objective {objective}", began_s, time.time())

    def settle(self) -> None:
        self._until(lambda: self._control.call("tuner_get")["tuner"]["state"] == "watching")
        time.sleep(_QUIET_S)

    def _place(self, name: str) -> dict[str, Any]:
        return next(place for place in self._control.status()["places"] if place["name"] == name)

    def _until(self, came: Callable[[], bool]) -> None:
        end_s = time.monotonic() + _TIMEOUT_S
        while not came():
            for load in self._loads:
                load.check()
            if time.monotonic() > end_s:
                raise Failure(f"not within {_TIMEOUT_S:g} s")
            time.sleep(_LOOK_EVERY_S)


def measure(model: str, machine: str, times: int) -> tuple[list[Row], list[Tally]]:
    """Kills first, under a plan of copies; then objectives, under the daemon's own plans."""
    profiled(model, load_machine(machine), "guided")
    found: list[Disturbance] = []
    options = ("--machine", machine, "--strategy", "guided", "--fresh")
    with child_daemon(f"zoo:{model}", *options) as daemon, Client(daemon.endpoint, timeout_s=_TIMEOUT_S) as control:
        with contextlib.ExitStack() as closing:
            loads = [closing.enter_context(SteadyLoad(daemon.endpoint, _IN_FLIGHT)) for _ in range(_STREAMS)]
            served = _Served(control, loads)
            served.take_copies()
            for number in range(times):
                time.sleep(2 * _QUIET_S)
                found.append(served.kill_copy(number))
            control.call("tuner_set", restart=True)
            for _ in range(times):
                for objective in ("latency", "throughput"):
                    served.settle()
                    found.append(served.change_objective(objective))
            time.sleep(_QUIET_S)
        answered_s = sorted(at_s for load in loads for at_s, _ in load.answers)
        return [one.row(model, answered_s) for one in found], [load.tally for load in loads]


def copies_disturbed(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name, with two places.")] = "this-machine",
    times: Annotated[int, typer.Option(min=1, help="How often each disturbance is made.")] = 4,
) -> None:
    """What frames notice of a killed copy, and of a change of objective."""
    about = facts(f"copies_disturbed --models {models} --machine {machine} --times {times}")
    rows: list[Row] = []
    notes = ["gaps between answers; of_one_place: throughput meanwhile over half of that before"]
    for model in models.split(","):
        found, tallies = measure(model, machine, times)
        rows += found
        told = (f"{sum(getattr(tally, what) for tally in tallies)} {word}" for what, word in _TOLD.items())
        notes.append(f"{model}: {', '.join(told)}")
    show(f"copies, disturbed, {machine}", rows, notes)
    save_csv("copies_disturbed", rows, about | {"frames": "; ".join(notes[1:])})
