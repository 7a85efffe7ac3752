"""The daemon as a whole against engines alone, on the same cores: `python -m benchmarks against_engines`.

Two unthrottled cores, each with a place whose devices are ONNX Runtime on one thread and OpenVINO in fp32. Layers move
between the places and operators between the engines until the tuner has settled; then the tuner is paused. After that,
the daemon at saturation and its rivals (see `engine_process`) take turns in every round, each for a few seconds, while
all others are idle. Times are wall time per frame, medians over the rounds with their quartiles.

- `best rival / daemon`: above 1 the daemon is faster; from each round's ratio to the rival that is the best over all
  rounds.
- `placed anew`: the placer is not paused, so a plan with operators moved between engines may go live during the rounds;
  this is how often one did. `plan`: the last one.
- A rival's frames are in its own memory. The daemon's frames come over a socket from a client in another process, and
  answers go back to it; on two cores the CPU time of that is not available to stages. `against_engines_cpu` states it:
  CPU time per frame of the workers (and the engines' part of it), the daemon and the client. The rest is `waiting`:
  stages of unequal length, messages in transit, workers between two frames. Fields that the daemon's status has not
  measured at the end of the rounds, because a plan has just gone live, are empty.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, Spread, save_csv, show
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.cpu_time import cpu_time
from benchmarks.rigs.engine_process import RIVALS
from benchmarks.rigs.journal import events_since, next_event
from benchmarks.rigs.profiled import profiled
from benchmarks.rigs.served import IN_FLIGHT
from benchmarks.rigs.tune import tune
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.client import Client
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.model.zoo import zoo_path

MACHINE: Final = "two-engines"
MODELS: Final = "squeezenet,resnet50,inception_v1,densenet121,shufflenet,alexnet"
DAEMON: Final = "daemon"
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Wall seconds per frame; for the daemon also CPU seconds per frame, by process or component."""

    frame_s: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)


