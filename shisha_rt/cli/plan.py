"""`shisha-rt plan`: which layers run where, decided on paper."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from shisha_rt.cli.options import Dims, Json, parse_dims, progress, read_bytes
from shisha_rt.cli.picture import Box, draw, span
from shisha_rt.errors import BadInput, Failure
from shisha_rt.pipeline.loop import Result, Trial, run
from shisha_rt.pipeline.search.arrangement import space_of
from shisha_rt.pipeline.search.search import Limit
from shisha_rt.pipeline.seed import Assign, Ranked, seed
from shisha_rt.pipeline.space import explored_fraction, plan_count
from shisha_rt.pipeline.strategies import RIVALS, RivalName, alike, rival
from shisha_rt.pipeline.tune import DEFAULT_ALPHA, DEFAULT_HEURISTIC, Balance, shisha
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import problems

if TYPE_CHECKING:
    from shisha_rt.costs.costs_file import Costs

Strategy = Literal[
    "seed",
    "shisha",
    "exact",
    "guided",
    "annealing",
    "hill_climbing",
    "annealing_seeded",
    "hill_climbing_seeded",
    "random_walk",
    "exhaustive",
    "pipe_search",
]
_BUILT: Final[tuple[Strategy, ...]] = ("seed", "shisha", *RIVALS)
_SHOWN_MOVES: Final = 10


def plan(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A path to an ONNX file, or zoo:NAME; or give --costs.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(metavar="FILE", help="A machine file or a shipped name, such as this-machine.")
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(metavar="COSTS.json", help="Layers, places and known times, in place of MODEL.")
    ] = None,
    strategy: Annotated[Strategy, typer.Option(help="How to look for a plan.")] = "seed",
    stages: Annotated[
        int | None, typer.Option(metavar="N", help="Stages. Default: as many as places or layers, the fewer.")
    ] = None,
    assign: Annotated[
        Assign, typer.Option(help="What decides which stage gets the fastest place.")
    ] = DEFAULT_HEURISTIC.assign,
    seed_: Annotated[int, typer.Option("--seed", metavar="N", help="Start of the random generator.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(metavar="S", help="Stop a search after trials of S seconds in all.")
    ] = None,
    balance: Annotated[
        Balance | None,
        typer.Option(help=f"Where Shisha moves a layer to. Default: {DEFAULT_HEURISTIC.balance}."),
    ] = None,
    alpha: Annotated[
        int | None, typer.Option(metavar="N", help=f"Moves without gain before Shisha stops. Default: {DEFAULT_ALPHA}.")
    ] = None,
    replicate: Annotated[bool, typer.Option("--replicate", help="Allow a stage on several places.")] = False,
    dim: Dims = None,
    as_json: Json = False,
) -> None:
    """Plan MODEL's pipeline on a machine, or plan from a file of costs.

    Layers are numbered from 0. Times are unknown (null) until something has measured or stated them.

    \b
    Examples:
      shisha-rt plan zoo:squeezenet --machine this-machine
      shisha-rt plan zoo:resnet50 --machine my-board.toml --stages 3 --json
      shisha-rt plan --costs COSTS.json --assign layers --json
      shisha-rt plan --costs COSTS.json --strategy shisha --alpha 20
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    _refuse_unbuilt(strategy, replicate)
    _refuse_foreign(strategy, balance, alpha, time_limit)
    if (model is None) == (costs is None):
        raise BadInput("plan: expected exactly one of MODEL and --costs COSTS.json")
    if model is not None:
        problem = _problem_of_model(model, machine, parse_dims(dim), strategy)
    else:
        assert costs is not None  # one of the two is given
        problem = _problem_of_costs(costs, machine, dim)
    rng = random.Random(seed_)
    chosen = seed(
        problem.weights,
        problem.places,
        stage_count=stages,
        assign=assign,
        legal_cuts=problem.legal_cuts,
        rng=rng,
    )
    tuned = None
    if strategy == "shisha":
        tuned = _tuned(problem, chosen, balance, alpha)
    elif strategy in RIVALS:
        tuned = _searched(problem, chosen, strategy, Limit(trial_time_s=time_limit), rng)
    found = _assess(problem, chosen, tuned)
    print(json.dumps(found.as_object()) if as_json else found.in_words(shutil.get_terminal_size().columns))
    if found.faults:
        raise Failure(f"infeasible: {found.faults[0]}")


