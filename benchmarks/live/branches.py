"""The effect of parallel branches on unloaded latency, on two real cores: `python -m benchmarks branches`.

By measured costs (`branches`): the time of the whole network over its critical path, the most that branches can gain,
with layers as in ONNX Runtime's own form of the model, and with every operator as a layer, in ONNX Runtime and in
OpenVINO; and the predicted gain of the schedule `forkjoin`.

Live, one frame at a time, unthrottled, all sides in turns (`branches_alone`): the daemon that plans for latency by
itself, with teams, branches and copies allowed; the whole model on one core, on a team of both, and by a schedule of
branches. If no schedule of branches gains by costs, the one that would be the best with free hand-overs is run. All
figures are medians over the rounds, with their quartiles.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Self

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.daemons import forced, profiled
from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.partitiontuner.partition_plan import foretold
from shisha_rt.papers.partitiontuner.partition_profile import processor_costs
from shisha_rt.papers.partitiontuner.processors import INPUT, ProcessorCosts, costs_of_devices
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.plan import Plan

MODELS: Final = "squeezenet,inception_v1,text_detector,text_recogniser,densenet121"
DEVICES: Final[Mapping[str, str]] = {"onnxruntime": "ort_serial", "openvino": "openvino"}
LAYERS: Final = "layers"
"""Layers as in the engine's own form of the model."""
LATENCY, ONE_CORE, TEAM, BRANCHES = SIDES = ("latency", "layers, one core", "layers, team", "layers, branches")
AIM_OWN: Final = 1.02
_BURST_S: Final = 2.0
_MOST_BURSTS: Final = 60
_ALONE: Final = {"copied": True, "warm_up": 6}


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the zoo on places that are one processor each."""

    model: str
    layers: int
    costs: ProcessorCosts

    @classmethod
    def of(cls, model: str, machine: Machine) -> Self:
        """Prepare a network; it is measured if need be. Raises BadInput as `make_ready` does."""
        check_runnable(machine)
        has_devices = any(place.devices for place in machine.places)
        path = resolve_model(f"zoo:{model}", print)
        ready = make_ready(path, machine, kind="operators" if has_devices else "heavy", on_progress=print)
        if not has_devices:
            costs = processor_costs(ready, print).costs
        else:  # times of single partitions, as in the paper, take minutes to measure, and no plan here needs them
            costs = costs_of_devices(ready.compiled.model.graph, machine, ready.operator_costs, HANDOVER_S)
        return cls(model, len(ready.compiled.layers), costs)

    @property
    def whole_s(self) -> float:
        """Seconds of the whole network on the place that is the fastest for it."""
        return min(self.costs.stage_s([(0, len(self.costs.spans) - 1)], at) for at in range(len(self.costs.places)))

    def paper_row(self, form: str) -> Row:
        forkjoin, least_s = scheme_plan("forkjoin", self.costs), critical_s(self.costs)
        return {
            "model": self.model,
            "layers": form,
            "nodes": len(self.costs.spans),
            "whole_ms": 1e3 * self.whole_s,
            "critical_ms": 1e3 * least_s,
            "whole / critical": self.whole_s / least_s,
            "parallel branches": forkjoin and forkjoin.parallel_branches,
            "forkjoin_ms": forkjoin and 1e3 * forkjoin.foretold.latency_s,
            "whole / forkjoin": forkjoin and self.whole_s / forkjoin.foretold.latency_s,
            "handovers_ms": forkjoin and 1e3 * forkjoin.foretold.handover_s,
            "stages": forkjoin and len(forkjoin.plan.stages),
        }


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


def branched(costs: ProcessorCosts) -> SchemePlan | None:
    """The best schedule by costs if it has branches, else the best with free hand-overs; None: neither has branches."""
    for assumed in (costs, replace(costs, handover_s=0.0)):
        scheme = scheme_plan("forkjoin", assumed)
        if scheme is not None and len(scheme.plan.stages) > 1:
            return replace(scheme, foretold=foretold(costs, scheme.plan))
    return None


@contextlib.contextmanager
def two_places(device: str) -> Iterator[Machine]:
    """A machine file of two cores of this host, with a device each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two-places.toml"
        places = (f'[[place]]\nname = "core{core}"\ncores = [{core}]\ndevices = ["{device}"]\n' for core in (0, 1))
        path.write_text("\n".join(places), encoding="utf-8")
        yield load_machine(str(path))


