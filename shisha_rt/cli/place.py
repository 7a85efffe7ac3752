"""`shisha-rt place`: which operator runs on which device of a place."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shisha_rt.cli.options import Dims, Json, parse_dims, progress, read_bytes
from shisha_rt.errors import BadInput, Failure
from shisha_rt.placement.check import Cost, cost
from shisha_rt.placement.duet import DEFAULT_X
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.problem_file import parse_problem
from shisha_rt.placement.solution import Solution, SolverName

if TYPE_CHECKING:
    from shisha_rt.machine.machine import Machine, Place

_PROBLEM_SUFFIX: Final = ".json"


def place(
    problem: Annotated[
        str,
        typer.Argument(metavar="PROBLEM.json|MODEL", help="Nodes, tensors and costs; or an ONNX file, or zoo:NAME."),
    ],
    machine: Annotated[
        str | None, typer.Option(metavar="FILE", help="With MODEL: a machine file or shipped name, such as pim-board.")
    ] = None,
    place_: Annotated[
        str | None, typer.Option("--place", metavar="NAME", help="The place; needed if the machine has several.")
    ] = None,
    solver: Annotated[SolverName, typer.Option(help="How to look for an assignment.")] = "exact",
    priority: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Devices for --solver priority, the preferred one first.")
    ] = None,
    duet_x: Annotated[
        float | None,
        typer.Option(metavar="X", help=f"Percent of nodes that duet reconsiders. Default: {DEFAULT_X:g}."),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="Seconds that milp may take.")] = None,
    accelerator: Annotated[str | None, typer.Option(metavar="DEVICE", help="For typeseq; not built yet.")] = None,
    measured: Annotated[bool, typer.Option("--measured", help="Measured costs; not built yet.")] = False,
    dot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the placement as Graphviz text.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the placement (takes the extra plot).")] = None,
    dim: Dims = None,
    as_json: Json = False,
) -> None:
    """Decide which operator runs on which device, transfers counted.

    The problem is read from PROBLEM.json, or built from MODEL and the device descriptions of a place; those costs
    are modelled. Whatever a solver says, the costs shown are computed anew from its assignment.

    \b
    Examples:
      shisha-rt place zoo:bert --machine pim-board
      shisha-rt place zoo:bert --machine pim-board --dim sequence=64 --solver priority --priority pim,cpu_p,cpu_s
      shisha-rt place zoo:gpt2 --machine pim-board --dot gpt2.dot --png gpt2.png
      shisha-rt place PROBLEM.json --solver duet --duet-x 25 --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.placement.solvers import Options, solve

    _refuse_unbuilt(solver, accelerator, measured)
    _refuse_foreign(solver, priority, duet_x, time_limit)
    options = Options(
        priority=() if priority is None else tuple(priority.split(",")),
        duet_x=DEFAULT_X if duet_x is None else duet_x,
        time_limit_s=time_limit,
    )
    if problem.endswith(_PROBLEM_SUFFIX):
        title, read = _problem_of_file(Path(problem), machine, place_, dim)
    else:
        title, read = _problem_of_model(problem, machine, place_, parse_dims(dim))
    started = perf_counter()
    solution = solve(solver, read, options)
    found = _Found(read, solution, perf_counter() - started)
    if as_json:
        print(json.dumps(found.as_object()))
    elif found.cost is not None:
        from shisha_rt.cli.place_report import print_report

        print_report(title, read, solution, solver, found.solve_time_s)
    if solution.assignment is None:
        raise Failure(f"{solution.outcome}: {solver} has found no assignment")
    if dot is not None:
        from shisha_rt.cli.place_dot import placement_dot

        try:
            dot.write_text(placement_dot(title, read, solution.assignment), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"--dot {dot}: cannot be written ({error.strerror}), expected a file to write") from None
    if png is not None:
        _draw(png, title, read, solution.assignment)


