"""A device that slows down under load, and the daemon's reaction: `python -m benchmarks device_slowed`.

A daemon on a machine whose places have devices, with the seed's pipeline, not tuned, and a client that sends frames
without a pause and checks each answer. The device with most of the first stage's time is made `--slower` times slower
by an operation of the protocol. That is emulation: the device computes as fast as before, then waits. The placer is not
told: the daemon notices by times of segments, places the operators anew, and makes that plan live. Each round has a new
daemon.

- `noticed after s`: until the new placement is live; `frames`: answered meanwhile. The daemon needs two windows of 16
  frames that agree, and looks every quarter of a second. Further corrections may follow.
- `stage ms`: total time of the place's segments, the median of 32 frames: before, while the device is slow with the old
  placement, and after. `fps`: answers per second of wall time in the same three periods.
- `found back after s`: the device gets its own speed again at the end; until a placement with more operators on it is
  live. `found back`: `yes`, or why not: the daemon cannot observe a device that runs nothing.

With OpenVINO installed, two engines of this host on two cores; without it the board of the DCG papers, fully emulated,
whose times are divided by its `time_scale`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.journal import events_since, next_event
from benchmarks.rigs.profiled import profiled
from benchmarks.rigs.steady_load import SteadyLoad
from benchmarks.rigs.tuned import rate
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.machine.config.machine_file import load_machine

_STEADY_FRAMES: Final = 64
_EXTRA_IN_FLIGHT: Final = 4  # beyond the daemon's slots: frames that wait at the door or travel
_LOOK_EVERY_S: Final = 0.05
_NOTICE_S: Final = 120.0
_BACK_S: Final = 60.0  # what it takes to notice once more, and then some
_TIMEOUT_S: Final = 60.0
_STRATEGY: Final = "seed"
_ABOUT: Final = ("model", "machine", "emulated")


@dataclass(frozen=True, slots=True)
class Case:
    """One network on one machine."""

    model: str
    machine: str
    precision: str = "exact"
    dims: Mapping[str, int] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        dims = [text for name, size in self.dims.items() for text in ("--dim", f"{name}={size}")]
        options = ["--precision", self.precision, "--strategy", _STRATEGY, "--fresh"]
        return [f"zoo:{self.model}", "--machine", self.machine, *options, *dims]

    def profile(self) -> None:
        profiled(self.model, load_machine(self.machine), _STRATEGY, dims=self.dims, precision=self.precision)


ENGINES: Final = Case("inception_v1", "two-engines")
BOARD: Final = Case("bert", "pim-2", "any", {"sequence": 8})


@dataclass(frozen=True, slots=True)
class Reading:
    """Answers per second, and the total time of the place's segments (None: no frame has been computed)."""

    fps: float
    stage_s: float | None


class Course:
    """A daemon under load, observed from outside; `place` and `device`: those that are slowed."""

    def __init__(self, control: Client, load: SteadyLoad) -> None:
        self._control = control
        self._load = load
        self.settle()
        stage = self._stage()
        self.place: str = stage["places"][0]
        self.device = _busiest(stage["placement"])

    def settle(self) -> float:
        """Serve until no new placement has gone live for a while; return the time of the last one."""
        epoch = None
        while epoch != self._control.plan()["epoch"]:
            epoch, since_s = self._control.plan()["epoch"], time.time()
            until = len(self._load.answers) + _STEADY_FRAMES
            while len(self._load.answers) < until:
                self._rest()
        return since_s

    def set_speed(self, speed: float) -> tuple[float, int]:
        """Set the device's speed; return the time, and the number of the daemon's next event."""
        since = next_event(self._control)
        now_s = time.time()
        self._control.call("place_set", place=self.place, device=self.device, speed=speed)
        return now_s, since

    def await_live(self, since: int, patience_s: float) -> tuple[float | None, float | None]:
        """When the next plan goes live (None: none does), and the stage's last time before that."""
        stage_s = None
        until_s = time.time() + patience_s
        while time.time() < until_s:
            taken_s = self.stage_s
            live = [event for event in events_since(self._control, since) if event["kind"] == "plan_live"]
            if live:
                return live[0]["time_s"], stage_s
            stage_s = taken_s
            self._rest()
        return None, stage_s

    def await_back(self, since: int, patience_s: float) -> float | None:
        """When a plan goes live that has more operators on the device than now; None: none does."""
        before = self.operators
        until_s = time.time() + patience_s
        while time.time() < until_s:
            live = [event for event in events_since(self._control, since) if event["kind"] == "plan_live"]
            if live and self.operators > before:
                return float(live[-1]["time_s"])
            self._rest()
        return None

    def reading(self, from_s: float, to_s: float, stage_s: float | None) -> Reading:
        """The reading of a period, without its first answers."""
        times_s = [at_s for at_s, _ in self._load.answers if from_s <= at_s <= to_s]
        return Reading(rate(times_s), stage_s)

    @property
    def stage_s(self) -> float | None:
        """The total time of the place's segments now."""
        placement = self._stage()["placement"]
        if placement is None or any(segment["measured_s"] is None for segment in placement["segments"]):
            return None
        return float(sum(segment["measured_s"] for segment in placement["segments"]))

    @property
    def operators(self) -> int:
        """How many of the stage's operators run on the device."""
        segments = self._stage()["placement"]["segments"]
        return sum(segment["operators"] for segment in segments if segment["device"] == self.device)

    def _stage(self) -> Mapping[str, Any]:
        stages: list[Mapping[str, Any]] = self._control.status()["plan"]["stages"]
        return stages[0]

    def _rest(self) -> None:
        self._load.check()
        time.sleep(_LOOK_EVERY_S)


