"""Splits in a running daemon: its own choice of plan, results of frames, and the death of a shard's worker.

Every frame is checked: it must be answered once, in order, and like the first answer to the same input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.report.results import Row
from benchmarks.rigs.journal import events_since
from benchmarks.rigs.profiled import profiled
from benchmarks.rigs.steady_load import SteadyLoad, Tally
from benchmarks.splits.emulated import slowed_places
from benchmarks.splits.plans import Shared, nearest_shares, plan_with, way_of
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client
from shisha_rt.errors import Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.form import plan_of
from shisha_rt.plan.plan import Plan

_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02
_FRAMES: Final = 3
_LEFT_OUT: Final = 3
"""First answers under a plan that do not count, as the plan before may have delayed them."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A network on two places of these speeds, and options of the daemon.

    `memory_bytes`: of each place; `in_flight`: frames; `tuning_s`: after which the tuner is stopped at the latest.
    """

    title: str
    model: str
    speeds: tuple[float, float]
    options: tuple[str, ...] = ()
    memory_bytes: int | None = None
    in_flight: int = 1
    tuning_s: float = 90.0
    rounds: int = 3
    seconds: float = 1.5


FULL: Final = (
    Served("no place has room for fc6", "vgg19", (1.0, 1.0), ("--objective", "latency"), 330_000_000),
    Served("unlike places, latency", "alexnet", (1.0, 0.4), ("--objective", "latency", "--no-replicate")),
    Served("unlike places, latency, copies allowed", "alexnet", (1.0, 0.4), ("--objective", "latency")),
    Served("unlike places, latency", "vgg19", (1.0, 0.4), ("--objective", "latency", "--no-replicate"), seconds=3.0),
    Served("throughput, copies forbidden", "alexnet", (1.0, 1.0), ("--no-replicate",), in_flight=8),
    Served("throughput, copies allowed", "alexnet", (1.0, 1.0), in_flight=8),
)
QUICK: Final = FULL[1:2]
KILLED: Final = ("alexnet", 2, "channels")


def served_row(case: Served) -> Row:
    """A row for a case: the first and the final plan, in turns; and results of all frames."""
    with slowed_places(case.speeds, memory_bytes=case.memory_bytes) as machine:
        profiled(case.model, machine, "guided")
        found: dict[str, object] = {"case": case.title, "network": case.model, "speeds": _listed(case.speeds)}
        found["without splits"], found["with splits"] = (_planned(case, machine, split) for split in (False, True))
        whole = _whole_answers(case.model)
        arguments = (f"zoo:{case.model}", "--machine", machine.source, "--fresh", *case.options)
        with child_daemon(*arguments) as daemon, Client(daemon.endpoint, timeout_s=_TIMEOUT_S) as control:
            first = plan_of(control.plan()["stages"])
            before = _difference(whole, _answers(control))
            with SteadyLoad(daemon.endpoint, case.in_flight) as load:
                began_s = time.time()
                _wait(load, lambda: _has_tuned(control), case.tuning_s)
                control.call("tuner_set", pause=True)
                found["tuned s"] = time.time() - began_s
                found["to its end"] = "yes" if _has_tuned_once(control) else "no: the plan kept was being tried"
                last = plan_of(control.plan()["stages"])
                events = events_since(control)
                plans = (first, last) if last != first else (first,)
                rounds = range(case.rounds if last != first else 1)
                taken = [[_frame_s(control, load, plan, case.seconds) for plan in plans] for _ in rounds]
                tally = load.stop()
            after = _difference(whole, _answers(control))
        trials = [event for event in events if event["kind"] == "trial"]
    medians_s = [median(its) for its in zip(*taken, strict=True)]
    before_s, after_s = medians_s[0], medians_s[-1]
    return {
        **found,
        "off the whole's": max(before, after),
        "trials": len(trials),
        "with a split": sum(any("split" in stage for stage in trial["stages"]) for trial in trials),
        "frame ms, first plan": 1e3 * before_s,
        "frame ms, plan kept": 1e3 * after_s,
        "kept / first": after_s / before_s,
        **_told(tally),
        "first plan": str(first),
        "plan kept": str(last),
    }


def killed_rows(times: int, model: str = KILLED[0], layer: int = KILLED[1], axis: str = KILLED[2]) -> Iterator[Row]:
    """A worker of a split killed under load, at either place: how long until the next answer."""
    path = resolve_model(f"zoo:{model}", print)
    with slowed_places((1.0, 1.0)) as machine, contextlib.ExitStack() as closing:
        ready = make_ready(path, machine, on_progress=print)
        names = [place.name for place in machine.places]
        way = way_of(tuple(ready.rules.splits.values()), layer, axis)
        shared = Shared(way, nearest_shares(way, (0.5, 0.5)), (names[0], names[1]))
        plan = plan_with(len(ready.compiled.layers), names[0], [shared])
        options = ("--machine", machine.source, "--strategy", "seed", "--fresh")
        daemon = closing.enter_context(child_daemon(f"zoo:{model}", *options))
        control = closing.enter_context(Client(daemon.endpoint, timeout_s=_TIMEOUT_S))
        _take(control, plan)
        load = closing.enter_context(SteadyLoad(daemon.endpoint, 4))
        rows = []
        for number in range(times):
            if plan_of(control.plan()["stages"]) != plan:
                _take(control, plan)
            time.sleep(1.5)
            rows.append(_kill(control, load, names[number % 2]))
        time.sleep(1.0)
        tally = load.stop()
        replayed = control.status()["frames"]["replayed"]
    for row in rows:
        yield {"network": model, "split": f"{shared.part(0)}", **row, **_told(tally), "replayed": replayed}


def _kill(control: Client, load: SteadyLoad, name: str) -> dict[str, object]:
    usual_s = median(_gaps([at_s for at_s, _ in load.answers[-20:]]))
    before, epoch = _place(control, name), control.plan()["epoch"]
    since, began_s = len(load.answers), time.time()
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        its = _place(control, name)
        return bool(its["restarts"] > before["restarts"] and its["state"] == "up")

    _wait(load, is_back, _TIMEOUT_S)
    back_s = time.time() - began_s
    answered = len(load.answers)
    _wait(load, lambda: len(load.answers) > answered + 5, _TIMEOUT_S)
    times_s = [at_s for at_s, _ in load.answers[max(0, since - 1) :]]
    return {
        "killed": name,
        "usual gap ms": 1e3 * usual_s,
        "longest gap ms": 1e3 * max(_gaps(times_s)),
        "place back after ms": 1e3 * back_s,
        "plan changed": "no" if control.plan()["epoch"] == epoch else "yes",
    }


def _planned(case: Served, machine: Machine, split: bool) -> str:
    """The result of `plan` in another process: the outcome, and the time of the slowest stage."""
    command = [sys.executable, "-m", "shisha_rt", "plan", f"zoo:{case.model}", "--machine", machine.source]
    options = ["--strategy", "exact", "--split" if split else "--no-split", "--json"]
    if "latency" in case.options:
        options += ["--objective", "latency"]
    if "--no-replicate" not in case.options:
        options += ["--replicate"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True)
    if not ran.stdout:
        raise Failure(f"plan: {ran.stderr.strip()}")
    answer = json.loads(ran.stdout)
    seconds = answer["latency_s" if "latency" in case.options else "bottleneck_s"]
    return answer["outcome"] if seconds is None else f"{answer['outcome']}, {1e3 * seconds:.4g} ms"


@cache
def _whole_answers(model: str) -> list[Array]:
    """Answers from one place without a split and with enough memory."""
    with slowed_places((1.0,)) as machine:
        options = ("--machine", machine.source, "--strategy", "seed", "--fresh")
        with child_daemon(f"zoo:{model}", *options) as daemon, Client(daemon.endpoint, timeout_s=_TIMEOUT_S) as control:
            return _answers(control)


def _answers(control: Client) -> list[Array]:
    frames = random_frames(model_inputs(control.metadata()["model"]), _FRAMES, seed=0)
    return [np.array(next(iter(control.infer(frame).outputs.values()))) for frame in frames]


def _difference(whole: Sequence[Array], others: Sequence[Array]) -> float:
    """The largest difference, over the largest value."""
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in zip(whole, others, strict=True))


def _has_tuned_once(control: Client) -> bool:
    return any(event["kind"] == "tuning_ended" for event in events_since(control))


def _has_tuned(control: Client) -> bool:
    return _has_tuned_once(control) and control.call("tuner_get")["tuner"]["state"] == "watching"


def _frame_s(control: Client, load: SteadyLoad, plan: Plan, seconds: float) -> float:
    """Seconds per frame under a plan, by its answers."""
    epoch = _take(control, plan)
    end_s = time.time() + seconds

    def times_s() -> list[float]:
        return [at_s for at_s, its in load.answers if its == epoch][_LEFT_OUT:]

    _wait(load, lambda: time.time() > end_s and len(times_s()) > _LEFT_OUT, _TIMEOUT_S)
    found = times_s()
    return (found[-1] - found[0]) / (len(found) - 1)


def _take(control: Client, plan: Plan) -> int:
    settled = control.set_plan(plan)
    if settled["outcome"] != "live":
        raise Failure(f"{plan} is {settled['outcome']}: {settled['reason']}")
    return int(settled["epoch"])


def _wait(load: SteadyLoad, came: Callable[[], bool], most_s: float) -> None:
    """Wait until `came` holds, for at most `most_s`."""
    end_s = time.monotonic() + most_s
    while not came() and time.monotonic() < end_s:
        load.check()
        time.sleep(_LOOK_EVERY_S)


def _place(control: Client, name: str) -> dict[str, Any]:
    return next(place for place in control.status()["places"] if place["name"] == name)


def _gaps(times_s: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times_s)]


def _told(tally: Tally) -> dict[str, object]:
    return {
        "sent": tally.sent,
        "answered": tally.answered,
        "lost": tally.lost,
        "refused": tally.errors,
        "out of order": tally.out_of_order,
        "different": tally.different,
    }


def _listed(speeds: Sequence[float]) -> str:
    return " and ".join(f"{speed:g}" for speed in speeds)
