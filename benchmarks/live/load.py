"""Latency by load: the daemon whose objective follows it, its fixed plans, and rivals: `python -m benchmarks load`.

Frames arrive as a Poisson process at a percentage of capacity, which is the rate of the daemon's plan for throughput
with several frames always in flight. Arrivals are drawn beforehand, the same for all sides of a round, and are sent
even if earlier frames have no answer; a latency counts from the time at which its frame was to be sent, so waiting is
never hidden. Beyond capacity, latencies are of accepted frames; `refused %` states the rest. Sides take turns in each
round.

- `daemon_auto`: `--objective auto`, after it has found a plan for each objective, under load and without.
- `daemon_latency`, `daemon_throughput`: those two plans, set by a client, in daemons that keep them.
- `daemon_single`: as `daemon_auto`, but no frames share a run (`--batch 1`).
- `ort_threads`, `ort_copies`: an engine in one process behind a queue, without a daemon: one session with a thread for
  each core; a session with one thread for each core.
- servers: see `benchmarks/servers`. A server with a limit of waiting requests gets the daemon's limit.

p50 is the median of the rounds' values, with quartiles, p99 that of all rounds' frames together; each rate lasts until
at least `--frames` have come. The first 2.5 s of a side's turn are not counted, as the daemon has to observe the load
before it follows: `load_steps` measure that, from 10 to 90% and back, and how soon the other plan serves.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from benchmarks.lists import numbers_in, words_in
from benchmarks.live.race import versions
from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, at_ms, in_turns, percentile, written
from benchmarks.rigs.asking import Heard
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.contest import Network, Tell
from benchmarks.rigs.control import events_since, live_plan, next_event, set_live
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.queue_process import COPIES, THREADS
from benchmarks.rigs.servers import SERVERS, ServerPython, awake, missing, pythons, running, stopped
from shisha_rt.client import Client, Plan
from shisha_rt.errors import Failure
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.rate import OBJECTIVES

# --- arrivals and steps of the load -----------------------------------------------------------------------------------


AUTO: Final = "daemon_auto"
FIXED: Final = ("daemon_latency", "daemon_throughput")
SWITCH_AIM_S: Final = 1.0

Event = Mapping[str, Any]


def poisson(rate_fps: float, seconds: float, seed: str) -> list[float]:
    """Ascending times of arrivals from 0 on; at least one."""
    rng = random.Random(seed)
    at_s = rng.expovariate(rate_fps)
    arrivals_s: list[float] = []
    while at_s < seconds or not arrivals_s:
        arrivals_s.append(at_s)
        at_s += rng.expovariate(rate_fps)
    return arrivals_s


def together(heard: Sequence[Heard]) -> Heard:
    """Results of several rounds as of one."""
    return Heard(
        [latency_s for result in heard for latency_s in result.latencies_s],
        sum(result.refused for result in heard),
        sum(result.failed for result in heard),
        sum(result.lost for result in heard),
    )


@dataclass(frozen=True, slots=True)
class AtRate:
    """All rounds of all sides at one rate, `percent` of capacity. `rounds`: by side."""

    model: str
    percent: float
    rate_fps: float
    rounds: Sequence[Mapping[str, Heard]]

    def p50_ms(self, side: str) -> Spread | None:
        """Spread of the rounds' median latencies; None if a round had no answers."""
        by_round = [by_side[side].latencies_s for by_side in self.rounds]
        return Spread.of(1e3 * percentile(latencies_s, 50) for latencies_s in by_round) if all(by_round) else None

    def row(self, side: str) -> Row:
        """p99 is of the frames of all rounds together, as one round has too few."""
        heard = together([by_side[side] for by_side in self.rounds])
        return {
            "model": self.model,
            "load %": self.percent,
            "frames/s": self.rate_fps,
            "side": side,
            "p50 ms": self.p50_ms(side),
            "p99 ms": at_ms(heard.latencies_s, 99),
            "sent": heard.sent,
            "refused %": heard.refused_percent,
            "failed": heard.failed,
            "lost": heard.lost,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """A step to a load that wants `objective`; `until_s`: when the next step began. Times are of the events' clock."""

    objective: str
    at_s: float
    until_s: float


def switched_s(step: Step, events: Sequence[Event]) -> float | None:
    """Seconds from the step until the best plan for its objective served, which is when the daemon reports that its
    objective has changed; None: not before the next step.
    """
    for event in events:
        during = step.at_s <= event["time_s"] < step.until_s and event["kind"] == "objective_changed"
        if during and event["objective"] == step.objective and event["plan"] is not None:
            return float(event["time_s"] - step.at_s)
    return None


def step_row(model: str, steps: Sequence[Step], events: Sequence[Event], heard: Sequence[Heard]) -> Row:
    """`plan changes`: those due to the load; the aim is one for each step. `other plans`: plans tried meanwhile."""
    took: dict[str, list[float]] = {"throughput": [], "latency": []}
    for step in steps:
        seconds = switched_s(step, events)
        if seconds is not None:
            took[step.objective].append(seconds)
    begun_s, ended_s = steps[0].at_s, steps[-1].until_s
    during = [event for event in events if begun_s <= event["time_s"] < ended_s]
    changes = sum(event["kind"] == "objective_changed" and event["plan"] is not None for event in during)
    went_live = sum(event["kind"] == "plan_live" for event in during)
    all_s, frames = [*took["throughput"], *took["latency"]], together(heard)
    return {
        "model": model,
        "steps": len(steps),
        "frames": frames.sent,
        "refused": frames.refused,
        "failed": frames.failed,
        "lost": frames.lost,
        "s until the plan for throughput": Spread.of(took["throughput"]) if took["throughput"] else None,
        "s until the plan for latency": Spread.of(took["latency"]) if took["latency"] else None,
        "longest s": max(all_s) if all_s else None,
        "steps not followed": len(steps) - len(all_s),
        "plan changes": changes,
        "other plans": max(0, went_live - changes),
        "aims": f"0 lost; {written(SWITCH_AIM_S)} s; {len(steps)} changes",
    }


# --- sides and sweeps -------------------------------------------------------------------------------------------------


PERCENTS: Final = "5,30,60,90,120"
LEAD_S: Final = 2.5
"""The first part of each side's turn at each rate, not counted: a daemon that follows the load has to observe it."""
CALM, BUSY = 10.0, 90.0
SINGLE: Final = "daemon_single"
RIVALS: Final = (THREADS, COPIES, *SERVERS)
SIDES: Final = (AUTO, *FIXED, SINGLE, *RIVALS)

_BURST_S: Final = 2.0
_TUNING_TIMEOUT_S: Final = 480.0
_CAPACITY_S: Final = 2.0
_HOLD_FRAMES: Final = 24
"""Least frames of a step: with slow networks a change of load is detected late, as it takes a number of frames."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A side. `asked`: the process that sends frames at their times; `keeper`: of a server, see `awake`."""

    name: str
    asked: ChildProcess
    keeper: ChildProcess | None = None

    def arrivals(self, at_s: Sequence[float], count_from_s: float = 0.0) -> Heard:
        with awake(self.keeper):
            return Heard(**self.asked.ask(arrivals=at_s, count_from_s=count_from_s))


def daemon_side(
    rig: Rig, network: Network, machine: Machine, objective: str, *further: str
) -> tuple[Client, ChildProcess]:
    """A daemon with nothing tuned before, as `Rig.served`. `further`: options of `serve`."""
    options = ("--machine", machine.source, "--strategy", "guided", "--objective", objective, "--fresh", *further)
    return rig.served(f"zoo:{network.model}", *options)


def server_side(rig: Rig, name: str, python: str, network: Network, waiting: int) -> Loaded:
    """A server with a worker for each core and a limit of waiting requests. Raises Failure if it does not start."""
    started = running(name, python, network.path, network.inputs, len(network.cores), IN_FLIGHT, waiting=waiting)
    server = rig.enter_context(stopped(started))
    return Loaded(name, server.client, server.keeper)


def _find_plans(control: Client, asked: ChildProcess) -> dict[str, Plan]:
    """Plans by objective. The daemon finds that for throughput under load, that for latency with single frames."""
    plans: dict[str, Plan] = {}
    until_s = time.monotonic() + _TUNING_TIMEOUT_S
    while len(plans) < len(OBJECTIVES):
        if time.monotonic() > until_s:
            raise Failure(f"no plan for {' and '.join(OBJECTIVES)} was found in {_TUNING_TIMEOUT_S:g} s")
        asked.ask(seconds=_BURST_S, in_flight=1 if "throughput" in plans else IN_FLIGHT)
        tuner, live = control.call("tuner_get")["tuner"], live_plan(control)
        for objective, best in tuner["plans"].items() if tuner["state"] == "watching" else ():
            if best is not None and best["plan"] == str(live):
                plans[objective] = live
    return plans


def _all_sides(
    rig: Rig, network: Network, machine: Machine, names: Sequence[str], interpreters: Mapping[str, str], tell: Tell
) -> tuple[list[Loaded], Client, dict[str, str]]:
    """The sides of `names` that are possible; the control client of `AUTO`; and remarks on some sides."""
    notes: dict[str, str] = {}
    tell(f"{network.model}: the daemon finds its plans")
    control, asked = daemon_side(rig, network, machine, "auto")
    plans = _find_plans(control, asked)
    waiting = int(control.metadata()["server"]["max_in_flight"])
    loaded = [Loaded(AUTO, asked)]
    if plans["latency"] == plans["throughput"]:
        notes[AUTO] = f"its plans for both objectives are one, {plans['latency']}: nothing can change"
    for name, objective in zip(FIXED, ("latency", "throughput"), strict=True):
        tell(f"{network.model}: starting {name}")
        fixed, asked = daemon_side(rig, network, machine, objective)
        set_live(fixed, plans[objective])
        asked.ask(seconds=_BURST_S, in_flight=1)
        loaded.append(Loaded(name, asked))
    for name in names:
        tell(f"{network.model}: starting {name}")
        if name == SINGLE:
            single, asked = daemon_side(rig, network, machine, "auto", "--batch", "1")
            _find_plans(single, asked)
            loaded.append(Loaded(name, asked))
        elif name in (THREADS, COPIES):
            options = {"path": str(network.path), "inputs": network.inputs, "cores": network.cores}
            engine = rig.child("queue_process", copies=name, **options, waiting=waiting)
            engine.ask(seconds=0.3)
            loaded.append(Loaded(name, engine))
        elif name in SERVERS:
            try:
                loaded.append(server_side(rig, name, interpreters[name], network, waiting))
            except Failure as failure:
                notes[name] = f"left out: {failure}"
    return loaded, control, notes


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rates in percent of capacity; `seconds` of each side's turn, or longer, until there are `frames` arrivals."""

    percents: Sequence[float]
    rounds: int
    seconds: float
    frames: int = 0

    def over(self, model: str, sides: Sequence[Loaded], capacity_fps: float, tell: Tell) -> Iterator[AtRate]:
        for percent in self.percents:
            rate_fps = capacity_fps * percent / 100
            heard_rounds = []
            for number, turn in enumerate(in_turns(sides, self.rounds)):
                long_s = LEAD_S + max(self.seconds, self.frames / rate_fps)
                at_s = poisson(rate_fps, long_s, f"{model} {percent} {number}")
                heard = {}
                for side in turn:
                    tell(f"{model}: {percent:g}% of capacity, round {number + 1} of {self.rounds}, {side.name}")
                    heard[side.name] = side.arrivals(at_s, LEAD_S)
                heard_rounds.append(heard)
            yield AtRate(model, percent, rate_fps, heard_rounds)


def _climb(
    model: str, auto: Loaded, control: Client, capacity_fps: float, count: int, hold_s: float, tell: Tell
) -> Row:
    """`count` steps up and as many down, each of the same length."""
    hold_s = max(hold_s, _HOLD_FRAMES / (capacity_fps * CALM / 100))
    since = next_event(control)
    auto.arrivals(poisson(capacity_fps * CALM / 100, hold_s, f"{model} before"))
    begun: list[tuple[str, float]] = []
    heard = []
    for number in range(2 * count):
        objective, percent = ("latency", CALM) if number % 2 else ("throughput", BUSY)
        tell(f"{model}: step {number + 1} of {2 * count}, to {percent:g}% of capacity")
        begun.append((objective, time.time()))
        heard.append(auto.arrivals(poisson(capacity_fps * percent / 100, hold_s, f"{model} step {number}")))
    ends_s = [at_s for _, at_s in begun[1:]] + [time.time()]
    steps = [Step(objective, at_s, end_s) for (objective, at_s), end_s in zip(begun, ends_s, strict=True)]
    return step_row(model, steps, events_since(control, since), heard)


def load(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "squeezenet,resnet50",
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = "this-machine",
    rivals: Annotated[str, typer.Option(help="Besides the daemon, separated by commas; none: no rival.")] = ",".join(
        RIVALS
    ),
    percents: Annotated[str, typer.Option(help="Loads, in percent of capacity.")] = PERCENTS,
    seconds: Annotated[float, typer.Option(min=0.2, help="For each side at each rate in each round.")] = 5.0,
    frames: Annotated[int, typer.Option(min=1, help="As many arrivals at least, however long that takes.")] = 40,
    count: Annotated[int, typer.Option("--rounds", min=0, help="Rounds; 0: no sweep.")] = 3,
    steps: Annotated[int, typer.Option(min=0, help="Steps from 10 to 90% of capacity and back; 0: none.")] = 50,
    hold: Annotated[float, typer.Option(min=0.5, help="Seconds that each of both loads lasts, at least.")] = 4.0,
    name: Annotated[str, typer.Option(help="Results: load_NAME.csv, load_NAME_steps.csv.")] = "",
    server_python: ServerPython = None,
) -> None:
    """Latency from 5 to 120% of capacity, open loop, and how the daemon follows steps of the load."""
    described = load_machine(machine)
    check_runnable(described)
    interpreters = pythons(server_python or [])
    names = [] if rivals == "none" else words_in("--rivals", rivals, (SINGLE, *RIVALS))
    loads = numbers_in("--percents", percents)
    absent = {name: why for name in names if name in SERVERS and (why := missing(name, interpreters[name]))}
    notes = {name: f"left out: {why}" for name, why in absent.items()}
    names = [name for name in names if name not in absent]
    report = Report("load", versions([name for name in names if name in SERVERS], interpreters))
    stem = f"load_{name}" if name else "load"
    swept: list[AtRate] = []
    stepped: list[Row] = []
    for model in models.split(","):
        report.step(model)
        network = Network.of(model, described)
        with Rig() as rig:
            sides, control, remarks = _all_sides(rig, network, described, names, interpreters, report.glance)
            notes |= {f"{model}, {name}": note for name, note in remarks.items()}
            by_name = {side.name: side for side in sides}
            busy = by_name[FIXED[1]].asked.ask(seconds=_CAPACITY_S, in_flight=IN_FLIGHT)
            capacity_fps: float = busy["fps"]
            sweep = Sweep(loads if count else (), count, seconds, frames)
            for at_rate in sweep.over(model, sides, capacity_fps, report.glance):
                swept.append(at_rate)
                report.save(_rows(swept), stem)
            if steps:
                stepped.append(_climb(model, by_name[AUTO], control, capacity_fps, steps, hold, report.glance))
                report.save(stepped, f"{stem}_steps")
    if swept:
        report.show("Latency by load, Poisson arrivals, from when a frame was to be sent", _rows(swept))
    if stepped:
        report.show(f"Steps of the load, {CALM:g} to {BUSY:g}% of capacity and back", stepped)
    for name, note in notes.items():
        print(f"load: {name}: {note}", file=sys.stderr)


def _rows(swept: Sequence[AtRate]) -> list[Row]:
    return [at_rate.row(side) for at_rate in swept for side in SIDES if side in at_rate.rounds[0]]