Round = Mapping[str, Reading]
"""By side: `DAEMON`, or a rival's name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of one network. `status`: the daemon's, after the last round; `placed_anew`: plans that went live
    during the rounds.
    """

    model: str
    cores: int
    rounds: tuple[Round, ...]
    status: Mapping[str, Any]
    placed_anew: int

    def frame_ms(self, side: str) -> Spread:
        return Spread.of(1e3 * its[side].frame_s for its in self.rounds)

    @property
    def best_rival(self) -> str:
        return min(RIVALS, key=lambda rival: self.frame_ms(rival).median)

    @property
    def gain(self) -> Spread:
        """The best rival's time over the daemon's, by round, as a slow moment of the host affects both sides of it."""
        return Spread.of(its[self.best_rival].frame_s / its[DAEMON].frame_s for its in self.rounds)

    @property
    def stages(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.status["plan"]["stages"]
        return found


class Contest:
    """A tuned daemon and its rivals, all of one network."""

    def __init__(
        self, daemon: ChildDaemon, control: Client, client: ChildProcess, rivals: Mapping[str, ChildProcess]
    ) -> None:
        self._daemon = daemon
        self._worker_pids = [place["pid"] for place in control.status()["places"]]
        self._client = client
        self._rivals = rivals

    def round(self, seconds: float) -> Round:
        return {DAEMON: self._served(seconds)} | {
            name: Reading(rival.ask(seconds=seconds)["frame_s"]) for name, rival in self._rivals.items()
        }

    def _served(self, seconds: float) -> Reading:
        before, before_workers_s = cpu_time(self._daemon.pid), self._workers_cpu_s()
        burst = self._client.ask(seconds=seconds)
        used, workers_s = cpu_time(self._daemon.pid).since(before), self._workers_cpu_s() - before_workers_s
        frames = burst["total_frames"]
        by_spender = {
            "workers": workers_s / frames,
            "daemon's loop": used.main_s / frames,
            "daemon's I/O": used.rest_s / frames,
            "client": burst["cpu_s"],
        }
        return Reading(burst["frame_s"], by_spender)

    def _workers_cpu_s(self) -> float:
        return sum(cpu_time(pid).total_s for pid in self._worker_pids)


def measure(model: str, machine: Machine, strategy: str, seconds: float, rounds: int) -> Measured:
    """Profile, tune, and let all sides take turns."""
    ready = profiled(model, machine, strategy)
    path = zoo_path(model, print)
    inputs = [
        {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        for tensor in ready.compiled.model.graph.inputs
    ]
    cores = [core for place in machine.places for core in place.cores]
    with contextlib.ExitStack() as closing:
        options = ("--machine", machine.source, "--strategy", strategy, "--fresh")
        daemon = closing.enter_context(child_daemon(f"zoo:{model}", *options))
        control = closing.enter_context(Client(daemon.endpoint, timeout_s=_TIMEOUT_S))
        client, _ = closing.enter_context(
            child_process("benchmarks.rigs.client_process", endpoint=daemon.endpoint, in_flight=IN_FLIGHT)
        )
        tune(control, client)
        started = {
            name: closing.enter_context(
                child_process("benchmarks.rigs.engine_process", rival=name, path=str(path), inputs=inputs, cores=cores)
            )
            for name in RIVALS
        }
        contest = Contest(daemon, control, client, {name: rival for name, (rival, _) in started.items()})
        since = next_event(control)
        found = tuple(contest.round(seconds) for _ in range(rounds))
        live = [event for event in events_since(control, since) if event["kind"] == "plan_live"]
        return Measured(model, len(cores), found, control.status(), len(live))


# --- what is shown --------------------------------------------------------------------------------------------


def contest_row(measured: Measured) -> Row:
    return {
        "model": measured.model,
        "daemon ms": measured.frame_ms(DAEMON),
        **{f"{rival} ms": measured.frame_ms(rival) for rival in RIVALS},
        "best rival": measured.best_rival,
        "best rival / daemon": measured.gain,
        "trials": measured.status["tuner"]["trials_total"],
        "placed anew": measured.placed_anew,
        "plan": " | ".join(map(_stage, measured.stages)),
    }


def _stage(stage: Mapping[str, Any]) -> str:
    """A stage with its numbers of operators by device, such as `core0: 0-12 (openvino 40, ort_serial 3)`."""
    placement = stage["placement"]
    counts: dict[str, int] = {}
    for segment in placement["segments"] if placement is not None else ():
        counts[segment["device"]] = counts.get(segment["device"], 0) + segment["operators"]
    devices = ", ".join(f"{device} {count}" for device, count in counts.items())
    return f"{'+'.join(stage['places'])}: {stage['first']}-{stage['last']} ({devices})"


def cpu_row(measured: Measured) -> Row:
    """Milliseconds per frame; in each round the components and `waiting` add up to the time of all cores."""
    readings, cores = [its[DAEMON] for its in measured.rounds], measured.cores
    slowest_s = measured.status["bottleneck_s"]
    engines_s = [stage["cpu_s"] for stage in measured.stages]
    return {
        "model": measured.model,
        "daemon ms": measured.frame_ms(DAEMON),
        "slowest stage ms": None if slowest_s is None else 1e3 * slowest_s,
        "engines in workers ms": None if None in engines_s else 1e3 * sum(engines_s),
        **{f"{name} ms": Spread.of(1e3 * reading.cpu_s[name] for reading in readings) for name in readings[0].cpu_s},
        "waiting ms": Spread.of(1e3 * (cores * its.frame_s - sum(its.cpu_s.values())) for its in readings),
        "all cores ms": Spread.of(1e3 * cores * its.frame_s for its in readings),
    }


def against_engines(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = MACHINE,
    strategy: Annotated[str, typer.Option(help="How the daemon's pipeline is tuned: shisha or guided.")] = "guided",
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of one side in one round.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; figures are their medians.")] = 7,
) -> None:
    """The daemon on two cores against OpenVINO's throughput mode and ONNX Runtime on the same cores."""
    if find_spec("openvino") is None:
        raise BadInput("OpenVINO is not installed, expected it: pip install 'shisha-rt[openvino]'")
    places = load_machine(machine)
    check_runnable(places)
    command = (
        f"against_engines --models {models} --machine {machine} --strategy {strategy} --seconds {seconds:g} "
        f"--rounds {rounds}"
    )
    about = facts(command) | {"openvino": importlib.metadata.version("openvino")}
    rows: list[Row] = []
    cpu_rows: list[Row] = []
    for model in models.split(","):
        print(f"against_engines: {model} ...", flush=True)
        measured = measure(model, places, strategy, seconds, rounds)
        rows.append(contest_row(measured))
        cpu_rows.append(cpu_row(measured))
        # After each network, so that results are kept if a later one fails.
        save_csv("against_engines", rows, about)
        save_csv("against_engines_cpu", cpu_rows, about)
    show("The daemon as a whole against engines alone, wall time per frame", rows)
    show("Where the time of all cores goes, per frame of the daemon", cpu_rows)
    print(f"written to {RESULTS}: against_engines.csv, against_engines_cpu.csv")


if __name__ == "__main__":
    typer.run(against_engines)
