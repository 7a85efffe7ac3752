"""`shisha-rt place`: which operator runs on which device of a place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

import typer

from shisha_rt.checked import printable
from shisha_rt.cli.completion import offer_machines, offer_models
from shisha_rt.cli.options import (
    Dims,
    Json,
    PlaceName,
    Shapes,
    check_writable,
    parse_sizes,
    place_named,
    read_bytes,
    refuse_given,
    refuse_options,
    takes,
)
from shisha_rt.cli.place_split import SplitOptions, place_split
from shisha_rt.cli.progress import progress
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.placement.check import cost
from shisha_rt.placement.duet import DEFAULT_X
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.problem_file import parse_problem
from shisha_rt.placement.schedule import schedule_object
from shisha_rt.placement.solution import ANY_ORDER_BOUND, PlacementSolution
from shisha_rt.placement.solver_names import SolverName
from shisha_rt.planner.strategies import SplitMethod, SplitObjective, SplitVariable
from shisha_rt.show.lines import counted
from shisha_rt.studies import study
from shisha_rt.whole_file import whole_file

if TYPE_CHECKING:
    from shisha_rt.costs.operator_costs import OperatorCosts
    from shisha_rt.machine.device import Device
    from shisha_rt.machine.machine import Machine, Place
    from shisha_rt.measure.compiled import Compiled
    from shisha_rt.papers.partitiontuner.partition_profile import PartitionProfile
    from shisha_rt.placement.operator_groups import Pattern

_PROBLEM_SUFFIX: Final = ".json"
_PRECISION: Final = "exact"
EXACT_S: Final = 60.0
"""Time limit of `exact`, and of solvers that begin with it, if none is given."""
_TIMED: Final = ("exact", "partitiontuner", "forkjoin")
_of_measuring, _of_solvers, _of_pictures = (
    partial(typer.Option, rich_help_panel=group) for group in ("Measuring", "Solvers", "Pictures")
)


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM.json|MODEL",
            help="Nodes, tensors and costs; or an ONNX file, or zoo:NAME.",
            autocompletion=offer_models,
        ),
    ]
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With MODEL: a machine file or shipped name, such as pim-board.",
            autocompletion=offer_machines,
        ),
    ] = None
    place_: PlaceName = None
    measured: Annotated[
        bool, typer.Option("--measured", help="With MODEL: measure on this host what is not described.")
    ] = False
    precision: Annotated[
        Literal["exact", "any"] | None,
        _of_measuring(help=f"With --measured: may devices change results (any)? Default: {_PRECISION}."),
    ] = None
    group: Annotated[
        list[str] | None,
        _of_measuring(
            metavar="OP+OP", help="With --measured: operators in a row to measure as one, as Conv+Relu; repeatable."
        ),
    ] = None
    solver: Annotated[
        SolverName,
        typer.Option(metavar="NAME", help=f"How to look for an assignment: {', '.join(get_args(SolverName))}."),
    ] = "exact"
    priority: Annotated[
        str | None, _of_solvers(metavar="A,B,C", help="Devices for --solver priority, the preferred one first.")
    ] = None
    duet_x: Annotated[
        float | None, _of_solvers(metavar="X", help=f"Percent of nodes that duet reconsiders. Default: {DEFAULT_X:g}.")
    ] = None
    time_limit: Annotated[
        float | None,
        _of_solvers(metavar="S", help=f"Seconds to solve. Default: {EXACT_S:g} for {', '.join(_TIMED)}; else none."),
    ] = None
    accelerator: Annotated[
        str | None, _of_solvers(metavar="DEVICE", help="For --solver typeseq. Default: the last device.")
    ] = None
    # Of layers split over devices: `place split` explains them.
    split: Annotated[SplitMethod | None, typer.Option(hidden=True)] = None
    objective: Annotated[SplitObjective | None, typer.Option(hidden=True)] = None
    parallel: Annotated[bool, typer.Option("--parallel", hidden=True)] = False
    variable: Annotated[SplitVariable | None, typer.Option(hidden=True)] = None
    k: Annotated[int | None, typer.Option("--k", min=1, hidden=True)] = None
    again: Annotated[bool, typer.Option("--again", hidden=True)] = False
    one_for_all: Annotated[bool, typer.Option("--one-for-all", hidden=True)] = False
    dot: Annotated[Path | None, _of_pictures(metavar="FILE", help="Write the placement as Graphviz text.")] = None
    png: Annotated[Path | None, _of_pictures(metavar="FILE", help="Draw the placement (takes the extra plot).")] = None
    dim: Dims = None
    shape: Shapes = None
    as_json: Json = False


@takes(PlaceOptions)
def place(options: PlaceOptions) -> None:
    """Decide which operator runs on which device of a place.

    The problem is read from PROBLEM.json, or built from MODEL and the devices of a place: those that are described
    have modelled costs, engines of this host are measured. Whatever a solver says, the costs shown are computed anew
    from its assignment, transfers counted.

    See also `place split` (layers shared out over devices), `place set` (a place of a daemon: up, down, its speed).

    \b
    Examples:
      shisha-rt place zoo:bert --machine pim-board
      shisha-rt place zoo:inception_v1 --machine two-engines --place core0 --measured
      shisha-rt place PROBLEM.json --solver duet --duet-x 25 --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    check_writable("--dot", options.dot)
    check_writable("--png", options.png)
    if options.split is not None:
        _split(options, options.split)
        return
    of_splits = "objective parallel variable k again one_for_all"
    refuse_options(options, of_splits, "says how to split layers, expected --split with it")
    _refuse_foreign(options)
    task = _problem(options)
    started = perf_counter()
    solution = _solved(options, task.problem, started)
    solve_time_s = perf_counter() - started
    if options.as_json:
        print(json.dumps(_answer(task, solution, solve_time_s)))
    elif solution.assignment is not None:
        from shisha_rt.show.placement import print_report

        print_report(task.title, task.problem, solution, options.solver, solve_time_s)
    if solution.assignment is None:
        raise Failure(
            f"{solution.outcome}: {options.solver} has found no assignment: {solution.reason}",
            Error.NO_PLAN,
            printed=True,
        )
    _draw(options, task, solution.assignment)


