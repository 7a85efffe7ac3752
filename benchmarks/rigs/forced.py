"""A daemon with plans set by a client, and unloaded latencies, measured and predicted.

Frames come from inside the daemon, the next one when the last has been answered. A frame's latency is the time of its
stages along the longest path through the plan, plus hand-overs: from the end of a stage, by way of the daemon, to the
start of the next, and at both ends of the frame.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.rigs.child_process import ChildProcess, child_process
from shisha_rt.client import Client
from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.errors import Failure
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.partitiontuner.measured_processors import processor_costs
from shisha_rt.papers.partitiontuner.processors import INPUT, ProcessorCosts, costs_of_devices
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s

_WARM_UP_FRAMES: Final = 6
_TIMEOUT_S: Final = 120.0
_ATTEMPTS: Final = 4
_LITTLE_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the zoo on places that are one processor each."""

    model: str
    kind: LayerKind
    ready: ModelOnMachine
    costs: ProcessorCosts

    @classmethod
    def of(cls, model: str, machine: Machine, *, teams: bool = False) -> Self:
        """Prepare a network; it is measured if need be. Raises BadInput as `make_ready` does."""
        check_runnable(machine)
        has_devices = any(place.devices for place in machine.places)
        kind: LayerKind = "operators" if has_devices else "heavy"
        path = resolve_model(f"zoo:{model}", print)
        ready = make_ready(path, machine, kind=kind, teams=teams, on_progress=print)
        if not has_devices:
            return cls(model, kind, ready, processor_costs(ready, print).costs)
        # Times of single partitions, as in the paper, take minutes to measure, and no plan here needs them.
        graph = ready.compiled.model.graph
        return cls(model, kind, ready, costs_of_devices(graph, machine, ready.operator_costs, HANDOVER_S))

    @property
    def layers(self) -> int:
        return len(self.ready.compiled.layers)

    def whole_s(self, place: int) -> float:
        """Seconds of the whole network on one place; inf if it cannot run all layers."""
        return self.costs.stage_s([(0, len(self.costs.spans) - 1)], place)

    @property
    def quickest(self) -> int:
        """The place (index) that is the fastest for the whole network."""
        return min(range(len(self.costs.places)), key=self.whole_s)

    def on_one(self, place: int) -> Plan:
        return Plan.chain([(0, self.layers - 1, [self.costs.places[place]])])


@dataclass(frozen=True, slots=True)
class Taken:
    """Medians over frames. `latency_s`: unloaded latency; `stage_s` (stages,): without hand-overs."""

    latency_s: float
    stage_s: tuple[float, ...]

    def handovers_s(self, plan: Plan) -> float:
        """Latency beyond the stages' times."""
        return self.latency_s - latency_s(plan, [(s,) for s in self.stage_s])


@dataclass(frozen=True, slots=True)
class Forced:
    """A running daemon, and a connection on which plans are set."""

    name: str
    process: ChildProcess
    control: Client

    def take(self, plan: Plan) -> None:
        """Set a plan, again if it is refused, as emulated places may refuse in a busy moment. Raises Failure."""
        for _ in range(_ATTEMPTS):
            settled = self.control.set_plan(plan)
            if settled["outcome"] == "live":
                return
        raise Failure(f"{self.name}: {plan} is {settled['outcome']}: {settled['reason']}")

    def burst(self, seconds: float) -> Mapping[str, Any]:
        return self.process.ask(seconds=seconds, copied=True, in_flight=1, warm_up=_WARM_UP_FRAMES)

    def run(self, plan: Plan, seconds: float) -> Taken:
        self.take(plan)
        return taken(self.burst(seconds))


def taken(burst: Mapping[str, Any]) -> Taken:
    return Taken(burst["latency_s"], tuple(burst["stage_s"]))


@contextlib.contextmanager
def forced(name: str, network: Network) -> Iterator[Forced]:
    """Start a daemon with the seed's plan and without a tuner."""
    with (
        child_process(
            "benchmarks.rigs.daemon_process",
            model=f"zoo:{network.model}",
            machine=network.ready.machine.source,
            layers=network.kind,
            endpoint="tcp://127.0.0.1:0",
            planning={"strategy": "seed", "fresh": True},
        ) as (process, told),
        Client(told["endpoint"], timeout_s=_TIMEOUT_S) as control,
    ):
        yield Forced(name, process, control)


def critical_s(costs: ProcessorCosts) -> float:
    """Time of the critical path through the network with each node's least time, as if there were many places and free
    hand-overs. Transfers are left out.
    """
    least_s = [min(row) for row in costs.time_s]
    ends_s = list(least_s)
    for tensor in sorted(costs.passed, key=lambda tensor: tensor.maker):
        if tensor.maker != INPUT:
            for reader in tensor.readers:
                ends_s[reader] = max(ends_s[reader], ends_s[tensor.maker] + least_s[reader])
    return max(ends_s)


def stages_on_the_way(plan: Plan, stage_s: Sequence[float]) -> int:
    """Number of stages on the longest path through a plan of one team for each stage; `stage_s` (stages,)."""
    more_s = latency_s(plan, [(s + _LITTLE_S,) for s in stage_s]) - latency_s(plan, [(s,) for s in stage_s])
    return round(more_s / _LITTLE_S)


@contextlib.contextmanager
def two_places(first: str, second: str, speed: float = 1.0) -> Iterator[Machine]:
    """A machine file of two cores of this host, the second with a speed; with a device each, unless names are "".

    A second place below full speed is emulated.
    """
    places = [
        f'[[place]]\nname = "core{core}"\ncores = [{core}]\nspeed = {place_speed}\nrank = {rank}\n'
        + (f'devices = ["{device}"]\n' if device else "")
        for core, device, place_speed, rank in ((0, first, 1.0, 1), (1, second, speed, 1 if speed == 1 else 2))
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two-places.toml"
        path.write_text("\n".join(places), encoding="utf-8")
        yield load_machine(str(path))


@dataclass(frozen=True, slots=True)
class Told:
    """A plan that a client sets, and times of its stages by costs (stages,)."""

    side: str
    plan: Plan
    stage_s: tuple[float, ...]

    @property
    def path_s(self) -> float:
        return latency_s(self.plan, [(s,) for s in self.stage_s])

    @property
    def handovers(self) -> int:
        return stages_on_the_way(self.plan, self.stage_s)
