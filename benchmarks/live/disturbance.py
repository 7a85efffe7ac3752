"""Tuning on a machine that changes: `python -m benchmarks disturbance`.

A real daemon with its tuner on an emulated machine, and a client that sends frames without a pause and checks each
answer. Two parts:

- `recovery`: once the first walk has ended, one place is made three times slower by an operation of the protocol (the
  daemon knows), then as fast as before; then a busy process is pinned to one core (the daemon is not told: the tuner
  has to notice by a stage's time), and ended. Each time, from the moment of the change: when the tuner begins (`told:
  began after s` or `noticed after s`), when its walk has ended, and when the first plan goes live that runs within 5%
  of the best plan with that assignment of places. The best plan comes from dynamic programming over stored costs, with
  the place's new speed; under the busy process, each place's times are scaled by the measured increase of its stage. It
  is then run in turns with the tuner's plan, under the same disturbance. `before`: the plan that was live when the
  change came, run under the disturbance, too.
- `long run`: random changes of that kind, one after the other, for `--minutes`, after a run-in of a quarter of that
  time. Every frame of both must be answered once, in order and correctly; memory and descriptors of the daemon, its
  workers and its tuner are sampled every two seconds, and reported for the time after the run-in.

Plans that are tried serve frames, too; a plan's rate is that of its answers without the first ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.figures import long_run_figure
from benchmarks.report.results import Row, save_csv, save_figure, show
from benchmarks.rigs.journal import next_event
from benchmarks.rigs.optimum import Optimum
from benchmarks.rigs.resources import Sample, sample, summary
from benchmarks.rigs.tuned import Case, Observed, Tuned, plan_of, rate, tuned
from shisha_rt.core.tuning.tuning import DISTURBANCE_S
from shisha_rt.machine.config.machine_file import load_machine

MACHINE: Final = "demo"
MODEL: Final = "squeezenet"
_SLOWER: Final = 3.0
_WITHIN: Final = 0.95
_TUNING_TIMEOUT_S: Final = 120.0
_NOTICE_TIMEOUT_S: Final = DISTURBANCE_S + 20.0  # for changes that nobody tells the daemon of
_SAMPLE_EVERY_S: Final = 2.0
_CHANGE_EVERY_S: Final = (3.0, 10.0)
_RUNNING_IN: Final = 0.25  # the run-in before the long run, as a fraction of its length
_FACTORS: Final = (1.0, 1 / 2, 1 / 3)


@dataclass(frozen=True, slots=True)
class Effort:
    """`seconds` for each plan in each of `rounds`; `minutes` of the long run."""

    rounds: int
    seconds: float
    minutes: float


_FULL: Final = Effort(rounds=5, seconds=3.0, minutes=10.0)
QUICK: Final = Effort(rounds=3, seconds=1.0, minutes=1.0)


class Busy:
    """A process that keeps one core busy; it can be started and ended at any time."""

    def __init__(self, core: int) -> None:
        self._core = core
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._popen is not None

    def start(self) -> None:
        self._popen = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        os.sched_setaffinity(self._popen.pid, {self._core})

    def end(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None


@contextlib.contextmanager
def busy(core: int) -> Iterator[Busy]:
    process = Busy(core)
    try:
        yield process
    finally:
        process.end()


class Recoveries:
    """Changes to one daemon, and the tuner's reaction to each."""

    def __init__(self, one: Tuned, case: Case, effort: Effort) -> None:
        self._one = one
        self._case = case
        self._effort = effort
        first = one.tuning(0, _TUNING_TIMEOUT_S)
        if first is None:
            raise RuntimeError("the tuner does not begin")
        self._live = plan_of(first.plan)
        self._paused = False

    def slow(self, place: str, speed: float, what: str) -> Row:
        machine = self._case.machine.with_speed(place, speed)
        return self._recover(
            what,
            lambda: set_speed(self._one, place, speed),
            lambda: self._case.optimum(machine),
            told=True,
        )

    def load(self, change: Callable[[], None], what: str) -> Row:
        return self._recover(what, change, self._as_measured, told=False)

    def _as_measured(self) -> Optimum:
        """The costs with each place's times scaled to the present time of its stage of the live plan."""
        measured, model = self._one.measure(), self._case.optimum()
        factors = {
            stage.place: service_s / model.stage_s(stage)
            for stage, service_s in zip(self._live.stages, measured.service_s, strict=True)
        }
        return self._case.optimum(factors=factors)

    def _recover(self, what: str, change: Callable[[], None], costs: Callable[[], Optimum], told: bool) -> Row:
        if self._paused:
            self._resume()
        self._paused = True
        one, before = self._one, self._live
        one.measure()  # as long as the tuner takes for what it will compare with: the change comes after that
        since = next_event(one.control)
        changed_s = time.time()
        change()
        found = one.tuning(since, _TUNING_TIMEOUT_S if told else _NOTICE_TIMEOUT_S)
        settled_s = time.time()
        if found is not None:
            self._live = plan_of(found.plan)
        model = costs()
        plans = {"before": before, "tuned": self._live, "best": model.best_in_order(before.places)}
        rounds = [
            {side: one.observe(plan, self._effort.seconds) for side, plan in plans.items()}
            for _ in range(self._effort.rounds)
        ]
        best_fps = _fps(rounds, "best")
        at_s = reached_s(one.load.answers, changed_s, settled_s, _WITHIN * best_fps)
        return {
            "what": what,
            "machine": self._case.machine.name,
            "emulated": "yes" if self._case.machine.emulated else "no",
            "before fps": _fps(rounds, "before"),
            "tuned fps": _fps(rounds, "tuned"),
            "best fps": best_fps,
            "tuned / best": statistics.median(each["tuned"].wall_fps / each["best"].wall_fps for each in rounds),
            "model: tuned / best": model.bottleneck_s(plans["best"]) / model.bottleneck_s(self._live),
            "told: began after s": found.began_s - changed_s if found and told else None,
            "noticed after s": found.began_s - changed_s if found and not told else None,
            "within 5% after s": at_s - changed_s if at_s else None,
            "within 5% after frames": _frames(one, changed_s, at_s) if at_s else None,
            "walk ended after s": found.ended_s - changed_s if found else None,
            "walk ended after frames": _frames(one, changed_s, found.ended_s) if found else None,
            "trials": len(found.trials) if found else 0,
            **{f"plan {side}": str(plan) for side, plan in plans.items()},
        }

    def _resume(self) -> None:
        """Resume the tuner, which measuring has paused: let it walk from its plan, until it watches."""
        one = self._one
        one.take(self._live)
        since = next_event(one.control)
        one.control.call("tuner_set", resume=True)
        found = one.tuning(since, _TUNING_TIMEOUT_S)
        if found is None:
            raise RuntimeError("the tuner does not resume")
        self._live = plan_of(found.plan)


