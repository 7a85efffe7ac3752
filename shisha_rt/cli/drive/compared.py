"""Comparison of a model on plain engines and in a tuned daemon: they take turns on the same cores.

Each side is a separate process. In a round each side has two windows: for throughput, with as many frames as it can
compute, and for latency, with one frame at a time. The daemon's frames come from a client in this process, as a user's
program would send them; an engine's frames are in its own memory.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shisha_rt.array_file import read_arrays
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.cli.drive.frames import Frame, frames_of_any, model_shapes, random_frames
from shisha_rt.cli.drive.reach import events_from
from shisha_rt.cli.options import size_words
from shisha_rt.client import Client, plan_of
from shisha_rt.errors import Failure
from shisha_rt.extras import is_installed, pip_install
from shisha_rt.machine.host.cpu_use import CpuReading, family, read_cpu_use
from shisha_rt.measure.installed import installed_engines
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.process.child import Child, last_line, start_child

if TYPE_CHECKING:
    from shisha_rt.cli.compare import CompareOptions
    from shisha_rt.machine.machine import Machine

DAEMON: Final = "shisha-rt"
ENGINES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ort_threads": "ONNX Runtime, all threads",
        "ort_copies": "ONNX Runtime, a replica a core",
        "openvino_latency": "OpenVINO, latency",
        "openvino_throughput": "OpenVINO, throughput",
    }
)
"""Plain engines: name in `stages/engines/plain.py` -> words."""
IN_BFLOAT16: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openvino_latency_bf16": "OpenVINO in bfloat16, latency",
        "openvino_throughput_bf16": "OpenVINO in bfloat16, throughput",
    }
)
"""The same, if answers may change and the processor has bfloat16."""
_OPENVINO: Final = "openvino"
_FRAMES: Final = 8
_IN_FLIGHT: Final = 16
_MOST_IN_FLIGHT: Final = 128
"""For each place: a run of eight frames to compute, and one to go on with; and for all of them."""
_SETTLE_S: Final = 0.5
"""From a change of plan until anything is measured: the workers of the plan before end meanwhile."""
_SWITCH_S: Final = 20.0
"""For which the plan for another kind of load may be built; usually it takes less than half a second."""
_ANSWER_S: Final = 300.0
"""Longest wait for an answer: a large network takes seconds for each of the frames in flight, and a busy host more."""
_SWITCH_LOOK_S: Final = 0.1
_EVENTS_S: Final = 0.2
_LOOK_S: Final = 1.0
_LOAD_S: Final = 0.4
"""Frames are sent for so long between two looks at the tuner, which gives them up only after seconds without any."""
_CUTS_S: Final = 8.0
"""Frames are sent for so long without a search of cuts: the tuner begins one after some seconds of frames, or never."""
_MEASURING_S: Final = 120.0
"""Longest wait, after the time for tuning, until the daemon has measured its layers, which would slow the engines."""
_IS_MEASURING: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "profiling_began": True,
        "profiler_died": True,
        "engines_found": False,
        "measuring_layers": True,
        "profiling_ended": False,
        "profiling_failed": False,
    }
)
"""Kind of event -> whether the daemon measures engines or layers from then on."""
_SEARCHING: Final = ("profiling", "comparing", "tuning", "settling")
"""States of a tuner that is still searching."""
_LATENCY_SHARE: Final = 0.5
"""Length of a latency window / a throughput window: shorter, as each single frame is a measurement."""


@dataclass(frozen=True, slots=True)
class MeasuredSide:
    """One side. `rates_fps`: frames a second, by round; `latencies_s`: median time of a frame by itself, by round.

    `reason`: why it could not be measured; then both are empty. Of the daemon: `plan`, `latency_plan`: its plans for
    throughput and for latency, the same one unless it is tuned for both; `tuner`: the tuner's state when it was paused.
    """

    name: str
    rates_fps: tuple[float, ...] = ()
    latencies_s: tuple[float, ...] = ()
    reason: str | None = None
    plan: str | None = None
    latency_plan: str | None = None
    tuner: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredSides:
    """All sides, the daemon first. `others_ratio`: share of the cores that other programs used meanwhile.

    `leased`: cores that another daemon has: this one shares them, or does without, while engines run on all.
    """

    sides: tuple[MeasuredSide, ...]
    others_ratio: float
    leased: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model's comparison with `options`. `path`: its file."""

    options: CompareOptions
    machine: Machine
    path: Path

    @property
    def cores(self) -> list[int]:
        return sorted({core for place in self.machine.usual for core in place.cores} & os.sched_getaffinity(0))

    @property
    def engines(self) -> Mapping[str, str]:
        in_bfloat16 = self.options.precision == "any" and "openvino_bf16" in installed_engines("any")
        return {**ENGINES, **IN_BFLOAT16} if in_bfloat16 else ENGINES

    @property
    def has_cuts(self) -> bool:
        """Whether a pipeline may be the best plan, as places are not alike."""
        return len({place.rank for place in self.machine.usual}) > 1

    @property
    def _serve(self) -> list[str]:
        options = self.options
        sizes = size_words(options.dim, options.shape)
        how = ["--machine", options.machine, "--objective", options.objective, "--precision", options.precision]
        return [options.model, *how, *sizes]

    def measure(self, say: Callable[[str], None]) -> MeasuredSides:
        """Measure all sides. Raises Failure, and BadInput if the file of frames does not fit the model."""
        say = _once(say)
        given = self.options.inputs
        files = [] if given is None else [(given, read_arrays(given))]
        with contextlib.ExitStack() as closing:
            say("starting a daemon")
            child = closing.enter_context(child_daemon(*self._serve))
            client = closing.enter_context(Client(child.endpoint, timeout_s=_ANSWER_S))
            leased = self.leased_by_others(client.status())
            shapes = model_shapes(client.call("model_metadata"))
            frames = [frame for file in files for frame in frames_of_any(*file, shapes)]
            frames = frames or random_frames(shapes[0], _FRAMES, 0)
            daemon = _Daemon(client, frames, self)
            daemon.tune(self.options.tune, say)
            state = daemon.come_to_rest(say)
            sides: dict[str, _Daemon | _Engine] = {DAEMON: daemon}
            reasons: dict[str, str] = {}
            say("starting plain engines")
            engines: dict[str, _Engine] = {}
            for engine, name in self.engines.items():
                if engine.startswith(_OPENVINO) and not is_installed(_OPENVINO):
                    reasons[name] = f"not installed: {pip_install(_OPENVINO)}"
                else:
                    engines[name] = closing.enter_context(_engine(engine, self.path, frames[0], self.cores))
            for name, started in engines.items():
                try:
                    started.ask(None)
                    sides[name] = started
                except Failure as error:
                    reasons[name] = str(error)
            before = self._cpu_use()
            measured = self._in_turns(sides, reasons, say)
            others_ratio = self._cpu_use().others_ratio(before)
            plan, latency_plan = (daemon.plans.get(load) for load in ("throughput", "latency"))
            served = replace(measured[0], plan=plan, latency_plan=latency_plan, tuner=state)
            return MeasuredSides((served, *measured[1:]), others_ratio, leased)

    def leased_by_others(self, status: Mapping[str, Any]) -> tuple[int, ...]:
        """Cores of the engines that a daemon of this `status` does not have alone."""
        own = {core for place in status["places"] for core in place["cores"]} - set(status["host"]["shared"])
        return tuple(sorted(set(self.cores) - own))

    def _cpu_use(self) -> CpuReading:
        return read_cpu_use(self.cores, family(os.getpid()), time.monotonic())

    def _in_turns(
        self, sides: Mapping[str, _Daemon | _Engine], reasons: dict[str, str], say: Callable[[str], None]
    ) -> list[MeasuredSide]:
        """Measure the sides in turns. `reasons`: why sides cannot be measured; more may be added here."""
        rates_fps: dict[str, list[float]] = {name: [] for name in sides}
        latencies_s: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(self.options.rounds):
            for name, side in sides.items():
                if name in reasons:
                    continue
                say(f"round {number + 1} of {self.options.rounds}: {name}")
                try:
                    rates_fps[name].append(side.rate_fps(self.options.seconds))
                    latencies_s[name].append(side.latency_s(self.options.seconds * _LATENCY_SHARE))
                except Failure as error:
                    reasons[name] = str(error)
        return [
            MeasuredSide(name, reason=reasons[name])
            if name in reasons
            else MeasuredSide(name, tuple(rates_fps[name]), tuple(latencies_s[name]))
            for name in (DAEMON, *self.engines.values())
        ]


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say`, without repeating the previous message."""
    last = ""

    def say_what_is_new(message: str) -> None:
        nonlocal last
        if message != last:
            say(message)
        last = message

    return say_what_is_new


class _Daemon:
    """A daemon, asked by a client. `plans`: those that served each kind of load when it was measured."""

    def __init__(self, client: Client, frames: Sequence[Frame], comparison: Comparison) -> None:
        self.plans: dict[Objective, str] = {}
        self._client = client
        self._frames = frames
        self._in_flight = min(_IN_FLIGHT * len(client.status()["places"]), _MOST_IN_FLIGHT)
        self._has_cuts = comparison.has_cuts
        self._objective = comparison.options.objective

    def tune(self, limit_s: float, say: Callable[[str], None]) -> None:
        """Send frames until the best plan for each objective is known: as many as the daemon takes, then one at a time.

        Before that engines are tried, which takes several times as long beside frames. With `has_cuts` what is left of
        the time goes to the search for cuts, which needs layers to be measured, and frames that wait.
        """
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s and self._is_measuring():
            say(f"tuning the daemon: trying engines{self._waits()}")
            time.sleep(_EVENTS_S)
        wanted = [objective for objective in OBJECTIVES if self._objective in ("auto", objective)]
        for objective in wanted:
            in_flight = self._in_flight if objective == "throughput" else 1
            while time.monotonic() < end_s and self.tuner()["plans"][objective] is None:
                self._load(in_flight)
                self._tell(say)
        searched_s = time.monotonic()
        while self._has_cuts and time.monotonic() < min(end_s, searched_s + _CUTS_S):
            is_measuring = self._is_measuring()
            if is_measuring:  # which is quickest on cores that have nothing else to do
                time.sleep(_LOOK_S)
            else:
                self._load(self._in_flight)
            if is_measuring or self.tuner()["state"] in _SEARCHING:
                searched_s = time.monotonic()
            self._tell(say)

    def _load(self, in_flight: int) -> None:
        with self._client.stream(in_flight=in_flight) as stream:
            for _ in stream.run(_until(time.monotonic() + _LOAD_S, self._frames)):
                pass

    def _tell(self, say: Callable[[str], None]) -> None:
        tuner = self.tuner()
        done, now = f"{tuner['trials_total']} trials", tuner["comparing"]
        if now is not None:
            done = f"{now['tried']} of {now['candidates']} plans compared for {now['objective']}"
        say(f"tuning the daemon: {tuner['state']}, {done}{self._waits()}")

    def _waits(self) -> str:
        waits_s = self._client.status()["profiler_waits_s"]
        return "" if waits_s is None else "; waiting while another process measures on this host"

    def come_to_rest(self, say: Callable[[str], None]) -> str:
        """End the daemon's background work, which would use the cores in the engines' turns.

        The tuner is paused, so layers that are not being measured yet are not; what is being measured is waited for, as
        it is kept. Returns the state of the tuner before.
        """
        state = str(self.tuner()["state"])
        self._client.call("tuner_set", pause=True)
        end_s = time.monotonic() + _MEASURING_S
        while self._is_measuring() and time.monotonic() < end_s:
            say(f"waiting until the daemon has measured its layers{self._waits()}")
            time.sleep(_LOOK_S)
        return state

    def _is_measuring(self) -> bool:
        is_measuring = False
        for event in events_from(self._client):
            is_measuring = _IS_MEASURING.get(event["kind"], is_measuring)
        return is_measuring

    def tuner(self) -> Mapping[str, Any]:
        tuner: Mapping[str, Any] = self._client.call("tuner_get")["tuner"]
        return tuner

    def _serve_for(self, objective: Objective) -> None:
        """Make the best plan for this load live, as the tuner is paused. Raises Failure if that takes too long."""
        best = self.tuner()["plans"][objective]
        if self._objective == "auto" and best is not None:
            self._client.call("tuner_set", objective=objective)
            end_s = time.monotonic() + _SWITCH_S
            settles_s = 0.0
            while self._plan() != best["plan"]:
                if time.monotonic() > end_s:
                    raise Failure(f"the best plan for {objective} ({best['plan']}) did not go live in {_SWITCH_S:g} s")
                time.sleep(_SWITCH_LOOK_S)
                settles_s = _SETTLE_S
            time.sleep(settles_s)
        self.plans[objective] = self._plan()

    def _plan(self) -> str:
        return str(plan_of(self._client.plan()["stages"]))

    def rate_fps(self, seconds: float) -> float:
        """Send frames for so long. All frames over all of the time until the last is answered, as engines count theirs:
        a window of some seconds would end between answers, of which several places give several at once.
        """
        self._serve_for("throughput")
        began_s = time.monotonic()
        with self._client.stream(in_flight=self._in_flight) as stream:
            answered = sum(1 for _ in stream.run(_until(began_s + seconds, self._frames)))
        return answered / (time.monotonic() - began_s)

    def latency_s(self, seconds: float) -> float:
        self._serve_for("latency")
        times_s: list[float] = []
        for frame in _until(time.monotonic() + seconds, self._frames):
            sent_s = time.monotonic()
            self._client.infer(frame)
            times_s.append(time.monotonic() - sent_s)
        return statistics.median(times_s)


def _until(end_s: float, frames: Sequence[Frame]) -> Iterator[Frame]:
    for frame in itertools.cycle(frames):
        yield frame
        if time.monotonic() >= end_s:
            return


class _Engine:
    """A plain engine in a separate process."""

    def __init__(self, child: Child, said: Any) -> None:
        self._child = child
        self._said = said

    def rate_fps(self, seconds: float) -> float:
        answer = self.ask({"seconds": seconds, "one": False})
        return float(answer["frames"] / answer["wall_s"])

    def latency_s(self, seconds: float) -> float:
        times_s: list[float] = self.ask({"seconds": seconds, "one": True})["times_s"]
        return statistics.median(times_s)

    def ask(self, what: dict[str, object] | None) -> dict[str, Any]:
        """Send a request to the process, and wait for its answer; None: only wait. Raises Failure if it has died."""
        pipes = self._child
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then no line is read below
            if what is not None:
                pipes.stdin.write(json.dumps(what).encode() + b"\n")
                pipes.stdin.flush()
        line = pipes.stdout.readline()
        if not line:
            pipes.wait()
            raise Failure(last_line(self._said) or f"it ended with status {pipes.returncode}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def _engine(engine: str, path: Path, frame: Frame, cores: Sequence[int]) -> Iterator[_Engine]:
    """A plain engine that computes `frame` repeatedly; `ask(None)` waits until it is ready, or raises Failure."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as arrays, tempfile.TemporaryFile() as said:
        np.savez(arrays, *frame.values())  # by position: an input may have any name
        arrays.flush()
        settings = {
            "engine": engine,
            "path": str(path),
            "cores": list(cores),
            "inputs": list(frame),
            "arrays": arrays.name,
        }
        child = start_child(
            "stages.jobs.plain_engine",
            json.dumps(settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            ended_by=signal.SIGKILL,
            environment=os.environ,  # as in a program of one's own
        )
        try:
            yield _Engine(child, said)
        finally:
            child.end()
