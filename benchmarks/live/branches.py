"""The effect of parallel branches on unloaded latency, on two real cores: `python -m benchmarks branches`.

By measured costs (`branches`): the time of the whole network over its critical path, the most that branches can gain,
with layers as in ONNX Runtime's own form of the model, and with every operator as a layer, in ONNX Runtime and in
OpenVINO; and the predicted gain of the schedule `forkjoin`.

Live, one frame at a time, unthrottled, all sides in turns (`branches_alone`): the daemon that plans for latency by
itself, with teams, branches and copies allowed; the whole model on one core, on a team of both, and by a schedule of
branches; and engines without a daemon. `branches_forced` compares each plan that a client set with its prediction.
Hand-overs are latency beyond the stages' times along the longest path. The `bound` is the longest path through the plan
by costs, plus measured hand-overs.

If no schedule of branches gains by costs, the one that would be the best with free hand-overs is run.

`branches_unlike`: with unlike places, one core at 0.3 of its speed (emulated), or ONNX Runtime on one and OpenVINO on
the other. `branches_schedules`: random schedules of one network, measured against predicted latency, which includes a
mean hand-over for each stage on its longest path.

All figures are medians over the rounds, with their quartiles.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from benchmarks.live.branch_schedules import random_schedules
from benchmarks.report.facts import facts
from benchmarks.report.results import Row, Spread, save_csv, show
from benchmarks.rigs.engine_process import ALONE, SIDE_BY_SIDE
from benchmarks.rigs.forced import (
    Forced,
    Network,
    Taken,
    Told,
    critical_s,
    forced,
    taken,
    two_places,
)
from benchmarks.rigs.sides import Side, sides
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.costs_of_model import layer_costs, told_costs
from shisha_rt.papers.partitiontuner.partition_plan import foretold
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.plan import Plan

MODELS: Final = "squeezenet,inception_v1,text_detector,text_recogniser,densenet121"
UNLIKE: Final = "inception_v1"
"""Whose LRN is slow in ONNX Runtime."""
SCHEDULED: Final = "inception_v1"
DEVICES: Final[Mapping[str, str]] = {"onnxruntime": "ort_serial", "openvino": "openvino"}
SLOW: Final = 0.3
AIM_OWN: Final = 1.02
AIM_PERCENT: Final = 10.0

LAYERS: Final = "layers"
"""Layers as in the engine's own form of the model."""
ONE_CORE: Final = f"{LAYERS}, one core"
TEAM: Final = f"{LAYERS}, team"
BRANCHES: Final = f"{LAYERS}, branches"
_LATENCY: Final = "latency"
_RIVALS: Final = (*ALONE, SIDE_BY_SIDE)
SIDES: Final = (
    *(_LATENCY, ONE_CORE, TEAM, BRANCHES),
    *(f"{engine}, {plan}" for engine in DEVICES for plan in ("one core", "branches")),
    *_RIVALS,
)


# On paper


def on_paper(network: Network, form: str, found: SchemePlan | None) -> Row:
    costs = network.costs
    whole_s, least_s = network.whole_s(network.quickest), critical_s(costs)
    return {
        "model": network.model,
        "layers": form,
        "nodes": len(costs.spans),
        "whole_ms": 1e3 * whole_s,
        "critical_ms": 1e3 * least_s,
        "whole / critical": whole_s / least_s,
        "parallel branches": None if found is None else found.parallel_branches,
        "forkjoin_ms": None if found is None else 1e3 * found.foretold.latency_s,
        "whole / forkjoin": None if found is None else whole_s / found.foretold.latency_s,
        "handovers_ms": None if found is None else 1e3 * found.foretold.handover_s,
        "stages": None if found is None else len(found.plan.stages),
    }


def branched(costs: ProcessorCosts) -> SchemePlan | None:
    """The best schedule by costs if it has branches, else the best with free hand-overs; None: neither has branches."""
    for one in (costs, replace(costs, handover_s=0.0)):
        found = scheme_plan("forkjoin", one)
        if found is not None and len(found.plan.stages) > 1:
            return replace(found, foretold=foretold(costs, found.plan))
    return None


# Live


def told_plans(network: Network, form: str, found: SchemePlan | None) -> Iterator[Told]:
    """The whole model on the fastest place, on a team of all places if its costs are known, and by branches."""
    whole = network.on_one(network.quickest)
    yield Told(f"{form}, one core", whole, (network.whole_s(network.quickest),))
    if network.ready.teams:
        costs = told_costs(layer_costs(network.ready), network.ready.machine.time_scale)
        team = Plan.chain([(0, network.layers - 1, [network.costs.places])])
        yield Told(f"{form}, team", team, (team_costs(costs).team_s(team)[0][0],))
    if found is not None:
        yield Told(f"{form}, branches", found.plan, found.foretold.stage_s)


Turn = tuple[Forced, Told]


