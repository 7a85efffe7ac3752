"""`shisha-rt plan` for a MODEL on a machine, and where its strategy schedules partitions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shisha_rt.cli.options import progress
from shisha_rt.cli.views.plan_answer import PlanAim, PlanAnswer, PlanProblem
from shisha_rt.cli.views.scheme_answer import PARTITIONS, SchemeAnswer
from shisha_rt.errors import BadInput, Failure
from shisha_rt.graph.input_sizes import InputSizes
from shisha_rt.graph.layer_kinds import LayerKind
from shisha_rt.outcome import Outcome
from shisha_rt.placement.solver_names import SchemeName

if TYPE_CHECKING:
    from shisha_rt.ready.model_on_machine import ModelOnMachine


@dataclass(frozen=True, slots=True)
class Partitioning:
    """`groups` as `--group` has them; `program`: where a program of the schedule is to be written, if anywhere."""

    scheme: SchemeName
    precision: str
    groups: tuple[str, ...] = ()
    program: Path | None = None


def model_on_machine(
    model: str,
    machine: str | None,
    sizes: InputSizes,
    kind: LayerKind | None,
    precision: str,
    *,
    teams: bool = False,
) -> ModelOnMachine:
    """`kind` None: the finest that the machine can be cut into."""
    from shisha_rt.graph.zoo import resolve_model
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.ready.model_on_machine import make_ready

    if model.endswith(".json"):
        raise BadInput(f"plan {model}: no model has such a name, expected --costs {model} if it is a file of costs")
    if machine is None:
        raise BadInput("plan MODEL: --machine is missing, expected a machine file or a name such as this-machine")
    described = load_machine(machine)
    return make_ready(
        resolve_model(model, progress),
        described,
        sizes=[sizes],
        precision=precision,
        kind=kind or described.finest_layers,
        teams=teams,
        on_progress=progress,
    )


def schedule_partitions(model: str, machine: str | None, sizes: InputSizes, wanted: Partitioning) -> SchemeAnswer:
    """Where places have devices each operator is a layer, so that any two of them can be parted."""
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.placement.scheme_plans import scheme_plan
    from shisha_rt.ready.processors import processor_costs
    from shisha_rt.ready.program import check_program_file, check_program_machine, write_program

    program = wanted.program
    if program is not None:
        check_program_file(program)
        if machine is not None:
            check_program_machine(load_machine(machine))
    ready = model_on_machine(model, machine, sizes, None, wanted.precision)
    profiled = processor_costs(ready, progress, wanted.groups)
    start_s = time.monotonic()
    found = scheme_plan(wanted.scheme, profiled.costs)
    if found is None:
        what = "every layer" if wanted.scheme == "baseline" else "some layer"
        raise Failure(f"infeasible: no place of {ready.machine.source} can run {what} by itself")
    planning_s = time.monotonic() - start_s
    weights = [layer.weight for layer in ready.compiled.layers]
    problem = PlanProblem(weights, ready.machine.places, ready.compiled.legal_cuts)
    answer = PlanAnswer(
        problem,
        found.plan,
        len(found.plan.stages),
        [[taken_s] for taken_s in found.foretold.stage_s],
        Outcome.FEASIBLE,
        None,
        aim=PlanAim(objective="latency", space=PARTITIONS),
    )
    if program is not None:
        progress(f"writing {program} and its parts")
        write_program(program, ready, found)
    return SchemeAnswer(answer, found, profiled, planning_s)
