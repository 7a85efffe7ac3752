"""CPU time of a frame besides its network, by component: `python -m benchmarks loop_cost`.

Copies of the whole network on all places, one stage, and a client in another process that keeps them busy over ipc. CPU
microseconds per frame: of the daemon's loop, of ZeroMQ's thread, of the workers without their engines, of the client. A
second daemon, whose methods are timed, shows how the loop's time is spent; the two take turns. `wake-ups`: how often
per frame the loop gave up its core to wait.

`tiny` is a network with almost no computation on a frame of 1 KB, for the loop's cost of any frame. For large frames
the loop also copies each input into its slot and each answer out, and engines leave it cold caches.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.cpu_time import cpu_time
from benchmarks.rigs.served import IN_FLIGHT
from shisha_rt.client import Client

MODELS: Final = "tiny,shufflenet,squeezenet"
_TINY: Final = "tiny"
_LAYERS: Final = 2
_SHAPE: Final = (1, 16, 4, 4)
_TOTALS: Final = ("loop", "ZeroMQ's thread", "workers beyond engines", "client", "wake-ups")
_BY_WHAT: Final = "loop, timed"


@dataclass(frozen=True, slots=True)
class Side:
    """A daemon and its client."""

    daemon: ChildProcess
    client: ChildProcess
    control: Client
    worker_pids: tuple[int, ...]

    def burst(self, seconds: float) -> dict[str, float]:
        """Cost of a frame by `_TOTALS`: microseconds, and wake-ups."""
        before, before_workers_s, before_waits = cpu_time(self.daemon.pid), self._workers_s(), _waits(self.daemon.pid)
        burst = self.client.ask(seconds=seconds)
        used, workers_s = cpu_time(self.daemon.pid).since(before), self._workers_s() - before_workers_s
        frames = burst["total_frames"]
        (stage,) = self.control.status()["plan"]["stages"]
        of_frame = (used.main_s / frames, used.rest_s / frames, workers_s / frames - stage["cpu_s"], burst["cpu_s"])
        waits = (_waits(self.daemon.pid) - before_waits) / frames
        return dict(zip(_TOTALS, (*(1e6 * seconds for seconds in of_frame), waits), strict=True))

    def timed(self, seconds: float) -> dict[str, dict[str, float]]:
        """Microseconds (`us`) and `calls` per frame, by activity of the loop."""
        self.daemon.ask()  # reset the counters
        frames = self.client.ask(seconds=seconds)["total_frames"]
        spent = self.daemon.ask()["spent"]
        return {what: {unit: value / frames for unit, value in its.items()} for what, its in spent.items()}

    def _workers_s(self) -> float:
        return sum(cpu_time(pid).total_s for pid in self.worker_pids)


def _waits(pid: int) -> int:
    """How often the main thread has given up its core to wait."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


@contextlib.contextmanager
def _side(module: str, model: str, machine: str, folder: Path) -> Iterator[Side]:
    """A daemon with a copy of the network on each place."""
    with contextlib.ExitStack() as closing:
        endpoint = f"ipc://{folder}/{module.rpartition('.')[2]}"
        daemon, up = closing.enter_context(child_process(module, model=model, machine=machine, endpoint=endpoint))
        client, _ = closing.enter_context(
            child_process("benchmarks.rigs.client_process", endpoint=up["endpoint"], in_flight=IN_FLIGHT)
        )
        control = closing.enter_context(Client(up["endpoint"]))
        status = control.status()
        names = [place["name"] for place in status["places"]]
        last = max(stage["last"] for stage in status["plan"]["stages"])
        settled = control.set_plan([{"first": 0, "last": last, "places": names}])
        if settled["outcome"] != "live":
            raise RuntimeError(f"copies on {', '.join(names)} are {settled['outcome']}: {settled['reason']}")
        yield Side(daemon, client, control, tuple(place["pid"] for place in status["places"]))


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one network by round: the totals, and the loop's time by activity."""

    model: str
    totals: Sequence[Mapping[str, float]]
    timed: Sequence[Mapping[str, Mapping[str, float]]]

    def rows(self) -> list[Row]:
        whats = sorted(
            {what for one in self.timed for what in one}, key=lambda what: self._timed(what, "us"), reverse=True
        )
        rows: list[Row] = [
            {"what": total, "us a frame": statistics.median(one[total] for one in self.totals), "calls a frame": None}
            for total in _TOTALS
        ]
        for what in whats:
            us, calls = self._timed(what, "us"), self._timed(what, "calls")
            rows.append({"what": f"{_BY_WHAT}: {what}", "us a frame": us, "calls a frame": calls})
        return [{"model": self.model, **row} for row in rows]

    def _timed(self, what: str, unit: str) -> float:
        return statistics.median(one.get(what, {}).get(unit, 0.0) for one in self.timed)


def measure_cost(model: str, machine: str, seconds: float, rounds: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        source = str(write_tiny(Path(folder))) if model == _TINY else f"zoo:{model}"
        plain, timed = (
            closing.enter_context(_side(f"benchmarks.rigs.{rig}", source, machine, Path(folder)))
            for rig in ("daemon_process", "loop_cost_process")
        )
        both = [(plain.burst(seconds), timed.timed(seconds)) for _ in range(rounds)]
        return Cost(model, *zip(*both, strict=True))


def write_tiny(folder: Path) -> Path:
    """Write a network of identity convolutions of 16 channels on 4x4 pixels."""
    path = folder / f"{_TINY}.onnx"
    names = ["x", *(f"c{i}" for i in range(1, _LAYERS)), "y"]
    weight = numpy_helper.from_array(np.eye(_SHAPE[1], dtype=np.float32)[:, :, None, None], "weight")
    graph = helper.make_graph(
        [helper.make_node("Conv", [names[i], "weight"], [names[i + 1]], name=f"conv{i}") for i in range(_LAYERS)],
        _TINY,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE)],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def loop_cost(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas, and `tiny`.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = "this-machine",
    seconds: Annotated[float, typer.Option(min=0.2, help="Length of one side in one round.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; figures are their medians.")] = 7,
) -> None:
    """What a frame costs besides its network: CPU time by what it goes on."""
    about = facts(f"loop_cost --models {models} --machine {machine} --seconds {seconds:g} --rounds {rounds}")
    rows: list[Row] = []
    for model in models.split(","):
        print(f"loop_cost: {model} ...", flush=True)
        cost = measure_cost(model, machine, seconds, rounds).rows()
        show(f"{model}: CPU microseconds a frame (of wake-ups: how many)", cost)
        rows += cost
        save_csv("loop_cost", rows, about)


if __name__ == "__main__":
    typer.run(loop_cost)
