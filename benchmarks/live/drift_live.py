"""Tuning of a live daemon, and its recovery from disturbances: `python -m benchmarks drift_live`.

For each tuning strategy of a live daemon, on an emulated machine, under a client that sends frames without a pause and
checks each answer. From the start: until the search has ended. Then a place is made three times slower by an operation
of the protocol (the daemon is told), then as fast as before; then a busy process is pinned to one core (the daemon has
to notice by a stage's time), and ended. Each time, from the moment of the change: when the tuner begins, when its
search has ended, and when the first plan goes live that runs within 5% of the best plan.

The best plan is that of dynamic programming over stored costs, with the place's new speed; under the busy process, each
place's times are scaled by the measured increase of its stage. It runs in turns with the tuner's plan and with the one
that was live when the change came (`before`), under the same disturbance; rates are answers per second of wall time.
Everything is done once, so differences of a few percent between two strategies are not significant.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.control import events_since, is_watching, live_plan, next_event, set_live
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.client import Client
from shisha_rt.core.tuning.drift import DISTURBANCE_S
from shisha_rt.costs.layer_costs import LayerCosts, RawCosts
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.profile import profile_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.shards.balance import balanced
from shisha_rt.planner.shards.pieces import Piece
from shisha_rt.planner.strategies import LIVE

_OPTIONS: Final = ("--fresh", "--no-replicate", "--objective", "throughput", "--engine", "onnxruntime", "--batch", "1")
_SLOWER: Final = 3.0
_WITHIN: Final = 0.95
_ROUNDS: Final = 3
_SECONDS: Final = 1.0
_LOOK_EVERY_S: Final = 0.05
_TIMEOUT_S: Final = 120.0
_NOTICE_TIMEOUT_S: Final = DISTURBANCE_S + 20.0  # for changes that nobody tells the daemon of
_ATTEMPTS: Final = 4
_EXTRA_IN_FLIGHT: Final = 4  # beyond the daemon's slots: frames that wait at the door or travel
_LEFT_OUT: Final = 12
_SHOWN: Final = ("strategy", "what", "before fps", "tuned fps", "best fps", "within 5% after s", "trials")


@dataclass(frozen=True, slots=True)
class Case:
    model: str
    machine: Machine
    compiled: Compiled
    raw: RawCosts

    @classmethod
    def of(cls, model: str, machine: Machine) -> Case:
        check_runnable(machine)
        compiled = compile_model(resolve_model(f"zoo:{model}"))
        return cls(model, machine, compiled, profile_model(ModelOnMachine(compiled, machine)))

    def best(self, order: Sequence[str], machine: Machine, factors: Mapping[str, float] = MappingProxyType({})) -> Plan:
        """The best plan with places in this order, by the costs on `machine`, with a factor on some places' times."""
        costs = LayerCosts(self.raw, machine).costs()
        factor = np.array([factors.get(place.name, 1.0) for place in costs.places])
        layers = [Piece(layer, layer) for layer in range(len(costs.layers))]
        _, plan = balanced(replace(costs, time_s=costs.time_s * factor), layers, [((place,),) for place in order])
        assert plan is not None  # every place runs every layer
        return plan


@dataclass(frozen=True, slots=True)
class Search:
    """The last search since some event; times are of the events' clock."""

    trials: int
    began_s: float
    ended_s: float


class Tuned:
    def __init__(self, case: Case, control: Client, load: SteadyLoad) -> None:
        self._case = case
        self._control = control
        self.load = load
        self._paused = False

    @property
    def live(self) -> Plan:
        return live_plan(self._control)

    def recover(self, what: str, change: Callable[[], object], timeout_s: float, machine: Machine | None) -> Row:
        """Make a change, await the search that follows, and compare plans. `machine`: as the daemon was told; None: as
        measured.
        """
        since = 0  # at the start the search may have begun before anybody asks
        if self._paused:
            self._resume()
            since = next_event(self._control)
        self._paused = True
        before, changed_s = self.live, time.time()
        change()
        search = self._search(since, timeout_s)
        settled_s, tuned = time.time(), self.live
        best = self._as_measured(tuned, before) if machine is None else self._case.best(before.places, machine)
        plans = {"before": before, "tuned": tuned, "best": best}
        rounds = [{side: self._rate(plan) for side, plan in plans.items()} for _ in range(_ROUNDS)]
        set_live(self._control, tuned, _ATTEMPTS)
        fps = {side: statistics.median(each[side] for each in rounds) for side in plans}
        at_s = reached_s(self.load.answers, (changed_s, settled_s), _WITHIN * fps["best"])
        return {
            "what": what,
            **{f"{side} fps": rate for side, rate in fps.items()},
            "tuned / best": statistics.median(each["tuned"] / each["best"] for each in rounds),
            "began after s": search and search.began_s - changed_s,
            "within 5% after s": at_s and at_s - changed_s,
            "ended after s": search and search.ended_s - changed_s,
            "trials": search.trials if search else 0,
            **{f"plan {side}": str(plan) for side, plan in plans.items()},
        }

    def set_speed(self, place: str, speed: float) -> None:
        self._control.call("place_set", place=place, speed=speed)

    def _resume(self) -> None:
        """Resume the tuner, which measuring has paused, and let it search from its plan."""
        since = next_event(self._control)
        self._control.call("tuner_set", resume=True)
        if self._search(since, _TIMEOUT_S) is None:
            raise RuntimeError("the tuner does not resume")

    def _as_measured(self, live: Plan, before: Plan) -> Plan:
        """The best plan in the order of `before`, with places' times scaled to the present ones of the live plan's
        stages.
        """
        case = self._case
        model = LayerCosts(case.raw, case.machine)
        taken_s: Sequence[float | None] = [None]
        while None in taken_s:
            self._rest(_SECONDS)
            taken_s = [stage["service_s"] for stage in self._control.status()["plan"]["stages"]]
        times_s = zip(live.stages, taken_s, strict=True)
        factors = {
            stage.place: (took_s or 0.0) / model.modelled_s(stage.first, stage.last, stage.place)
            for stage, took_s in times_s
        }
        return case.best(before.places, case.machine, factors)

    def _rate(self, plan: Plan) -> float:
        epoch, since = set_live(self._control, plan, _ATTEMPTS), len(self.load.answers)
        while len(self.load.answers) < since + 4 * _LEFT_OUT:
            self._rest(_SECONDS)
        return rate([at_s for at_s, by_epoch in self.load.answers[since:] if by_epoch == epoch])

    def _rest(self, seconds: float) -> None:
        self.load.check()
        time.sleep(seconds)

    def _search(self, since: int, timeout_s: float) -> Search | None:
        """The last search that begins at event `since` or later, once the tuner watches; None: none begins."""
        until_s = time.time() + timeout_s
        while time.time() < until_s:
            self._rest(_LOOK_EVERY_S)
            events = events_since(self._control, since)
            began = [event for event in events if event["kind"] == "tuning_began"]
            ended = [event for event in events if event["kind"] == "tuning_ended"]
            if ended and is_watching(self._control):
                trials = sum(event["kind"] == "trial" and event["run"] == ended[-1]["run"] for event in events)
                return Search(trials, began[0]["time_s"], ended[-1]["time_s"])
            if began:
                until_s = max(until_s, time.time() + _TIMEOUT_S)
        return None