@dataclass(frozen=True, slots=True)
class _Problem:
    """What a strategy is given, wherever it came from."""

    weights: Sequence[float]
    places: Sequence[Ranked]
    legal_cuts: frozenset[int]
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """A plan and what is known of it. `services_s` has an entry for each stage, None where not known.

    `stage_count` is the seed's, as tuning may have emptied a stage; `tuned` is None where nothing was tuned.
    """

    problem: _Problem
    plan: Plan
    stage_count: int
    services_s: Sequence[float | None]
    faults: Sequence[str]
    trials: int
    trial_time_s: float
    tuned: Result | None

    def as_object(self) -> dict[str, object]:
        """The answer of `--json`: all keys, always."""
        known = [service_s for service_s in self.services_s if service_s is not None]
        bottleneck_s = max(known) if len(known) == len(self.services_s) else None
        space_size = plan_count(len(self.problem.legal_cuts), len(self.problem.places), self.stage_count)
        return {
            "stages": [
                {"first": stage.first, "last": stage.last, "places": list(stage.places), "service_s": service_s}
                for stage, service_s in zip(self.plan.stages, self.services_s, strict=True)
            ],
            "unused": self.unused,
            "bottleneck_s": bottleneck_s,
            "throughput_fps": 1 / bottleneck_s if bottleneck_s else None,
            "latency_s": None if bottleneck_s is None else math.fsum(known),
            "latency_proven": False,
            "trials": self.trials,
            "trial_time_s": self.trial_time_s,
            # Decimal: Python refuses to print an int of more than 4,300 digits, which many places can reach.
            "space_size": str(Decimal(space_size)),
            "log10_space_size": math.log10(space_size),
            "explored_fraction": explored_fraction(self.trials, len(self.problem.weights), self.stage_count),
            "lower_bound_s": None,
            "outcome": "infeasible" if self.faults else "feasible",
        }

    @property
    def unused(self) -> list[str]:
        return [place.name for place in self.problem.places if place.name not in self.plan.places]

    def in_words(self, width: int) -> str:
        """The picture, and where there was tuning, how it went and what it brought."""
        if self.tuned is None:
            return self.picture(width)
        return "\n".join([*_walk(self.tuned), self.picture(width), *_gain(self.tuned)])

    def picture(self, width: int) -> str:
        """One box for each stage with its share of the weight; the slowest is marked where times are known."""
        whole = sum(self.problem.weights)
        known = [service_s for service_s in self.services_s if service_s is not None]
        slowest_s = max(known) if len(known) == len(self.services_s) else None
        boxes = []
        for stage, service_s in zip(self.plan.stages, self.services_s, strict=True):
            weight = sum(self.problem.weights[stage.first : stage.last + 1])
            share = weight / whole if whole else 0.0
            time = "" if service_s is None else f", {service_s * 1e3:.4g} ms"
            text = span(stage.first, stage.last) + time
            is_slowest = service_s is not None and service_s == slowest_s
            boxes.append(Box(stage.place, text, f"{share:5.1%}", share, is_slowest))
        unused = f"\nunused: {', '.join(self.unused)}" if self.unused else ""
        return draw(boxes, width) + unused


def _walk(tuned: Result) -> list[str]:
    """The first plan, and the last moves with what became of each."""
    first, *moves = tuned.trials
    shown = moves[-_SHOWN_MOVES:]
    left_out = len(moves) - len(shown)
    return [
        f"start {first.plan}: {_fps(first)}",
        *([f"      ({left_out} earlier moves)"] if left_out else []),
        *(f"{move.number:4}  {move.reason}: {_fps(move)}{', best so far' * move.is_best}" for move in shown),
    ]


def _gain(tuned: Result) -> list[str]:
    before, after = tuned.trials[0].measurement, tuned.measurement
    gain = f", {before.bottleneck_s / after.bottleneck_s:.3g} times" if before.can_run and after.bottleneck_s else ""
    return [
        f"kept: {tuned.reason}",
        f"throughput: {before.throughput_fps:.4g} fps before, {after.throughput_fps:.4g} fps after{gain}",
    ]


def _fps(trial: Trial) -> str:
    return f"{trial.measurement.throughput_fps:.4g} fps" if trial.measurement.can_run else "cannot run"


def _refuse_unbuilt(strategy: Strategy, replicate: bool) -> None:
    if strategy not in _BUILT:
        raise BadInput(f"--strategy {strategy}: not built yet, expected {' or '.join(_BUILT)}")
    if replicate:
        raise BadInput("--replicate: not built yet, expected no such option")