def _split(options: PlaceOptions, method: SplitMethod) -> None:
    if options.problem.endswith(_PROBLEM_SUFFIX):
        raise BadInput(
            f"--split: not with {Path(options.problem).name}, which has no layers, expected MODEL", Error.OPTIONS_CLASH
        )
    why = "not with --split, which is on paper and places no operators"
    refuse_given({"--solver": options.solver != "exact"}, why)
    refuse_options(options, "measured precision group priority duet_x accelerator time_limit dot png", why)
    if options.machine is None:
        raise BadInput(
            "place --split: --machine is missing, expected a machine file or a name such as tx2-cyclone",
            Error.OPTIONS_CLASH,
        )
    names = {field.name for field in fields(SplitOptions)} & {field.name for field in fields(PlaceOptions)}
    given = {name: getattr(options, name) for name in names}
    place_split(
        model=options.problem, method=method, **{name: value for name, value in given.items() if value is not None}
    )


def _problem(options: PlaceOptions) -> _Task:
    """The problem of a file, or of a model on a place; with `--measured`, devices not described are measured first."""
    if options.problem.endswith(_PROBLEM_SUFFIX):
        path = Path(options.problem)
        of_models = "machine place_ measured precision group dim shape"
        refuse_options(options, of_models, f"not with {path.name}, which states its own nodes and costs")
        return _Task(printable(path.name), parse_problem(read_bytes(path, "a placement problem as JSON"), str(path)))
    if options.measured:
        return _measured(options)
    of_measuring = {f"--precision {options.precision}": options.precision}
    refuse_given(of_measuring, "says what --measured may run, expected both or neither")
    groups = {f"--group {group}": group for group in options.group or ()}
    refuse_given(groups, "groups are measured, expected --measured or no such option")
    return _modelled(options)