@dataclass(frozen=True, slots=True)
class Reading:
    """One side in one round. `frame_s`: mean wall time per frame; `taken`: of a plan that a client set."""

    frame_s: float
    taken: Taken | None
    plan: str | None


Round = Mapping[str, Reading]


def in_turns(turns: Sequence[Turn], others: Sequence[Side], count: int, seconds: float) -> list[Round]:
    """All sides take turns in each round; each round begins with another side."""
    found: list[Round] = []
    everyone: list[Turn | Side] = [*turns, *others]
    for number in range(count):
        first = number % len(everyone)
        found.append(dict(_reading(one, seconds) for one in (*everyone[first:], *everyone[:first])))
    return found


def _reading(one: Turn | Side, seconds: float) -> tuple[str, Reading]:
    if isinstance(one, Side):
        burst: Mapping[str, Any] = one.burst(seconds)
        return one.name, Reading(burst["frame_s"], None, burst.get("plan"))
    daemon, told = one
    daemon.take(told.plan)
    burst = daemon.burst(seconds)
    return told.side, Reading(burst["frame_s"], taken(burst), str(told.plan))


def readings(found: Sequence[Round], told: Told) -> list[Taken]:
    return [one for its in found if (one := its[told.side].taken) is not None]


def forced_row(model: str, told: Told, found: Sequence[Taken], handover_s: float) -> Row:
    """`handover_s`: as predicted."""
    predicted_s = told.path_s + told.handovers * handover_s
    over_s = [one.handovers_s(told.plan) for one in found]
    bounds_s = [told.path_s + max(0.0, its) for its in over_s]
    return {
        "model": model,
        "plan": told.side,
        "stages": len(told.plan.stages),
        "predicted_ms": 1e3 * predicted_s,
        "measured_ms": Spread.of(1e3 * one.latency_s for one in found),
        "error %": Spread.of(100 * (one.latency_s / predicted_s - 1) for one in found),
        "handovers_ms": Spread.of(1e3 * its for its in over_s),
        "one handover_us": Spread.of(1e6 * its / told.handovers for its in over_s),
        "measured / bound": Spread.of(one.latency_s / bound for one, bound in zip(found, bounds_s, strict=True)),
        "stages / predicted": Spread.of(math.fsum(one.stage_s) / math.fsum(told.stage_s) for one in found),
        "written": str(told.plan),
    }


def alone_row(model: str, found: Sequence[Round]) -> Row:
    """A row for a network. The better of one core and a team is chosen in each round. None: there is no such plan."""
    better_s = [min(its[ONE_CORE].frame_s, its[TEAM].frame_s) for its in found]

    def over_better(side: str) -> Spread | None:
        if side not in found[0]:
            return None
        return Spread.of(its[side].frame_s / best_s for its, best_s in zip(found, better_s, strict=True))

    return {
        "model": model,
        **{
            f"{side}_ms": Spread.of(1e3 * its[side].frame_s for its in found) if side in found[0] else None
            for side in SIDES
        },
        "latency / better": over_better(_LATENCY),
        "branches / better": over_better(BRANCHES),
        "plan": found[-1][_LATENCY].plan,
    }


@contextlib.contextmanager
def _forms(model: str, machine: str) -> Iterator[dict[str, Network]]:
    """Networks by form: layers as in the engine's own form, and every operator as a layer, in each engine."""
    with contextlib.ExitStack() as closing:
        found = {LAYERS: Network.of(model, load_machine(machine), teams=True)}
        for engine, device in DEVICES.items():
            places = closing.enter_context(two_places(device, device))
            found[engine] = Network.of(model, places)
        yield found


def _one_model(model: str, machine: str, count: int, seconds: float, results: _Results) -> None:
    with _forms(model, machine) as networks, contextlib.ExitStack() as closing:
        turns: list[Turn] = []
        for form, network in networks.items():
            results.paper.append(on_paper(network, form, scheme_plan("forkjoin", network.costs)))
            branches = branched(network.costs)
            if form == LAYERS or branches is not None:
                daemon = closing.enter_context(forced(form, network))
                turns += [(daemon, told) for told in told_plans(network, form, branches)]
        results.save()
        own = {_LATENCY: {"replicate": True, "objective": "latency"}}
        order = {"copied": True, "in_flight": 1, "warm_up": 6}
        others = closing.enter_context(sides(model, load_machine(machine), own, _RIVALS, order))
        print(f"branches: {model}: {count} rounds of {len(turns) + len(others)} sides ...", flush=True)
        found = in_turns(turns, others, count, seconds)
    results.alone.append(alone_row(model, found))
    for daemon, told in turns:
        handover_s = networks[daemon.name].costs.handover_s
        results.forced.append(forced_row(model, told, readings(found, told), handover_s))
    results.save()