def _refuse_foreign(strategy: Strategy, balance: Balance | None, alpha: int | None, time_limit: float | None) -> None:
    for option, value in (("--balance", balance), ("--alpha", alpha)):
        if value is not None and strategy != "shisha":
            raise BadInput(f"{option}: not with --strategy {strategy}, expected --strategy shisha")
    if alpha is not None and alpha < 1:
        raise BadInput(f"--alpha {alpha}: expected at least 1")
    if time_limit is not None and strategy not in RIVALS:
        raise BadInput(f"--time-limit: not with --strategy {strategy}, expected --strategy {' or '.join(RIVALS)}")
    if time_limit is not None and not time_limit > 0:
        raise BadInput(f"--time-limit {time_limit:g}: expected more than 0")


def _problem_of_model(model: str, machine: str | None, dims: dict[str, int], strategy: Strategy) -> _Problem:
    """With the profile store's costs, measured first if missing.

    A place on paper may have more threads than this host has cores to measure with. The seed needs no costs.
    """
    from shisha_rt.daemon.compile import compile_model
    from shisha_rt.daemon.profile import costs_of
    from shisha_rt.graph.zoo import resolve_model
    from shisha_rt.machine.config import load_machine

    if machine is None:
        raise BadInput("plan MODEL: --machine is missing, expected a machine file or a name such as this-machine")
    described = load_machine(machine)
    compiled = compile_model(resolve_model(model, progress), dims, progress)
    try:
        costs = costs_of(compiled, described, progress)
    except BadInput:
        if strategy != "seed":
            raise
        costs = None
    weights = [layer.weight for layer in compiled.layers]
    return _Problem(weights, described.places, frozenset(compiled.legal_cuts), costs)


def _problem_of_costs(path: Path, machine: str | None, dim: Sequence[str] | None) -> _Problem:
    from shisha_rt.costs.costs_file import parse_costs

    for option, value in (("--machine", machine), ("--dim", dim)):
        if value:
            raise BadInput(f"{option}: not with --costs, which states its own layers and places")
    costs = parse_costs(read_bytes(path, "costs as JSON"), str(path))
    return _Problem([layer.weight for layer in costs.layers], costs.places, costs.legal_cuts, costs)


def _tuned(problem: _Problem, start: Plan, balance: Balance | None, alpha: int | None) -> Result:
    """Shisha's walk over the costs."""
    from shisha_rt.costs.evaluator import CostsEvaluator

    assert problem.costs is not None  # only the seed does without
    tuner = shisha(
        start,
        problem.places,
        alpha=alpha or DEFAULT_ALPHA,
        balance=balance or DEFAULT_HEURISTIC.balance,
        legal_cuts=problem.legal_cuts,
    )
    return run(tuner, CostsEvaluator(problem.costs))


def _searched(problem: _Problem, start: Plan, name: RivalName, limit: Limit, rng: random.Random) -> Result:
    """A rival's search over the costs, in plans of at most as many stages as the seed."""
    from shisha_rt.costs.evaluator import CostsEvaluator

    assert problem.costs is not None  # only the seed does without
    space = space_of(
        len(problem.weights),
        [place.name for place in problem.places],
        stage_count=len(start.stages),
        legal_cuts=problem.legal_cuts,
        alike=alike(problem.costs),
    )
    tuner = rival(name, space, weights=problem.weights, places=problem.places, seed=start, rng=rng, limit=limit)
    # What a database took to build on the paper's machine is no time of the user's.
    return run(replace(tuner, setup_s=0.0), CostsEvaluator(problem.costs))


def _assess(problem: _Problem, start: Plan, tuned: Result | None) -> _Answer:
    """What the plan takes, as far as costs are known, and what speaks against it."""
    chosen = start if tuned is None else tuned.solution
    names = [place.name for place in problem.places]
    wrong = problems(chosen, layer_count=len(problem.weights), places=names, legal_cuts=problem.legal_cuts)
    assert not wrong, wrong  # a planner's bug, never the user's
    if problem.costs is None:
        return _Answer(problem, chosen, len(start.stages), [None] * len(chosen.stages), (), 0, 0.0, None)
    from shisha_rt.costs.costs_file import stage_service_s, why_infeasible
    from shisha_rt.costs.evaluator import CostsEvaluator

    services_s: list[float | None] = []
    faults: list[str] = []
    for stage in chosen.stages:
        place = problem.costs.place_index(stage.place)
        service_s = stage_service_s(problem.costs, stage.first, stage.last, place)
        services_s.append(None if math.isnan(service_s) else service_s)
        fault = why_infeasible(problem.costs, stage.first, stage.last, place)
        faults += [] if fault is None else [fault]
    if tuned is None:
        trials, trial_time_s = 1, CostsEvaluator(problem.costs).measure(chosen).cost_s
    else:
        trials, trial_time_s = len(tuned.trials), tuned.trial_time_s
    return _Answer(problem, chosen, len(start.stages), services_s, faults, trials, trial_time_s, tuned)