def _solved(options: PlaceOptions, problem: Problem, started: float) -> PlacementSolution:
    from shisha_rt.placement.solvers import SolverOptions, solve

    limit_s = options.time_limit or (EXACT_S if options.solver in _TIMED else math.inf)
    solver_options = SolverOptions(
        priority=() if options.priority is None else tuple(map(str.strip, options.priority.split(","))),
        duet_x=DEFAULT_X if options.duet_x is None else options.duet_x,
        accelerator=options.accelerator,
        left_s=lambda: started + limit_s - perf_counter(),
    )
    return solve(options.solver, problem, solver_options)


@dataclass(frozen=True, slots=True)
class _Task:
    """A problem and its title; `profile`: how its costs were measured, if they were."""

    title: str
    problem: Problem
    profile: Mapping[str, float] | None = None


def _answer(task: _Task, solution: PlacementSolution, solve_time_s: float) -> dict[str, object]:
    """The object that `--json` prints: always all keys, except that a schedule and `profile` may be missing."""
    problem, assignment, schedule = task.problem, solution.assignment, solution.schedule
    costed = None if assignment is None else cost(problem, assignment)
    assert costed is None or math.isfinite(costed.total_s), "a solver's bug: a node on a device that cannot run it"
    return {
        "assignment": None
        if assignment is None
        else {node.name: problem.devices[d] for node, d in zip(problem.nodes, assignment, strict=True)},
        "cost_s": costed and costed.total_s,
        "node_cost_s": costed and costed.node_s,
        "transfer_cost_s": costed and costed.transfer_s,
        "lower_bound_s": solution.lower_bound_s,
        "outcome": solution.outcome,
        "reason": solution.reason,
        "solve_time_s": solve_time_s,
        **({} if schedule is None else schedule_object(problem, schedule)),
        **{name: bound for name, bound in solution.statistics.items() if name == ANY_ORDER_BOUND},
        **({} if task.profile is None else {"profile": task.profile}),
    }


def _refuse_foreign(options: PlaceOptions) -> None:
    for own, name in (("priority", "priority"), ("duet", "duet_x"), ("typeseq", "accelerator")):
        if options.solver != own:
            refuse_options(options, name, f"not with --solver {options.solver}, expected --solver {own}")
    if options.duet_x is not None and not 0 <= options.duet_x <= 100:
        raise BadInput(f"--duet-x {options.duet_x:g}: expected a percentage from 0 to 100", Error.WRONG_OPTION)
    if options.time_limit is not None and not options.time_limit > 0:
        raise BadInput(f"--time-limit {options.time_limit:g}: expected a number of seconds above 0", Error.WRONG_OPTION)


def _modelled(options: PlaceOptions) -> _Task:
    from shisha_rt.costs.operator_costs import described_costs
    from shisha_rt.machine.config.device_files import devices_of
    from shisha_rt.model.reader.onnx_reader import read_model
    from shisha_rt.model.zoo import resolve_model
    from shisha_rt.placement.build import build_problem

    machine, chosen = _place_of(options.machine, options.place_)
    devices = devices_of(machine, chosen)
    engines = [device.name for device in devices if not device.described]
    if engines:
        raise BadInput(
            f"{machine.source}: place {chosen.name}: the costs of {', '.join(engines)} are measured, "
            "expected --measured",
            Error.COSTS_MISSING,
        )
    read = read_model(resolve_model(options.problem, progress), parse_sizes(options.dim, options.shape))
    title = f"{read.name} on {chosen.name} of {machine.name}, modelled: times are those of device descriptions"
    return _Task(title, build_problem(read.graph, described_costs(read.graph, devices)))