Round = Mapping[str, float]
"""Seconds per frame by side."""


def alone_row(model: str, rounds: Sequence[Round], plan: str) -> Row:
    """A row for a network. The better of one core and a team is chosen in each round. None: there is no such plan."""
    better_s = [min(frame_s[ONE_CORE], frame_s[TEAM]) for frame_s in rounds]

    def over_better(side: str) -> Spread | None:
        if side not in rounds[0]:
            return None
        return Spread.of(frame_s[side] / best_s for frame_s, best_s in zip(rounds, better_s, strict=True))

    return {
        "model": model,
        **{
            f"{side}_ms": Spread.of(1e3 * frame_s[side] for frame_s in rounds) if side in rounds[0] else None
            for side in SIDES
        },
        "latency / better": over_better(LATENCY),
        "branches / better": over_better(BRANCHES),
        "plan": plan,
    }


def _rounds(network: Network, machine: Machine, count: int, seconds: float, report: Report) -> tuple[list[Round], str]:
    """Rounds in which all sides take turns, and the plan of the daemon's own."""
    last, places = network.layers - 1, network.costs.places
    plans = {ONE_CORE: Plan.of([(0, last, places[0])]), TEAM: Plan.chain([(0, last, [places])])}
    if branches := branched(network.costs):
        plans[BRANCHES] = branches.plan
    with _own(network.model, machine) as own, forced(f"zoo:{network.model}", machine.source) as steered:

        def burst(plan: Plan) -> dict[str, Any]:
            steered.take(plan)
            return steered.burst(seconds)

        sides = {LATENCY: partial(own.ask, seconds=seconds, **_ALONE)}
        sides |= {side: partial(burst, plan) for side, plan in plans.items()}
        bursts = report.rounds(network.model, sides, count)
    return [{side: reading["frame_s"] for side, reading in each.items()} for each in bursts], bursts[-1][LATENCY][
        "plan"
    ]


@contextlib.contextmanager
def _own(model: str, machine: Machine) -> Iterator[ChildProcess]:
    profiled(model, machine)
    with child_process(
        "benchmarks.rigs.daemon_process",
        model=f"zoo:{model}",
        machine=machine.source,
        endpoint="tcp://127.0.0.1:0",
        planning={"strategy": "guided", "fresh": True, "objective": "latency"},
    ) as process:
        for _ in range(_MOST_BURSTS):
            if process.ask(seconds=_BURST_S, **_ALONE)["tuner"] == "watching":
                yield process
                return
        raise Failure(f"{model}: the tuner has not settled in {_MOST_BURSTS * _BURST_S:g} s")


def branches(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name, of two cores.")] = "this-machine",
    seconds: Annotated[float, typer.Option(min=0.2, help="For each side in each round.")] = 0.4,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 5,
) -> None:
    """What branches side by side bring one frame at a time, on paper and on two real cores."""
    places = load_machine(machine)
    if len(places.places) != 2:
        raise BadInput(f"{machine}: has {len(places.places)} places, expected two")
    report, paper, alone = Report("branches"), list[Row](), list[Row]()
    for model in models.split(","):
        report.step(model)
        network = Network.of(model, places)
        paper.append(network.paper_row(LAYERS))
        for engine, device in DEVICES.items():
            with two_places(device) as described:
                paper.append(Network.of(model, described).paper_row(engine))
        report.save(paper)
        alone.append(alone_row(model, *_rounds(network, places, count, seconds, report)))
        report.save(alone, "branches_alone")
    report.show("On paper: what branches alone can gain, and a schedule of two places", paper)
    report.show("One frame at a time, ms", alone, [f"latency / better of one core and team: at most {AIM_OWN}"])
