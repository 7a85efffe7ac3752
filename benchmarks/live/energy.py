"""Energy of a frame, predicted and by measured times of stages: `python -m benchmarks energy`.

An emulated board of big and little places (`big-little`), whose power is described and not measured. For each network a
daemon tunes itself for throughput, for latency, and for energy: without a target, and with a target of 1.5 times the
unloaded latency of the plan for latency. `predicted mJ`: of the daemon's final plan, by stored costs of layers; `least
mJ`: of the best plan for energy, by the same costs; `measured mJ`: power of each place times the measured times of its
stages at saturation (medians), as in `status`. `over energy`: measured energy, over that of the plan for energy without
a target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.live.load import daemon_side
from benchmarks.report.report import Report
from benchmarks.report.results import Row, number
from benchmarks.rigs.contest import Network
from benchmarks.rigs.control import live_plan, tune
from benchmarks.rigs.daemons import Rig, profiled
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import PART_OF_TARGET, Goal

MACHINE: Final = "big-little"
_SLACK: Final = 1.5
_BURST_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Side:
    """`target_s`: target of unloaded latency; inf: none."""

    objective: Objective
    target_s: float = math.inf

    @property
    def name(self) -> str:
        return self.objective if self.target_s == math.inf else f"{self.objective}, target {1e3 * self.target_s:.0f} ms"

    @property
    def options(self) -> tuple[str, ...]:
        return () if self.target_s == math.inf else ("--target-ms", f"{1e3 * self.target_s:.3f}")


def energy(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "squeezenet,inception_v1",
    machine: Annotated[str, typer.Option(help="A machine whose places state their power.")] = MACHINE,
) -> None:
    """Joules a frame of plans for each objective, predicted and measured, on an emulated board."""
    described = load_machine(machine)
    check_runnable(described)
    report = Report("energy", {"emulated": "all places; their power is described, not measured"})
    rows: list[Row] = []
    for model in models.split(","):
        report.step(model)
        rows += _rows(Network.of(model, described), described, report)
        report.save(rows)
    report.show("Energy of a frame, by described power", rows)


def _rows(network: Network, machine: Machine, report: Report) -> list[Row]:
    costs = layer_costs(profiled(network.model, machine), print).costs()
    sides = [_Side("throughput"), _Side("latency"), _Side("energy")]
    rows: list[Row] = []
    for side in sides:
        report.glance(f"{network.model}: {side.name}")
        rows.append(_row(network, machine, side, costs))
        if side.objective == "latency":
            sides.append(_Side("energy", _SLACK * number(rows[-1], "alone ms") / 1e3))
    least = next(number(row, "measured mJ") for row in rows if row["objective"] == "energy")
    return [{**row, "over energy": number(row, "measured mJ") / least} for row in rows]


def _row(network: Network, machine: Machine, side: _Side, costs: Costs) -> Row:
    """From a daemon that has tuned itself: its plan, its unloaded latency, and its rate and joules at saturation."""
    with Rig() as rig:
        control, asked = daemon_side(rig, network, machine, side.objective, *side.options)
        many = 2 * len(machine.places)
        tune(control, asked, in_flight=1 if side.objective == "latency" else many)
        alone, burst = (asked.ask(seconds=_BURST_S, in_flight=in_flight) for in_flight in (1, many))
        plan, joules = live_plan(control), control.call("status")["status"]["energy_j"]
    predicted_j = team_costs(costs).rate(plan).energy_j
    goal = Goal(replicate=True, objective="energy", latency_s=PART_OF_TARGET * side.target_s)
    least = exact_plan(costs, goal).plan
    return {
        "model": network.model,
        "machine": machine.name,
        "emulated": "yes" if machine.emulated else "no",
        "for": side.name,
        "objective": side.objective,
        "predicted mJ": 1e3 * predicted_j,
        "measured mJ": 1e3 * joules,
        "measured / predicted": joules / predicted_j,
        "least mJ": None if least is None else 1e3 * team_costs(costs).rate(least).energy_j,
        "alone ms": 1e3 / alone["fps"],
        "frames/s": burst["fps"],
        "plan": str(plan),
    }