def _measured(options: PlaceOptions) -> _Task:
    from shisha_rt.machine.config.device_files import devices_of, running_devices
    from shisha_rt.measure.compile import compile_model
    from shisha_rt.model.zoo import resolve_model
    from shisha_rt.placement.build import build_problem
    from shisha_rt.placement.operator_groups import parse_patterns

    machine, chosen = _place_of(options.machine, options.place_)
    # For a machine without any devices, none run; `devices_of` raises an error that says what is missing.
    devices = running_devices(machine, chosen, options.precision or _PRECISION) or devices_of(machine, chosen)
    described = ", ".join(device.name for device in devices if device.described)
    if all(device.described for device in devices):
        raise BadInput(
            f"--measured: {machine.source}: place {chosen.name} has described devices only ({described}), "
            "expected no such option: nothing has to be measured",
            Error.COSTS_MISSING,
        )
    measure = partial(_by_partitions, parse_patterns(options.group)) if options.group else _by_runs
    sizes = parse_sizes(options.dim, options.shape)
    compiled = compile_model(resolve_model(options.problem, progress), sizes, progress, plain="heavy")
    costs, how, profile = measure(compiled, machine, chosen, devices)
    progress("placing operators")
    title = f"{compiled.model.name} on {chosen.name} of {machine.name}, {how}"
    if described:
        title += f"; modelled: {described}"
    return _Task(title, build_problem(compiled.model.graph, costs), profile)


def _by_runs(
    compiled: Compiled, machine: Machine, place: Place, devices: tuple[Device, ...]
) -> tuple[OperatorCosts, str, Mapping[str, float]]:
    """Measure computing and moving separately; returns costs, and how they were measured, in words and figures."""
    from shisha_rt.measure.device_profile import profile_devices

    profiled = profile_devices(compiled, machine, place, devices, progress)
    runs = f"{counted(profiled.node_runs, 'node run')} and {counted(profiled.edge_runs, 'edge run')}"
    when = f"in {profiled.seconds:.3g} s" if profiled.seconds else "before"
    figures = {"node_runs": profiled.node_runs, "edge_runs": profiled.edge_runs, "seconds": profiled.seconds}
    return profiled.costs, f"measured {when}: {runs}", figures


def _by_partitions(
    patterns: Sequence[Pattern], compiled: Compiled, machine: Machine, place: Place, devices: tuple[Device, ...]
) -> tuple[OperatorCosts, str, Mapping[str, float]]:
    """Measure as PartitionTuner does: each partition by itself, with what it moves in and out."""
    profiled: PartitionProfile[OperatorCosts] = study("profile_partitions")(
        compiled, machine, place, devices, patterns, progress
    )
    figures = {
        "partitions": profiled.partitions,
        "distinct": profiled.distinct,
        "measured": profiled.measured,
        "seconds": profiled.seconds,
    }
    return profiled.costs, profiled.in_words, figures


def _place_of(machine_name: str | None, name: str | None) -> tuple[Machine, Place]:
    from shisha_rt.machine.config.machine_file import load_machine

    if machine_name is None:
        raise BadInput(
            "place MODEL: --machine is missing, expected a machine file or a name such as pim-board (or, in place of "
            f"MODEL, a placement problem in a file whose name ends in {_PROBLEM_SUFFIX})",
            Error.OPTIONS_CLASH,
        )
    machine = load_machine(machine_name)
    chosen = place_named(machine, name)
    if chosen is None:
        names = ", ".join(place.name for place in machine.places)
        raise BadInput(
            f"{machine.source}: has several places, expected --place with one of {names}", Error.OPTIONS_CLASH
        )
    return machine, chosen


def _draw(options: PlaceOptions, placed: _Task, assignment: tuple[int, ...]) -> None:
    if options.dot is not None:
        from shisha_rt.show.placement import placement_dot

        with whole_file(options.dot) as file:
            file.write_text(placement_dot(placed.title, placed.problem, assignment), encoding="utf-8")
    if options.png is not None:
        from shisha_rt.show.figure import asked_for_by_png
        from shisha_rt.show.placement import save_placement

        with asked_for_by_png():
            save_placement(options.png, placed.title, placed.problem, assignment)