def _fps(rounds: Sequence[dict[str, Observed]], side: str) -> float:
    return statistics.median(each[side].wall_fps for each in rounds)


def _frames(one: Tuned, from_s: float, to_s: float) -> int:
    return sum(from_s <= at_s <= to_s for at_s, _ in one.load.answers)


def reached_s(answers: Sequence[tuple[float, int]], from_s: float, to_s: float, least_fps: float) -> float | None:
    """When the first plan begins to answer that reaches `least_fps`; None if none does between these times."""
    times_s: dict[int, list[float]] = {}
    for at_s, epoch in answers:
        if from_s <= at_s <= to_s:
            times_s.setdefault(epoch, []).append(at_s)
    return next((its[0] for its in times_s.values() if rate(its) >= least_fps), None)


def set_speed(one: Tuned, place: str, speed: float) -> None:
    one.control.call("place_set", place=place, speed=speed)


def recovery(one: Tuned, case: Case, effort: Effort, place: str, process: Busy) -> list[Row]:
    speed = case.machine.place(place).speed
    course = Recoveries(one, case, effort)
    return [
        course.slow(place, speed / _SLOWER, f"{place} 3 times slower"),
        course.slow(place, speed, f"{place} as before"),
        course.load(process.start, "a busy process on its core"),
        course.load(process.end, "the busy process ended"),
    ]


