"""A daemon that tunes itself under steady load, and measurements of it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.journal import Event, events_since
from benchmarks.rigs.optimum import Optimum
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.client import Client
from shisha_rt.costs.layer_costs import LayerCosts, RawCosts
from shisha_rt.machine.config.machine_file import check_runnable, parse_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.profile import profile_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

_LOOK_EVERY_S: Final = 0.05
_TIMEOUT_S: Final = 120.0
_ATTEMPTS: Final = 4
_LEAST_FRAMES: Final = 32
_EXTRA_IN_FLIGHT: Final = 4  # beyond the daemon's slots: frames that wait at the door or travel


@dataclass(frozen=True, slots=True)
class Case:
    """One model on one machine, with its stored costs."""

    model: str
    machine: Machine
    compiled: Compiled
    raw: RawCosts

    @classmethod
    def of(cls, model: str, machine: Machine) -> Case:
        check_runnable(machine)
        compiled = compile_model(resolve_model(f"zoo:{model}"))
        return cls(model, machine, compiled, profile_model(ModelOnMachine(compiled, machine)))

    def optimum(self, machine: Machine | None = None, factors: Mapping[str, float] | None = None) -> Optimum:
        """Optimal plans by the costs on `machine` (None: the case's), with a factor on each place's times."""
        times = LayerCosts(self.raw, machine or self.machine)
        slower = factors or {}

        def stage_time_s(first: int, last: int, place: str) -> float:
            return times.modelled_s(first, last, place) * slower.get(place, 1.0)

        places = [place.name for place in self.machine.places]
        return Optimum(len(self.compiled.layers), self.compiled.legal_cuts, places, stage_time_s)


@dataclass(frozen=True, slots=True)
class Observed:
    """One plan while it ran: times of its stages, and its rate of answers, `wall_fps`."""

    measurement: Measurement
    wall_fps: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """One run of the tuner from the daemon's events; times are of `time.time`."""

    trials: tuple[Event, ...]
    plan: str
    began_s: float
    ended_s: float
    reason: str


class Refused(RuntimeError):
    """A plan that the daemon did not make live; the message says why."""


class Tuned:
    """The daemon, a control connection to it, and the load."""

    def __init__(self, child: ChildProcess, control: Client, load: SteadyLoad) -> None:
        self.child = child
        self.control = control
        self.load = load

    def take(self, plan: Plan) -> int:
        """Set a plan, which pauses the tuner; return its epoch.

        A place refuses a stage that it is too slow to emulate. A busy moment may cause that, so it is tried again.
        Raises `Refused` if that does not help.
        """
        for _ in range(_ATTEMPTS):
            settled = self.control.set_plan(plan)
            if settled["outcome"] != "dropped":
                break
        if settled["outcome"] != "live":
            raise Refused(f"{plan} is {settled['outcome']}: {settled['reason']}")
        return int(settled["epoch"])

    def measure(self) -> Measurement:
        """Measure the live plan, with a window as in trials."""
        self.load.check()
        found = self.child.ask()
        return Measurement(tuple(found["service_s"]), found["band"], found["frames"], found["took_s"])

    def observe(self, plan: Plan, seconds: float) -> Observed:
        """Set a plan, and observe it for at least `seconds` and some frames."""
        epoch = self.take(plan)
        before = len(self.load.answers)
        measurement = self.measure()
        until_s = time.time() + seconds
        while time.time() < until_s or len(self.load.answers) - before < 2 * _LEAST_FRAMES:
            self.rest()
        return Observed(measurement, self.rate(epoch, before))

    def rate(self, epoch: int, since: int) -> float:
        """Frames per second from the answers of an epoch, from number `since` on, without the first ones."""
        times_s = [at_s for at_s, its in self.load.answers[since:] if its == epoch]
        return rate(times_s)

    def rest(self) -> None:
        self.load.check()
        time.sleep(_LOOK_EVERY_S)

    def tuning(self, since: int, timeout_s: float) -> Tuning | None:
        """The last run that begins at event `since` or later, once the tuner watches; None: none begins."""
        until_s = time.time() + timeout_s
        while time.time() < until_s:
            self.rest()
            events = events_since(self.control, since)
            state = self.control.call("tuner_get")["tuner"]["state"]
            ended = [event for event in events if event["kind"] == "tuning_ended"]
            if ended and state == "watching":
                run = ended[-1]["run"]
                began = next(event for event in events if event["kind"] == "tuning_began")
                trials = tuple(event for event in events if event["kind"] == "trial" and event["run"] == run)
                return Tuning(trials, ended[-1]["plan"], began["time_s"], ended[-1]["time_s"], ended[-1]["reason"])
            if any(event["kind"] == "tuning_began" for event in events):
                until_s = max(until_s, time.time() + _TIMEOUT_S)
        return None


def rate(times_s: Sequence[float], left_out: int = 12) -> float:
    """Answers per second, without the first ones, which the plan before still affects; 0: too few answers."""
    kept_s = times_s[left_out:]
    return (len(kept_s) - 1) / (kept_s[-1] - kept_s[0]) if len(kept_s) > left_out else 0.0


def plan_of(text: str) -> Plan:
    """The plan of a text of `str(plan)`, as in the daemon's events."""
    stages = []
    for stage in text.split(" | "):
        place, _, span = stage.partition(": ")
        first, last = map(int, span.split("-"))
        stages.append((first, last, place))
    return Plan.of(stages)


@contextlib.contextmanager
def tuned(case: Case, strategy: str = "shisha") -> Iterator[Tuned]:
    """Start a daemon with nothing tuned before, and frames, with which the tuner begins."""
    with contextlib.ExitStack() as closing:
        keep = closing.enter_context(tempfile.TemporaryDirectory())
        child, up = closing.enter_context(
            child_process(
                "benchmarks.rigs.tuned_process",
                model=f"zoo:{case.model}",
                machine=case.machine.source,
                strategy=strategy,
                endpoint="tcp://127.0.0.1:0",
                keep=keep,
            )
        )
        control = closing.enter_context(Client(up["endpoint"], timeout_s=_TIMEOUT_S))
        load = closing.enter_context(SteadyLoad(up["endpoint"], up["slots"] + _EXTRA_IN_FLIGHT))
        yield Tuned(child, control, load)


@contextlib.contextmanager
def variant(machine: Machine, timing: str) -> Iterator[Machine]:
    """The same machine file with another timing."""
    lines = Path(machine.source).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("timing")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{machine.name}-{timing}.toml"
        text = "\n".join([f'timing = "{timing}"', *kept, ""])
        path.write_text(text, encoding="utf-8")
        yield parse_machine(text, name=path.stem, source=str(path))