@dataclass(frozen=True, slots=True)
class _Found:
    problem: Problem
    solution: Solution
    solve_time_s: float

    @property
    def cost(self) -> Cost | None:
        assignment = self.solution.assignment
        return None if assignment is None else cost(self.problem, assignment)

    def as_object(self) -> dict[str, object]:
        """The answer of `--json`: all keys, always."""
        names, found, assignment = self.problem.devices, self.cost, self.solution.assignment
        assert found is None or math.isfinite(found.total_s), "a solver's bug: a node on a device that cannot run it"
        return {
            "assignment": None
            if assignment is None
            else {node.name: names[d] for node, d in zip(self.problem.nodes, assignment, strict=True)},
            "cost_s": found and found.total_s,
            "node_cost_s": found and found.node_s,
            "transfer_cost_s": found and found.transfer_s,
            "lower_bound_s": self.solution.lower_bound_s,
            "outcome": self.solution.outcome,
            "solve_time_s": self.solve_time_s,
        }


def _refuse_unbuilt(solver: SolverName, accelerator: str | None, measured: bool) -> None:
    from shisha_rt.placement.solvers import BUILT

    if solver not in BUILT:
        raise BadInput(f"--solver {solver}: not built yet, expected one of {', '.join(BUILT)}")
    for option, is_given in (("--accelerator", accelerator is not None), ("--measured", measured)):
        if is_given:
            raise BadInput(f"{option}: not built yet, expected no such option")


def _refuse_foreign(solver: SolverName, priority: str | None, duet_x: float | None, time_limit: float | None) -> None:
    for option, value, own in (
        ("--priority", priority, "priority"),
        ("--duet-x", duet_x, "duet"),
        ("--time-limit", time_limit, "milp"),
    ):
        if value is not None and solver != own:
            raise BadInput(f"{option}: not with --solver {solver}, expected --solver {own}")
    if duet_x is not None and not 0 <= duet_x <= 100:
        raise BadInput(f"--duet-x {duet_x:g}: expected a percentage from 0 to 100")
    if time_limit is not None and not time_limit > 0:
        raise BadInput(f"--time-limit {time_limit:g}: expected a number of seconds above 0")


def _problem_of_file(
    path: Path, machine: str | None, place_name: str | None, dim: list[str] | None
) -> tuple[str, Problem]:
    for option, value in (("--machine", machine), ("--place", place_name), ("--dim", dim)):
        if value:
            raise BadInput(f"{option}: not with {path.name}, which states its own nodes and costs")
    return path.name, parse_problem(read_bytes(path, "a placement problem as JSON"), str(path))


def _problem_of_model(
    model: str, machine_name: str | None, place_name: str | None, dims: dict[str, int]
) -> tuple[str, Problem]:
    from shisha_rt.graph.onnx_reader import read_model
    from shisha_rt.graph.zoo import resolve_model
    from shisha_rt.machine.config import load_machine
    from shisha_rt.machine.devices import devices_of
    from shisha_rt.placement.build import build_problem

    if machine_name is None:
        raise BadInput("place MODEL: --machine is missing, expected a machine file or a name such as pim-board")
    machine = load_machine(machine_name)
    chosen = _place_of(machine, place_name)
    devices = devices_of(machine, chosen)
    read = read_model(resolve_model(model, progress), dims)
    title = f"{read.name} on {chosen.name} of {machine.name}, modelled: times are those of device descriptions"
    return title, build_problem(read.graph, devices)


def _place_of(machine: Machine, name: str | None) -> Place:
    names = [place.name for place in machine.places]
    if name is None and len(names) > 1:
        raise BadInput(f"{machine.source}: has several places, expected --place with one of {', '.join(names)}")
    if name is not None and name not in names:
        raise BadInput(f"--place {name}: {machine.source} has no such place, expected one of {', '.join(names)}")
    return machine.place(name or names[0])


def _draw(path: Path, title: str, problem: Problem, assignment: tuple[int, ...]) -> None:
    from shisha_rt.cli.figure import NoFigure
    from shisha_rt.cli.place_figure import save_placement

    try:
        save_placement(path, title, problem, assignment)
    except NoFigure as error:
        raise Failure(f"--png: {error}") from None