def _busiest(placement: Mapping[str, Any]) -> str:
    """The device with most of the stage's time."""
    shares: dict[str, float] = {}
    for segment in placement["segments"]:
        shares[segment["device"]] = shares.get(segment["device"], 0.0) + segment["predicted_s"]
    return max(shares, key=shares.__getitem__)


def one_round(case: Case, slower: float) -> Row:
    with contextlib.ExitStack() as closing:
        daemon = closing.enter_context(child_daemon(*case.arguments))
        control = closing.enter_context(Client(daemon.endpoint, timeout_s=_TIMEOUT_S))
        slots = control.status()["frames"]["slots"]
        load = closing.enter_context(SteadyLoad(daemon.endpoint, slots + _EXTRA_IN_FLIGHT))
        course = Course(control, load)
        before = course.reading(course.settle(), time.time(), course.stage_s)
        changed_s, since = course.set_speed(1 / slower)
        live_s, stage_s = course.await_live(since, _NOTICE_S)
        if live_s is None:
            raise RuntimeError(f"no other placement within {_NOTICE_S:g} s of {course.device} {slower:g} times slower")
        slowed = course.reading(changed_s, live_s, stage_s)
        frames = sum(changed_s <= at_s <= live_s for at_s, _ in load.answers)
        after = course.reading(course.settle(), time.time(), course.stage_s)
        left = course.operators
        back_s, since = course.set_speed(1.0)
        found_s = course.await_back(since, _BACK_S) if left else None
        tally = load.stop()
        emulated = control.status()["machine"]["emulated"]
    return {
        "model": case.model,
        "machine": case.machine,
        "emulated": "the machine, and the slowing" if emulated else "the slowing",
        "slowed": f"{course.device} on {course.place}, {slower:g} times",
        "noticed after s": live_s - changed_s,
        "frames": frames,
        "stage ms, before": _ms(before),
        "slowed ms": _ms(slowed),
        "after ms": _ms(after),
        "fps before": before.fps,
        "fps slowed": slowed.fps,
        "fps after": after.fps,
        "operators left on it": left,
        "found back": "yes" if found_s else f"not in {_BACK_S:g} s" if left else "it has nothing to run",
        "found back after s": found_s - back_s if found_s else None,
        "answered": tally.answered,
        "lost": tally.lost,
        "errors": tally.errors,
        "out of order": tally.out_of_order,
        "different": tally.different,
    }


def _ms(reading: Reading) -> float | None:
    return None if reading.stage_s is None else 1e3 * reading.stage_s


def device_slowed(
    model: Annotated[str | None, typer.Option(help="A network of the zoo; with --machine.")] = None,
    machine: Annotated[str | None, typer.Option(help="A machine whose places have devices.")] = None,
    slower: Annotated[float, typer.Option(min=1.2, help="So many times.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="Each with a daemon of its own.")] = 3,
) -> None:
    """A device slowed at run time: seconds and frames until another placement is live."""
    usual = ENGINES if find_spec("openvino") else BOARD
    case = usual if model is None or machine is None else Case(model, machine)
    about = facts(f"device_slowed --model {case.model} --machine {case.machine} --slower {slower:g} --rounds {rounds}")
    case.profile()
    rows: list[Row] = []
    for number in range(rounds):
        print(f"device_slowed: {case.model} on {case.machine}, round {number + 1} of {rounds} ...", flush=True)
        rows.append(one_round(case, slower))
    noticed_s = median(float(str(row["noticed after s"])) for row in rows)
    notes = [f"median until the new placement is live: {noticed_s:.3g} s; frames lost: {_total(rows, 'lost')}"]
    if case.precision == "any":
        notes.append("different: bfloat16 on one device and not on another; it is not counted as wrong here")
    shown = [{key: value for key, value in row.items() if key not in _ABOUT} for row in rows]
    emulated = f"EMULATED: {rows[0]['emulated']}"
    show(f"{case.model} on {case.machine} ({emulated}): a device that slows down under load", shown, notes)
    print(f"written to {save_csv('device_slowed', rows, about)}")


def _total(rows: list[Row], key: str) -> int:
    return sum(int(str(row[key])) for row in rows)


if __name__ == "__main__":
    typer.run(device_slowed)
