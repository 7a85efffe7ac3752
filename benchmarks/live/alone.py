"""One frame at a time: daemons as they are started, and engines on all cores: `python -m benchmarks alone`.

Each side gets one frame at a time, the next one after the answer and a pause. Daemons run on the machine as it is, with
nothing tuned before, and are asked by their own client over shared memory: `latency` with `--objective latency`, tuned
with single frames; `auto` with the default, tuned under load first. Rivals are ONNX Runtime and OpenVINO (fp32) with a
thread for each core, whose frames are in their own memory. Times are medians of a turn's frames. All sides take turns
in each round; ratios are within rounds. All figures are medians over the rounds, with their quartiles.

`idle %`: percentage of a core that daemon, workers and client use while no frame comes, from a second after the last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, spreads
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.contest import Network, plain_engine
from benchmarks.rigs.control import live_plan, settle
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.engine_process import ALONE
from benchmarks.rigs.resources import family_cpu_s
from shisha_rt.client import Client
from shisha_rt.machine.config.machine_file import check_runnable, load_machine

MODELS: Final = "squeezenet,shufflenet,inception_v1,densenet121,resnet50,alexnet"
AUTO, LATENCY = "auto", "latency"
OBJECTIVES: Final = (LATENCY, AUTO)
PAUSES_MS: Final = (0.0, 2.0, 20.0)

_IDLE_AFTER_S: Final = 1.0
_IDLE_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Side:
    """`root`: pid of the daemon's process, whose descendants count, too; None: an engine."""

    name: str
    asked: ChildProcess
    root: int | None = None
    control: Client | None = None

    @property
    def plan(self) -> str:
        assert self.control is not None
        return str(live_plan(self.control))

    def frame_ms(self, seconds: float, pause_ms: float) -> float:
        return 1e3 * float(self.asked.ask(seconds=seconds, pause_s=pause_ms / 1e3)["frame_s"])

    def idle(self) -> float:
        """The share of a core that the side's processes use while idle."""
        assert self.root is not None
        time.sleep(_IDLE_AFTER_S)
        pids = self.root, self.asked.pid
        before_s, began_s = sum(map(family_cpu_s, pids)), time.monotonic()
        time.sleep(_IDLE_S)
        return (sum(map(family_cpu_s, pids)) - before_s) / (time.monotonic() - began_s)


def alone(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = "this-machine",
    seconds: Annotated[float, typer.Option(min=0.2, help="For each side with each pause in each round.")] = 1.5,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 5,
    add: Annotated[
        bool, typer.Option("--add", help="Keep what the file has of other networks; each row names its commit.")
    ] = False,
) -> None:
    """How long one frame takes by itself, against engines with a thread for each core."""
    described = load_machine(machine)
    check_runnable(described)
    report, rows = Report("alone"), list[Row]()
    for model in models.split(","):
        report.step(model)
        network = Network.of(model, described)
        with Rig() as rig:
            sides, turns = list(_sides(rig, network, machine, report)), {}
            for pause_ms in PAUSES_MS:
                asked = {side.name: partial(side.frame_ms, seconds, pause_ms) for side in sides}
                turns[pause_ms] = report.rounds(f"{model}, pauses of {pause_ms:g} ms", asked, count)
            daemons = [side for side in sides if side.root is not None]
            more = {f"plan, {side.name}": side.plan for side in daemons}
            more |= {f"idle %, {side.name}": f"{100 * side.idle():.2g}" for side in daemons}
        rows += [_row(model, pause_ms, took, more) for pause_ms, took in turns.items()]
        report.save_by("model", rows, add=add)
    report.show(f"One frame at a time, ms, {machine}", rows, ["aim: at most 1.1 times the best engine and 0.3 ms"])


def _sides(rig: Rig, network: Network, machine: str, report: Report) -> Iterator[_Side]:
    for objective in OBJECTIVES:
        report.glance(f"{network.model}: tuning a daemon, --objective {objective}")
        options = ("--machine", machine, "--objective", objective, "--fresh")
        daemon, control = rig.daemon(f"zoo:{network.model}", *options)
        client = rig.child("client_process", endpoint=daemon.endpoint, in_flight=IN_FLIGHT)
        if objective == AUTO:
            settle(control, client)
        settle(control, client, pause_s=0)
        yield _Side(objective, client, daemon.pid, control)
    for name in ALONE:
        yield _Side(name, plain_engine(rig, network, name))


def _row(model: str, pause_ms: float, took_ms: Sequence[Mapping[str, float]], more: Mapping[str, str]) -> Row:
    times = spreads(took_ms)
    best = min(ALONE, key=lambda engine: times[engine].median)
    over: dict[str, object] = {}
    for name in OBJECTIVES:
        over[f"{name} / best engine"] = Spread.of(turn[name] / turn[best] for turn in took_ms)
        over[f"{name}, within the aim"] = times[name].median <= 1.1 * times[best].median + 0.3
    return {"model": model, "pause ms": pause_ms, **times, "best engine": best, **over, **more}
