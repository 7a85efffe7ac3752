"""Splits in a running daemon: its own choice of plan, and results of frames.

Every frame is checked: it must be answered once, in order, and like the first answer to the same input.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.report.results import Row
from benchmarks.rigs.control import events_since, is_watching, live_plan, set_live
from benchmarks.rigs.daemons import Rig, profiled
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client
from shisha_rt.errors import Failure
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan

_TIMEOUT_S: Final = 120.0
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
    Served("unlike places, latency", "alexnet", (1.0, 0.4), ("--objective", "latency")),
    Served("unlike places, latency", "vgg19", (1.0, 0.4), ("--objective", "latency"), seconds=3.0),
    Served("throughput", "alexnet", (1.0, 1.0), in_flight=8),
)
QUICK: Final = FULL[1:2]


@contextlib.contextmanager
def slowed_places(speeds: Sequence[float], memory_bytes: int | None = None) -> Iterator[Machine]:
    """A machine file of the first cores of this host, one for each of these speeds."""
    fastest = sorted(set(speeds), reverse=True)
    places = [
        f'[[place]]\nname = "core{core}"\ncores = [{core}]\nspeed = {speed}\nrank = {1 + fastest.index(speed)}\n'
        + (f"memory_bytes = {memory_bytes}\n" if memory_bytes is not None else "")
        for core, speed in zip(usable_cores(), speeds, strict=False)
    ]
    with tempfile.TemporaryDirectory() as folder:
        name = "speeds-" + "-".join(f"{speed:g}" for speed in speeds)
        path = Path(folder) / f"{name}.toml"
        path.write_text("\n".join(places), encoding="utf-8")
        yield load_machine(str(path))


def served_row(case: Served) -> Row:
    """A row for a case: the first and the final plan, in turns; and results of all frames."""
    with slowed_places(case.speeds, case.memory_bytes) as machine:
        profiled(case.model, machine)
        speeds = " and ".join(f"{speed:g}" for speed in case.speeds)
        row: dict[str, object] = {"case": case.title, "network": case.model, "speeds": speeds}
        row["without splits"], row["with splits"] = (_planned(case, machine, split) for split in (False, True))
        whole = _whole_answers(case.model)
        arguments = (f"zoo:{case.model}", "--machine", machine.source, "--fresh", *case.options)
        with Rig() as rig:
            daemon, control = rig.daemon(*arguments)
            first = live_plan(control)
            before = _difference(whole, _answers(control))
            with SteadyLoad(daemon.endpoint, case.in_flight) as load:
                began_s = time.time()
                load.wait(lambda: _has_tuned(control), case.tuning_s)
                control.call("tuner_set", pause=True)
                row["tuned s"] = time.time() - began_s
                row["to its end"] = "yes" if _has_tuned_once(control) else "no: the plan kept was being tried"
                last = live_plan(control)
                events = events_since(control)
                plans = (first, last) if last != first else (first,)
                rounds = range(case.rounds if last != first else 1)
                taken = [[_frame_s(control, load, plan, case.seconds) for plan in plans] for _ in rounds]
                tally = load.stop()
            after = _difference(whole, _answers(control))
        trials = [event for event in events if event["kind"] == "trial"]
    medians_s = [median(plan_s) for plan_s in zip(*taken, strict=True)]
    before_s, after_s = medians_s[0], medians_s[-1]
    return {
        **row,
        "off the whole's": max(before, after),
        "trials": len(trials),
        "with a split": sum(any("split" in stage for stage in trial["stages"]) for trial in trials),
        "frame ms, first plan": 1e3 * before_s,
        "frame ms, plan kept": 1e3 * after_s,
        "kept / first": after_s / before_s,
        **tally.row,
        "first plan": str(first),
        "plan kept": str(last),
    }


def _planned(case: Served, machine: Machine, split: bool) -> str:
    """The result of `plan` in another process: the outcome, and the time of the slowest stage."""
    command = [sys.executable, "-m", "shisha_rt", "plan", f"zoo:{case.model}", "--machine", machine.source]
    options = ["--strategy", "exact", "--replicate", "--split" if split else "--no-split", "--json"]
    if "latency" in case.options:
        options += ["--objective", "latency"]
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
        with Rig() as rig:
            return _answers(rig.daemon(f"zoo:{model}", *options)[1])


def _answers(control: Client) -> list[Array]:
    frames = random_frames(model_inputs(control.metadata()["model"]), _FRAMES, seed=0)
    return [np.array(next(iter(control.infer(frame).outputs.values()))) for frame in frames]


def _difference(whole: Sequence[Array], others: Sequence[Array]) -> float:
    """The largest difference, over the largest value."""
    return max(
        float(np.abs(reference - other).max() / np.abs(reference).max())
        for reference, other in zip(whole, others, strict=True)
    )


def _has_tuned_once(control: Client) -> bool:
    return any(event["kind"] == "tuning_ended" for event in events_since(control))


def _has_tuned(control: Client) -> bool:
    return _has_tuned_once(control) and is_watching(control)


def _frame_s(control: Client, load: SteadyLoad, plan: Plan, seconds: float) -> float:
    """Seconds per frame under a plan, by its answers."""
    epoch = set_live(control, plan)
    end_s = time.time() + seconds

    def times_s() -> list[float]:
        return [at_s for at_s, by_epoch in load.answers if by_epoch == epoch][_LEFT_OUT:]

    load.wait(lambda: time.time() > end_s and len(times_s()) > _LEFT_OUT, _TIMEOUT_S)
    answered_s = times_s()
    return (answered_s[-1] - answered_s[0]) / (len(answered_s) - 1)
