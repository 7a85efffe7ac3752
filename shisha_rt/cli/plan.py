"""`shisha-rt plan`: which layers run where, decided on paper."""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shisha_rt.checked import one_of
from shisha_rt.cli.completion import offer, offer_machines, offer_models
from shisha_rt.cli.options import Dims, Json, Shapes, parse_sizes, read_bytes, refuse_given, refuse_options, takes
from shisha_rt.cli.plan_order import LayerOrder, check_order, refuse_foreign_order, with_order
from shisha_rt.cli.progress import progress
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.seed import Assign, seed
from shisha_rt.planner.strategies import (
    DEFAULT_ALPHA,
    LIMITED,
    PARTITIONS,
    SCHEMES,
    WITH_COPIES,
    WITHOUT_COSTS,
    Balance,
    StrategyName,
)
from shisha_rt.planner.tune import DEFAULT_HEURISTIC
from shisha_rt.show.plan_answer import KnownSeconds, PlanAim, PlanAnswer, PlanProblem
from shisha_rt.studies import study

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs
    from shisha_rt.measure.model_on_machine import ModelOnMachine
    from shisha_rt.papers.partitiontuner.scheme_answer import SchemeAnswer
    from shisha_rt.planner.solution import PlanSolution


_of_search: Final = partial(typer.Option, rich_help_panel="Search")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="A path to an ONNX file, or zoo:NAME; or give --costs.", autocompletion=offer_models
        ),
    ] = None
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A machine file or a shipped name. Default: this-machine.",
            autocompletion=offer_machines,
        ),
    ] = None
    costs: Annotated[
        Path | None, typer.Option(metavar="COSTS.json", help="Layers, places and known times, in place of MODEL.")
    ] = None
    strategy: Annotated[
        StrategyName,
        typer.Option(metavar="NAME", help="How to look for a plan: seed, exact, guided, shisha, or one of its rivals."),
    ] = "seed"
    stages: Annotated[
        int | None, typer.Option(metavar="N", help="Stages. Default: as many as places or layers, the fewer.")
    ] = None
    assign: Annotated[Assign, _of_search(help="What decides which stage gets the fastest place.")] = (
        DEFAULT_HEURISTIC.assign
    )
    seed_: Annotated[int, _of_search("--seed", metavar="N", min=0, help="Start of the random generator.")] = 0
    time_limit: Annotated[
        float | None,
        _of_search(
            metavar="S",
            help="Stop exact after S seconds, a rival of Shisha's after trials of S seconds in all; not for others.",
        ),
    ] = None
    balance: Annotated[
        Balance | None, _of_search(help=f"Where Shisha moves a layer to. Default: {DEFAULT_HEURISTIC.balance}.")
    ] = None
    alpha: Annotated[
        int | None, _of_search(metavar="N", help=f"Moves without gain before Shisha stops. Default: {DEFAULT_ALPHA}.")
    ] = None
    replicate: Annotated[
        bool, typer.Option("--replicate/--no-replicate", help="Allow copies of a stage, and teams of places.")
    ] = False
    split: Annotated[bool, _of_search("--split/--no-split", help="Allow layers to be split over places.")] = False
    order: Annotated[
        LayerOrder, _of_search(help="Of the layers along the pipeline: as in the file, or whichever is best.")
    ] = "file"
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(EVERY_OBJECTIVE),
            autocompletion=offer(*EVERY_OBJECTIVE),
            help="What the plan is to be best in. Default: throughput.",
        ),
    ] = None
    target_ms: Annotated[
        float | None, _of_search(metavar="MS", help="For energy: a frame by itself takes no longer. Default: no limit.")
    ] = None
    kind: Annotated[
        LayerKind | None,
        _of_search("--layers", help="One for each heavy operator (default), or each (where places have devices)."),
    ] = None
    # Of schedules of partitions: `plan schedule` explains them.
    precision: Annotated[str, typer.Option(hidden=True)] = "exact"
    program: Annotated[Path | None, typer.Option(hidden=True)] = None
    group: Annotated[list[str] | None, typer.Option(hidden=True)] = None
    dim: Dims = None
    shape: Shapes = None
    as_json: Json = False


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Plan which layers of MODEL run on which place, on paper.

    Layers and what they take are those of MODEL on a machine, measured first where that is needed; or those of a file
    of costs. Layers are numbered from 0. Times are unknown (null) until something has measured or stated them.

    See also `plan schedule` (partitions over unlike processors), `plan get` and `plan set` (a daemon's live plan).

    \b
    Examples:
      shisha-rt plan zoo:squeezenet
      shisha-rt plan zoo:squeezenet --strategy exact --replicate
      shisha-rt plan zoo:resnet50 --machine board.toml --stages 3 --json > plan.json
      shisha-rt plan --costs COSTS.json --strategy exact --time-limit 10
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    _refuse_foreign(options)
    aim = _aim(options)
    refuse_foreign_order(options.order, options.strategy, aim)
    if options.precision not in PERMITTED:
        raise BadInput(f"--precision {options.precision}: expected {' or '.join(PERMITTED)}", Error.WRONG_OPTION)
    if (options.model is None) == (options.costs is None):
        raise BadInput("plan: expected exactly one of MODEL and --costs COSTS.json", Error.OPTIONS_CLASH)
    columns = shutil.get_terminal_size().columns
    if options.strategy in SCHEMES:
        scheduled = _scheduled(options)
        print(json.dumps(scheduled.as_object()) if options.as_json else scheduled.in_words(columns))
        return
    answer = _planned(options, aim)
    print(json.dumps(answer.as_object()) if options.as_json else answer.in_words(columns))
    if answer.reason is not None:
        raise Failure(f"{answer.outcome}: {answer.reason}", Error.NO_PLAN, printed=True)


def _scheduled(options: PlanOptions) -> SchemeAnswer:
    strategy = options.strategy
    refuse_given(
        {f"--layers {options.kind}": options.kind}, f"not with --strategy {strategy}, which takes the finest layers"
    )
    refuse_options(options, "costs stages", f"not with --strategy {strategy}, which goes by what a MODEL reads where")
    answer: SchemeAnswer = study("schedule_partitions")(options)
    return answer


def _planned(options: PlanOptions, aim: PlanAim) -> PlanAnswer:
    problem = _problem_of_model(options, aim) if options.model is not None else _problem_of_costs(options)
    check_order(options.order, problem, str(options.model or options.costs))
    until_s = math.inf if options.time_limit is None else time.monotonic() + options.time_limit
    rng = random.Random(options.seed_)
    chosen = seed(
        problem.weights,
        problem.places,
        stage_count=options.stages,
        assign=options.assign,
        legal_cuts=problem.legal_cuts,
        rng=rng,
    )
    # With splits a place counts as one stage, whatever shards it has: there may be more of these stages than layers.
    most_stages = options.stages if options.split else len(chosen.stages)
    goal = Goal(
        aim.replicate,
        aim.objective,
        most_stages,
        latency_s=math.inf if options.target_ms is None else options.target_ms / 1e3,
        should_stop=lambda: time.monotonic() >= until_s,
    )
    if aim.objective == "energy" and problem.costs is not None and not problem.costs.power_w:
        where = options.machine or options.costs or "this-machine"
        missing = next(place.name for place in problem.costs.places if place.power_w is None)
        expected = "expected the watts that it draws, for energy"
        raise BadInput(f"{where}: place {missing}: power_w is missing, {expected}", Error.MACHINE_UNFIT)
    start: Plan | None = chosen
    if options.strategy == "guided":  # starts from the exact plan: trials measured by the same costs confirm it
        assert problem.costs is not None  # only the seed does without
        solution = _exact(problem.costs, goal)
        start, aim = solution.plan, replace(aim, space=solution.space)
    if options.strategy == "seed":
        answer = _assess(problem, chosen, None, aim)
    elif options.strategy == "exact" or start is None:
        answer = _solved(problem, len(chosen.stages), goal, aim)
    else:
        answer = _assess(problem, chosen, _tuned(options, problem, start, goal, rng), aim)
    return with_order(answer, options.order, options.strategy, most_stages, until_s)


def _refuse_foreign(options: PlanOptions) -> None:
    for known, names in ((("shisha",), "balance alpha"), (SCHEMES, "program group"), (LIMITED, "time_limit")):
        if options.strategy not in known:
            expected = f"expected --strategy {' or '.join(known)}"
            refuse_options(options, names, f"not with --strategy {options.strategy}, {expected}")
    if options.alpha is not None and options.alpha < 1:
        raise BadInput(f"--alpha {options.alpha}: expected at least 1", Error.WRONG_OPTION)
    if options.time_limit is not None and not options.time_limit > 0:
        raise BadInput(f"--time-limit {options.time_limit:g}: expected more than 0", Error.WRONG_OPTION)


def _aim(options: PlanOptions) -> PlanAim:
    objective, strategy = options.objective, options.strategy
    if objective is not None and objective not in EVERY_OBJECTIVE:
        raise BadInput(f"--objective {objective}: expected {', '.join(EVERY_OBJECTIVE)}", Error.WRONG_OPTION)
    if options.target_ms is not None and objective != "energy":
        raise BadInput("--target-ms: expected --objective energy beside it", Error.OPTIONS_CLASH)
    if options.target_ms is not None and not options.target_ms > 0:
        raise BadInput(f"--target-ms {options.target_ms:g}: expected more than 0", Error.WRONG_OPTION)
    if objective == "energy":
        refuse_given({"--split": options.split}, "not with --objective energy, of which shards spare none")
    wants = {
        "--replicate": options.replicate,
        "--split": options.split,
        f"--objective {objective}": objective not in (None, "latency" if strategy in SCHEMES else "throughput"),
    }
    if strategy in SCHEMES:
        refuse_given(wants, f"not with --strategy {strategy}, which knows no objective but latency")
        return PlanAim(objective="latency", space=PARTITIONS)
    if strategy not in WITH_COPIES:
        refuse_given(wants, f"not with --strategy {strategy}, expected --strategy {' or '.join(WITH_COPIES)}")
    wanted = one_of("objective", objective or "throughput", EVERY_OBJECTIVE)
    return PlanAim(options.replicate, wanted, split=options.split)


def model_on_machine(options: PlanOptions, kind: LayerKind | None) -> ModelOnMachine:
    """MODEL made ready for `--machine`. `kind` None: the finest layers that are possible on the machine."""
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.measure.make_ready import make_ready
    from shisha_rt.model.zoo import resolve_model

    model = options.model
    assert model is not None  # or there are costs
    if model.endswith(".json"):
        raise BadInput(
            f"plan {model}: no model has such a name, expected --costs {model} if it is a file of costs",
            Error.MODEL_UNREADABLE,
        )
    described = load_machine(options.machine or "this-machine")
    return make_ready(
        resolve_model(model, progress),
        described,
        sizes=[parse_sizes(options.dim, options.shape)],
        precision=options.precision,
        kind=kind or described.finest_layers,
        teams=options.replicate,
        on_progress=progress,
    )


def _problem_of_model(options: PlanOptions, aim: PlanAim) -> PlanProblem:
    """The problem with costs from the profile store, those of teams too if plans may have them; measured if missing.

    Costs may be impossible to measure, as a place on paper may have more threads than this host has cores. Strategies
    of `WITHOUT_COSTS` then do without.
    """
    from shisha_rt.measure.costs_of_model import layer_costs, priced_splits

    ready = model_on_machine(options, options.kind or "heavy")
    compiled = ready.compiled
    try:
        costs = layer_costs(ready, progress).costs()
        progress("planning")
        if aim.split:
            from shisha_rt.costs.split_costs import SplitCosts

            splittables, known_shares = priced_splits(ready)
            costs = replace(costs, splits=SplitCosts(tuple(splittables), shard_times=known_shares))
    except BadInput:
        if options.strategy not in WITHOUT_COSTS:
            raise
        costs = None
    weights = [layer.weight for layer in compiled.layers]
    return PlanProblem(weights, ready.machine.places, frozenset(compiled.legal_cuts), costs, compiled.needs)


def _problem_of_costs(options: PlanOptions) -> PlanProblem:
    from shisha_rt.costs.costs_file import parse_costs
    from shisha_rt.costs.links import layer_needs
    from shisha_rt.costs.split_costs import SplitCosts

    path = options.costs
    assert path is not None  # or there is a model
    why = "not with --costs, which states its own layers and places"
    refuse_options(options, "machine dim shape", why)
    refuse_given({"--layers": options.kind}, why)
    costs = parse_costs(read_bytes(path, "costs as JSON"), str(path))
    if options.split and not costs.splits.splittables:
        raise BadInput(f"{path}: has no `splits`, expected how layers may be split, for --split", Error.COSTS_MISSING)
    if not options.split:
        costs = replace(costs, splits=SplitCosts())
    needs = layer_needs(costs.tensors, len(costs.layers))
    return PlanProblem([layer.weight for layer in costs.layers], costs.places, costs.legal_cuts, costs, needs)


def _tuned(options: PlanOptions, problem: PlanProblem, start: Plan, goal: Goal, rng: random.Random) -> Result:
    """Search by trials; measurements are computed from the costs."""
    from shisha_rt.costs.costs_evaluator import CostsEvaluator
    from shisha_rt.planner.tuners import SearchTask, tuner_of

    assert problem.costs is not None  # only the seed does without
    task = SearchTask(
        start,
        problem.places,
        goal,
        problem.costs,
        legal_cuts=problem.legal_cuts,
        alpha=options.alpha or DEFAULT_ALPHA,
        balance=options.balance or DEFAULT_HEURISTIC.balance,
        rng=rng,
        trial_time_s=options.time_limit,
    )
    return run(tuner_of(options.strategy, task), CostsEvaluator(problem.costs), objective=goal.objective)


def _exact(costs: Costs, goal: Goal) -> PlanSolution:
    """The best plan, also among plans with the splits that `costs` have."""
    from shisha_rt.planner.exact import exact_plan
    from shisha_rt.planner.shards.split_plan import split_plan

    return split_plan(costs, exact_plan(costs, goal), goal)


def _solved(problem: PlanProblem, stage_count: int, goal: Goal, aim: PlanAim) -> PlanAnswer:
    """The best plan under the costs, found without trials."""
    assert problem.costs is not None  # only the seed does without
    solution = _exact(problem.costs, goal)
    chosen = solution.plan or Plan(())
    team_s, faults = _team_seconds(problem, chosen) if chosen.stages else ([], [])
    assert not faults, faults  # a planner's bug, never the user's
    return PlanAnswer(
        problem,
        chosen,
        stage_count,
        team_s,
        solution.outcome,
        solution.reason,
        aim=replace(aim, space=solution.space),
        lower_bound_s=solution.lower_bound_s,
        latency_proven=solution.latency_proven,
        lower_bound_j=solution.lower_bound_j,
    )


def _assess(problem: PlanProblem, start: Plan, tuned: Result | None, aim: PlanAim) -> PlanAnswer:
    """The answer for a plan: its times as far as costs are known, and why it cannot run, if so."""
    chosen = start if tuned is None else tuned.solution
    team_s, faults = _team_seconds(problem, chosen)
    outcome, reason = (Outcome.INFEASIBLE, faults[0]) if faults else (Outcome.FEASIBLE, None)
    if tuned is not None:
        trials, trial_time_s = len(tuned.trials), tuned.trial_time_s
    elif problem.costs is not None:
        from shisha_rt.costs.costs_evaluator import CostsEvaluator

        trials, trial_time_s = 1, CostsEvaluator(problem.costs).measurement_of(chosen).took_s
    else:
        trials, trial_time_s = 0, 0.0
    return PlanAnswer(problem, chosen, len(start.stages), team_s, outcome, reason, trials, trial_time_s, tuned, aim)


def _team_seconds(problem: PlanProblem, chosen: Plan) -> tuple[KnownSeconds, list[str]]:
    """(stages, teams): seconds, None if not known; and why the plan cannot run: empty if it can."""
    if problem.costs is None:
        return [[None] * len(stage.teams) for stage in chosen.stages], []
    from shisha_rt.costs.costs import stage_service_s, why_infeasible
    from shisha_rt.costs.costs_evaluator import CostsEvaluator

    measurement = CostsEvaluator(problem.costs).measurement_of(chosen)  # it checks the plan, too
    if not chosen.is_plain:
        return measurement.team_s, []
    service_s: list[list[float | None]] = []
    faults: list[str] = []
    for stage, busy_s in zip(chosen.stages, measurement.service_s, strict=True):
        place = problem.costs.place_index(stage.place)
        taken_s = stage_service_s(problem.costs, stage.first, stage.last, place)
        if stage.batch > 1 or stage.place in problem.costs.link_of:
            taken_s = busy_s if math.isfinite(busy_s) else math.nan
        service_s.append([None if math.isnan(taken_s) else taken_s])
        fault = why_infeasible(problem.costs, stage.first, stage.last, place)
        faults += [] if fault is None else [fault]
    return service_s, faults
