"""Guided tuning against Shisha and its rivals, with wrong costs: `python -m benchmarks guided`.

Simulated: Shisha's machines C1 to C6 and the zoo's networks; planners know the roofline's costs. In each draw, the true
time of every layer on every place is that cost times exp(0.3 z), z normal. Transfers are exact. Each measured stage
time is the true one times exp(0.02 z). All tuners have the same true costs in a draw.

- **Within 1%** of the optimum: a plan whose true bottleneck is within 1% of the least under the true costs, proven by
  `exact`. Counted are trials up to and including the first such plan; "never" counts as infinitely many.
- **Frames lost** to exploration: how many more frames the optimum would have answered in the time of all trials of a
  run. With n frames a trial, bottlenecks b of its plans and b* of the optimum: n times the sum of b/b* - 1.
- **Final over optimum**: the true bottleneck of the plan that is kept, over that of the optimum.

Guided tuning begins with the exact plan by the known costs. Shisha's seed and Pipe-Search's order use the weights of
layers and the ranks of places, SA and HC begin with a random plan; none of these uses the costs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Annotated, Any, Final

import numpy as np
import typer

from benchmarks.report.results import Row, show
from benchmarks.shisha.searches import PIPE_SEARCH_TRIALS
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.outcome import Outcome
from shisha_rt.papers.shisha.arrangement import space_of
from shisha_rt.papers.shisha.pipe_search import MAX_DATABASE, PipeSearch, cut_count, pipe_search
from shisha_rt.papers.shisha.rivals import rival
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.papers.simulate.paper_machines import CONFIGURATIONS, paper_machine
from shisha_rt.papers.simulate.roofline import roofline_costs
from shisha_rt.papers.simulate.simulated_evaluator import FRAMES, SimulatedEvaluator, with_error
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided as guided_tuner
from shisha_rt.planner.loop import Tuner, run
from shisha_rt.planner.seed import seed
from shisha_rt.planner.strategies import RivalName
from shisha_rt.planner.tune import HEURISTICS, shisha

NETWORKS: Final = ("resnet50", "squeezenet", "vgg16", "darknet53")
SIGMA: Final = 0.3
NOISE: Final = 0.02
WITHIN: Final = 0.01
AIM_MEDIAN: Final = 4
AIM_95: Final = 8

GUIDED: Final = "guided"
NOTES: Final = (
    "trials to 1%: until a plan within 1% of the optimum; median and 95th percentile over all runs, never = inf",
    f"aim for guided: median at most {AIM_MEDIAN}, 95th percentile at most {AIM_95}",
    "CPU ms: of a trial, planning and simulating it; frames lost: mean of runs; all simulated",
    f"Pipe-Search: as many stages as its database has room for; {PIPE_SEARCH_TRIALS} trials, as in Shisha's Figure 4",
)


@dataclass(frozen=True, slots=True)
class Case:
    network: str
    machine: str
    costs: Costs

    @property
    def names(self) -> list[str]:
        return [place.name for place in self.costs.places]

    @property
    def weights(self) -> list[float]:
        return [layer.weight for layer in self.costs.layers]

    @property
    def most_stages(self) -> int:
        return min(len(self.costs.places), len(self.costs.layers))


@dataclass(frozen=True, slots=True)
class Tuned:
    """One run. `ratios` (trials,): true bottleneck of each plan over the optimum's; `final`: that of the kept plan."""

    case: Case
    tuner: str
    ratios: tuple[float, ...]
    final: float
    cpu_s: float

    @property
    def trials_to_optimum(self) -> float:
        return next((n for n, ratio in enumerate(self.ratios, start=1) if ratio <= 1 + WITHIN), math.inf)

    @property
    def frames_lost(self) -> float:
        return FRAMES * math.fsum(ratio - 1 for ratio in self.ratios)


# --- tuners -------------------------------------------------------------------------------------------------------

Maker = Callable[[Case, random.Random], Tuner[Any]]


def _shisha(heuristic: str) -> Maker:
    def made(case: Case, rng: random.Random) -> Tuner[Any]:
        assign, balance = HEURISTICS[heuristic]
        return shisha(seed(case.weights, case.costs.places, assign=assign), case.costs.places, balance=balance)

    return made


def _rival(name: RivalName) -> Maker:
    """Tuner of a rival. No two places count as alike: places with equal known costs differ in truth."""

    def made(case: Case, rng: random.Random) -> Tuner[Any]:
        space = space_of(len(case.weights), case.names, stage_count=case.most_stages)
        start = seed(case.weights, case.costs.places)
        return rival(name, space, weights=case.weights, places=case.costs.places, seed=start, rng=rng, limit=Limit())

    return made


def _pipe_search(case: Case, rng: random.Random) -> Tuner[Any]:
    return Search(_database(case), Limit(PIPE_SEARCH_TRIALS))


@cache
def _database(case: Case) -> PipeSearch:
    """Pipe-Search's database, which depends on weights and ranks only, so it is built once for all draws."""
    spaces = (space_of(len(case.weights), case.names, stage_count=count) for count in range(case.most_stages, 0, -1))
    space = next(space for space in spaces if cut_count(space) <= MAX_DATABASE)
    return pipe_search(space, case.weights, case.costs.places)