def rate(times_s: Sequence[float]) -> float:
    """Answers per second, without the first ones, which the plan before still affects; 0: too few answers."""
    kept_s = times_s[_LEFT_OUT:]
    return (len(kept_s) - 1) / (kept_s[-1] - kept_s[0]) if len(kept_s) > _LEFT_OUT else 0.0


def reached_s(answers: Sequence[tuple[float, int]], span_s: tuple[float, float], least_fps: float) -> float | None:
    """When the first plan begins to answer that reaches `least_fps`; None if none does between these times."""
    times_s: dict[int, list[float]] = {}
    for at_s, epoch in answers:
        if span_s[0] <= at_s <= span_s[1]:
            times_s.setdefault(epoch, []).append(at_s)
    return next((answered_s[0] for answered_s in times_s.values() if rate(answered_s) >= least_fps), None)


def tuned(rig: Rig, case: Case, strategy: str) -> Tuned:
    """Start a daemon with nothing tuned before, and frames, with which the tuner begins."""
    options = ("--machine", case.machine.source, "--strategy", strategy, *_OPTIONS)
    daemon, control = rig.daemon(f"zoo:{case.model}", *options)
    in_flight = control.status()["frames"]["slots"] + _EXTRA_IN_FLIGHT
    return Tuned(case, control, rig.enter_context(SteadyLoad(daemon.endpoint, in_flight)))


def recovery(case: Case, strategy: str) -> Iterator[Row]:
    """Yield the rows of a strategy. Raises RuntimeError unless every frame was answered as it should be."""
    place, neighbour = case.machine.places[0], list[subprocess.Popen[bytes]]()

    def busy() -> None:
        neighbour.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        os.sched_setaffinity(neighbour[0].pid, {place.cores[0]})

    with Rig() as rig:
        daemon = tuned(rig, case, strategy)
        try:
            yield daemon.recover("the start", lambda: None, _TIMEOUT_S, case.machine)
            for what, speed in ((f"{_SLOWER:g} times slower", place.speed / _SLOWER), ("as before", place.speed)):
                slowed = case.machine.with_speed(place.name, speed)
                change = partial(daemon.set_speed, place.name, speed)
                yield daemon.recover(f"{place.name} {what}", change, _TIMEOUT_S, slowed)
            yield daemon.recover("a busy process on its core", busy, _NOTICE_TIMEOUT_S, None)
            yield daemon.recover("the busy process ended", neighbour[0].kill, _NOTICE_TIMEOUT_S, None)
        finally:
            for process in neighbour:
                process.kill()
                process.wait()
        tally = daemon.load.stop()
    if not tally.clean:
        raise RuntimeError(f"not every frame was answered as it should be: {tally}")


def drift_live(
    machine: Annotated[str, typer.Option(help="An emulated machine: a file or a shipped name.")] = "demo",
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = "squeezenet",
) -> None:
    """From the start, and a place slowed and a core loaded while frames flow, for each way to tune: minutes."""
    report = Report("drift_live", {"emulated": "all places: real computation, then a wait"})
    case, rows = Case.of(model, load_machine(machine)), list[Row]()
    for strategy in LIVE:
        report.step(strategy)
        rows += [{"strategy": strategy, **row} for row in recovery(case, strategy)]
    report.show("A disturbed daemon", [{key: row[key] for key in _SHOWN} for row in rows])
    report.save(rows)