def _unlike(models: Sequence[str], count: int, seconds: float, results: _Results) -> None:
    """The best place alone and, if it differs, the schedule of branches."""
    cases = [(model, f"one core at {SLOW:g}", "", "", SLOW) for model in models]
    cases.append((UNLIKE, "onnxruntime and openvino", DEVICES["onnxruntime"], DEVICES["openvino"], 1.0))
    for model, what, first, second, speed in cases:
        print(f"branches: {model}, {what} ...", flush=True)
        with two_places(first, second, speed) as machine:
            results.unlike.append(_unlike_row(Network.of(model, machine), what, count, seconds))
        results.save()


def _unlike_row(network: Network, what: str, count: int, seconds: float) -> Row:
    costs = network.costs
    found = scheme_plan("forkjoin", costs)
    assert found is not None  # either place can run it all
    one = Told("one place", network.on_one(network.quickest), (network.whole_s(network.quickest),))
    pair = [one, Told("forkjoin", found.plan, found.foretold.stage_s)]
    row: dict[str, object] = {
        "model": network.model,
        "places": what,
        "emulated": "yes" if network.ready.machine.emulated else "no",
        "whole / critical": one.path_s / critical_s(costs),
        "predicted gain": (one.path_s + costs.handover_s) / found.foretold.latency_s,
        "one place": costs.places[network.quickest],
        "stages": len(found.plan.stages),
    }
    names = ("one place_ms", "forkjoin_ms", "gain", "handovers_ms")
    if len(found.plan.stages) == 1:
        return row | dict.fromkeys(names)
    with forced(what, network) as daemon:
        rounds = in_turns([(daemon, told) for told in pair], [], count, seconds)
    its = [readings(rounds, told) for told in pair]
    values = (
        *(Spread.of(1e3 * one.latency_s for one in of_plan) for of_plan in its),
        Spread.of(whole.latency_s / branches.latency_s for whole, branches in zip(*its, strict=True)),
        Spread.of(1e3 * one.handovers_s(found.plan) for one in its[1]),
    )
    return row | dict(zip(names, values, strict=True))


class _Results:
    """Results, saved after each network, so that they are kept if a later one fails."""

    def __init__(self, about: Mapping[str, str]) -> None:
        self.paper: list[Row] = []
        self.alone: list[Row] = []
        self.forced: list[Row] = []
        self.unlike: list[Row] = []
        self.schedules: list[Row] = []
        self._about = about

    def save(self) -> None:
        emulated = {"emulated": f"the core at {SLOW:g} of its speed: real computation, then a wait"}
        for name, rows, more in (
            ("branches", self.paper, {}),
            ("branches_alone", self.alone, {}),
            ("branches_forced", self.forced, {}),
            ("branches_unlike", self.unlike, emulated),
            ("branches_schedules", self.schedules, {}),
        ):
            if rows:
                save_csv(name, rows, {**self._about, **more})

    def show(self) -> None:
        show("On paper: what branches alone can gain, and a schedule of two places", self.paper)
        for title, rows, notes in (
            ("One frame at a time, ms", self.alone, [f"latency / better of one core and team: at most {AIM_OWN}"]),
            ("Plans as told, against their own predictions", self.forced, ["measured / bound: at most 1.1"]),
            ("Unlike places", self.unlike, ["gain: above 1 branches are quicker than the best place alone"]),
        ):
            if rows:
                show(title, [{name: its for name, its in row.items() if name != "written"} for row in rows], notes)
        if self.schedules:
            off = sorted(abs(float(str(row["error %"]))) for row in self.schedules)
            print(
                f"random schedules of {SCHEDULED}: {len(off)}, median error {statistics.median(off):.1f}% "
                f"(aim: {AIM_PERCENT:g}%), largest {off[-1]:.1f}%"
            )


def branches(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name, of two cores.")] = "this-machine",
    seconds: Annotated[float, typer.Option(help="For each side in each round.")] = 0.4,
    count: Annotated[int, typer.Option("--rounds", help="Rounds.")] = 5,
    drawn: Annotated[int, typer.Option("--schedules", help=f"Random schedules of {SCHEDULED}.")] = 30,
) -> None:
    """What branches side by side bring one frame at a time, on paper and on two real cores, alike and unlike."""
    if len(load_machine(machine).places) != 2:
        raise BadInput(f"{machine}: has {len(load_machine(machine).places)} places, expected two")
    options = f"--models {models} --machine {machine} --seconds {seconds:g} --rounds {count} --schedules {drawn}"
    results = _Results(facts(f"branches {options}"))
    for model in models.split(","):
        print(f"branches: {model} ...", flush=True)
        _one_model(model, machine, count, seconds, results)
    _unlike(models.split(","), count, seconds, results)
    if drawn:
        print(f"branches: {drawn} random schedules of {SCHEDULED} ...", flush=True)
        results.schedules += random_schedules(Network.of(SCHEDULED, load_machine(machine)), LAYERS, drawn, seconds)
        results.save()
    results.show()


if __name__ == "__main__":
    typer.run(branches)