TUNERS: Final[Mapping[str, Maker]] = {
    GUIDED: lambda case, rng: guided_tuner(case.costs),
    "shisha H3": _shisha("H3"),
    "shisha H1": _shisha("H1"),
    "SA": _rival("annealing"),
    "HC": _rival("hill_climbing"),
    "Pipe-Search": _pipe_search,
}


# --- runs ---------------------------------------------------------------------------------------------------------


def cases(networks: Sequence[str]) -> Iterator[Case]:
    for network in networks:
        graph = read_model(resolve_model(f"zoo:{network}", print)).graph
        layers = group_layers(graph)
        for machine in CONFIGURATIONS:
            yield Case(network, machine, roofline_costs(graph, layers, paper_machine(machine)))


def drawn(case: Case, draw: int, sigma: float, tuners: Sequence[str]) -> Iterator[Tuned]:
    """Run each tuner on the same true costs, with its own noise. Raises RuntimeError if no optimum is proven."""
    name = f"{case.network} {case.machine} {draw}"
    truth = with_error(case.costs, sigma, random.Random(name))
    solution = exact_plan(truth, Goal(latency_states=0))
    if solution.outcome is not Outcome.OPTIMAL or solution.lower_bound_s is None:
        raise RuntimeError(f"{name}: exact ended as {solution.outcome}")
    exactly = CostsEvaluator(truth)
    for tuner in tuners:
        rng = random.Random(f"{name} {tuner}")
        made = TUNERS[tuner](case, rng)
        began_s = time.process_time()
        result = run(made, SimulatedEvaluator(truth, noise=NOISE, rng=rng))
        cpu_s = time.process_time() - began_s
        ratios = {
            trial.plan: exactly.measurement_of(trial.plan).bottleneck_s / solution.lower_bound_s
            for trial in result.trials
        }
        in_order = tuple(ratios[trial.plan] for trial in result.trials)
        yield Tuned(case, tuner, in_order, ratios[result.solution], cpu_s)


# --- tables -------------------------------------------------------------------------------------------------------


def row(runs: Sequence[Tuned], network: str, machine: str) -> Row:
    to_optimum = [tuned.trials_to_optimum for tuned in runs]
    finals = [tuned.final for tuned in runs]
    return {
        "tuner": runs[0].tuner,
        "network": network,
        "machine": machine,
        "runs": len(runs),
        "to 1%: median": quantile(to_optimum, 0.5),
        "95%": quantile(to_optimum, 0.95),
        f"within {AIM_MEDIAN} %": share(to_optimum, AIM_MEDIAN),
        f"within {AIM_95} %": share(to_optimum, AIM_95),
        "ever %": share(to_optimum, 10**9),
        "trials": median(len(tuned.ratios) for tuned in runs),
        "final / optimum": median(finals),
        "its 95%": quantile(finals, 0.95),
        "frames lost": math.fsum(tuned.frames_lost for tuned in runs) / len(runs),
        "CPU ms": 1e3 * sum(tuned.cpu_s for tuned in runs) / sum(len(tuned.ratios) for tuned in runs),
    }


def quantile(values: Sequence[float], of: float) -> float:
    """The least value that at least the fraction `of` of values do not exceed, without interpolation; may be inf."""
    return float(np.quantile(values, of, method="inverted_cdf"))


def share(values: Sequence[float], most: float) -> float:
    return 100 * sum(value <= most for value in values) / len(values)


def guided(
    draws: Annotated[int, typer.Option(min=1, help="True costs for each network and machine.")] = 100,
    sigma: Annotated[float, typer.Option(min=0.0, help="Of the lognormal error of the costs told.")] = SIGMA,
    quick: Annotated[bool, typer.Option("--quick", help="5 draws.")] = False,
) -> None:
    """Guided tuning against Shisha, SA, HC and Pipe-Search on wrong costs: trials, quality, frames lost; simulated."""
    draws = 5 if quick else draws
    runs: list[Tuned] = []
    rows: list[Row] = []
    for case in cases(NETWORKS):
        print(f"guided: {case.network} on {case.machine} ...", flush=True)
        drawn_runs = [tuned for draw in range(draws) for tuned in drawn(case, draw, sigma, list(TUNERS))]
        rows += [
            row([tuned for tuned in drawn_runs if tuned.tuner == tuner], case.network, case.machine) for tuner in TUNERS
        ]
        _database.cache_clear()
        runs += drawn_runs
    by_machine = [
        row([tuned for tuned in runs if (tuned.tuner, tuned.case.machine) == (GUIDED, machine)], "all", machine)
        for machine in CONFIGURATIONS
    ]
    by_tuner = [row([tuned for tuned in runs if tuned.tuner == tuner], "all", "all") for tuner in TUNERS]
    show("Tuning on wrong costs, simulated", [*by_tuner, *by_machine, *rows], NOTES)