class LongRun:
    """Random changes, and samples of memory and descriptors of the daemon and its children. `changes`: their number."""

    def __init__(self, one: Tuned, case: Case, process: Busy) -> None:
        self.changes = 0
        self._one = one
        self._case = case
        self._process = process
        self._random = random.Random(0)
        self._pids = frozenset(place["pid"] for place in one.control.status()["places"])
        one.control.call("tuner_set", resume=True)

    def go_on(self, minutes: float) -> list[Sample]:
        """Go on for `minutes`; the first sample is taken at the start and the last at the end."""
        samples = self._sample()
        now_s = change_s = time.time()
        until_s, sample_s = now_s + 60 * minutes, now_s + _SAMPLE_EVERY_S
        while now_s < until_s:
            if now_s >= change_s:
                self._change()
                change_s = now_s + self._random.uniform(*_CHANGE_EVERY_S)
            if now_s >= sample_s:
                samples += self._sample()
                sample_s = now_s + _SAMPLE_EVERY_S
            self._one.rest()
            now_s = time.time()
        return samples + self._sample()

    def _sample(self) -> list[Sample]:
        return sample(self._one.child.pid, self._pids)

    def _change(self) -> None:
        """Change the speed of a place or, one time in four, start or end the busy process."""
        self.changes += 1
        if self._random.random() < 1 / 4:
            if self._process.running:
                self._process.end()
            else:
                self._process.start()
        else:
            place = self._random.choice(self._case.machine.places)
            set_speed(self._one, place.name, place.speed * self._random.choice(_FACTORS))


def disturbance(
    machine: Annotated[str, typer.Option(help="An emulated machine: a file or a shipped name.")] = MACHINE,
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = MODEL,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Length of the long run; 10, or 1 if quick.")] = None,
    quick: Annotated[bool, typer.Option(help="About two minutes in all.")] = False,
) -> None:
    """A place slowed and a core loaded while frames flow; then a long run of such changes."""
    effort = QUICK if quick else _FULL
    length = effort.minutes if minutes is None else minutes
    flag = " --quick" if quick else ""
    about = facts(f"disturbance --machine {machine} --model {model} --minutes {length:g}{flag}") | {
        "emulated": "all places: real computation, then a wait",
    }
    case = Case.of(model, load_machine(machine))
    fastest = case.machine.places[0]
    with busy(fastest.cores[0]) as process, tuned(case) as one:
        print("disturbance: recovery ...", flush=True)
        recoveries = recovery(one, case, effort, fastest.name, process)
        print(f"disturbance: {length:g} minutes of random changes ...", flush=True)
        run = LongRun(one, case, process)
        before = run.go_on(_RUNNING_IN * length)
        samples = run.go_on(length)
        process.end()
        tally = one.load.stop()
        frames = one.control.status()["frames"]
    show("Recovery", [{key: value for key, value in row.items() if not key.startswith("plan ")} for row in recoveries])
    ends: list[Row] = [
        {
            "changes": run.changes,
            "sent": tally.sent,
            "answered": tally.answered,
            "lost": tally.lost,
            "errors": tally.errors,
            "out of order": tally.out_of_order,
            "different": tally.different,
            "answered, as the daemon counts": sum(frames["answered"].values()),
            "slots free": f"{frames['slots_free']} of {frames['slots']}",
        }
    ]
    show("All frames, of both parts", ends)
    show("Memory and descriptors during the long run", summary(samples))
    for what, rows in (("", recoveries), ("_frames", ends), ("_resources", summary(samples))):
        print(f"written to {save_csv(f'disturbance{what}', rows, about)}")
    print(f"written to {save_figure('disturbance', long_run_figure(recoveries, before, samples), about)}")


if __name__ == "__main__":
    typer.run(disturbance)
