"""How soon a disturbed pipeline recovers, by tuning strategy: `python -m benchmarks drift`. Simulated.

A daemon's cores in virtual time (`rigs/paper_daemon.py`) serve a chain at saturation and watch it: they detect a drift
by their own rule, begin a search, and measure each trial by the frames of a window, at the rate of the plan tried. They
only observe times of parts. A place's speed varies slowly by 2%; each part has a random error of 3% besides. Costs are
a roofline's; the true ones differ by 10% (lognormal), and only `guided` uses costs.

Strategies: `static` keeps the plan that was best before. `shisha`, `guided`, `lls` and `odin` search from the live
plan; `restart` is Shisha's walk from the seed of Algorithm 1. `oracle` knows each disturbance when it comes: it serves
with the best plan under it, by exact planning over the true costs at that time, and with the best plan without it when
it ends.

- **Frames lost**: answers of `oracle` from the beginning of the disturbance to a minute after its end, minus answers of
  the strategy.
- **Within 5%**: seconds until the first plan goes live, tried or kept, that is so near the best under the disturbance.
- **p99**: of the time between two answers, from the beginning to a minute after the end.
- **An hour undisturbed**: the number of needless searches, and their cost.

Planning takes no virtual time; its CPU time is reported. A disturbance that ends before it is detected cannot be
compensated.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from multiprocessing import get_context
from statistics import fmean, median, median_low
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.paper_daemon import PaperDaemon
from shisha_rt.core import event_log
from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import instructions as td
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan, BestPlans
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.cores import Cores
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs, stage_service_s
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.daemon.children.tuner import Layers, tuner_for
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.spans import starts_of
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.simulate.paper_machines import paper_machine
from shisha_rt.papers.simulate.roofline import roofline_costs
from shisha_rt.papers.simulate.simulated_evaluator import with_error
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.seed import seed
from shisha_rt.planner.strategies import DEFAULT_ALPHA, DEFAULT_BALANCE

WAYS: Final = ("static", "shisha", "guided", "lls", "odin", "restart")
SIGMA: Final = 0.1
PART_NOISE: Final = 0.03
PLACE_NOISE: Final = 0.02
WANDERS_S: Final = 20.0
BUILD_S: Final = 0.3
BEGINS_S: Final = 60.0
AFTER_S: Final = 60.0
WITHIN: Final = 0.05
OTHERS_EVERY_S: Final = 2.0
_NOISE_EVERY_S: Final = 1.0
_FOR_EVER_S: Final = 1e9


# --- what happens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slowed:
    """Slowed places: computing takes `times` times as long, and entering a stage takes `entry` frame periods longer."""

    places: tuple[str, ...] = ()
    times: float = 1.0
    entry: float = 0.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """`slowed` is on for `on_s` and off for as long, until `seconds` have passed. `others`: the share of the cores that
    other processes are observed to use meanwhile; 0: nothing is observed.
    """

    name: str
    seconds: float
    slowed: Slowed
    on_s: float = math.inf
    others: float = 0.0

    def is_on(self, at_s: float) -> bool:
        since_s = at_s - BEGINS_S
        return 0 <= since_s < self.seconds and (since_s % (2 * self.on_s) < self.on_s)

    @property
    def changes_s(self) -> list[float]:
        count = 1 if math.isinf(self.on_s) else round(self.seconds / self.on_s)
        step_s = min(self.on_s, self.seconds)
        return [BEGINS_S + step_s * number for number in range(count + 1)]


def disturbances(machine: Machine, place: str) -> Iterator[Disturbance]:
    for times in (2.0, 4.0):
        for seconds in (10.0, 60.0):
            yield Disturbance(f"a place at 1/{times:g} for {seconds:g} s", seconds, Slowed((place,), times))
    half = Slowed((place,), 2.0)
    yield Disturbance("at 1/2, 60 s on and 60 s off", 240.0, half, on_s=60.0)
    yield Disturbance("at 1/2, 2 s on and 2 s off", 120.0, half, on_s=2.0)
    memory = machine.place(place).memory
    sharing = tuple(other.name for other in machine.places if other.memory == memory)
    yield Disturbance("a bandwidth hog for 60 s", 60.0, Slowed(sharing, 1.5), others=0.15)
    yield Disturbance("a hogged core for 60 s", 60.0, half, others=0.15)
    yield Disturbance("a hogged core for 180 s", 180.0, half, others=0.15)
    yield Disturbance("a slow link for 60 s", 60.0, Slowed((place,), entry=0.5))


NOTHING: Final = "nothing"
QUIET: Final = Disturbance(NOTHING, 0.0, Slowed())


# --- the case -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """`costs`: those that planners know; `truth`: the true costs. `best`: the best plan by the true costs."""

    network: str
    machine: Machine
    costs: Costs
    truth: Costs
    best: Plan

    @property
    def period_s(self) -> float:
        return CostsEvaluator(self.truth).measurement_of(self.best).bottleneck_s

    def under(self, slowed: Slowed) -> Costs:
        """True costs of layers under a slowdown, without `entry`."""
        factors = [slowed.times if place.name in slowed.places else 1.0 for place in self.truth.places]
        return replace(self.truth, time_s=self.truth.time_s * np.array(factors))

    def stage_s(self, costs: Costs, slowed: Slowed, first: int, last: int, place: str) -> float:
        """Seconds of a stage, by `costs`, which are those under `slowed`, and with its `entry`."""
        entry_s = slowed.entry * self.period_s if place in slowed.places else 0.0
        return stage_service_s(costs, first, last, costs.place_index(place)) + entry_s

    def bottleneck_s(self, plan: Plan, slowed: Slowed) -> float:
        costs = self.under(slowed)
        return max(self.stage_s(costs, slowed, stage.first, stage.last, stage.place) for stage in plan.stages)

    def best_under(self, slowed: Slowed) -> Plan:
        costs = self.under(slowed)
        if not slowed.entry:
            return best_plan(costs)
        names = [place.name for place in costs.places]
        return best_chain(
            len(costs.layers), costs.legal_cuts, names, lambda *stage: self.stage_s(costs, slowed, *stage)
        )


def best_plan(costs: Costs) -> Plan:
    plan = exact_plan(costs, Goal(latency_states=0)).plan
    assert plan is not None  # memory is not limited here
    return plan


def case_of(network: str, machine: Machine, number: int) -> Case:
    graph = read_model(resolve_model(f"zoo:{network}", print)).graph
    costs = roofline_costs(graph, group_layers(graph), machine)
    off = with_error(costs, SIGMA, random.Random(f"{network} {machine.name} {number}"))
    columns = {place: kind[0] for kind in kinds_of(costs) for place in kind}  # places that are alike stay so
    truth = replace(off, time_s=off.time_s[:, [columns[place] for place in range(len(costs.places))]])
    return Case(network, machine, costs, truth, best_plan(truth))


def of_64_places() -> Machine:
    """A simulated machine of 32 fast and 32 slow places of four cores, with 16 places to a memory."""
    places = [Place(f"p{i}", (), 4, 4, 1.0 if i < 32 else 1 / 3, 1 if i < 32 else 2, f"m{i // 16}") for i in range(64)]
    memories = tuple(Memory(f"m{i}", 64e9 if i < 2 else 16e9) for i in range(4))
    return Machine("64 places (simulated)", "drawn", memories, tuple(places))


MACHINES: Final[Mapping[str, tuple[str, Callable[[], Machine]]]] = {
    "C5": ("resnet50", lambda: paper_machine("C5")),
    "64 places": ("densenet121", of_64_places),
}
ON_64: Final = ("a place at 1/2 for 60 s", "a place at 1/4 for 60 s")


# --- the daemon ---------------------------------------------------------------------------------------------------


class Drifting(PaperDaemon):
    """`live`: the plans that were live, with the times at which they went live. `searches`, `trials`: times at which
    they began, or ended.
    """

    def __init__(self, case: Case, way: str, disturbance: Disturbance, number: int) -> None:
        self.live: list[tuple[float, Plan]] = []
        self.searches: list[float] = []
        self.trials: list[float] = []
        self.planned_s = 0.0
        self._case = case
        self._way = way
        self._disturbance = disturbance
        self._costs = {False: case.truth, True: case.under(disturbance.slowed)}
        self._rng = random.Random(f"parts {number}")
        self._wander = {place.name: _Wander(random.Random(f"{place.name} {number}")) for place in case.machine.places}
        self._plans: dict[int, Plan] = {}
        self._known_s: dict[tuple[Stage, bool], float] = {}
        self._search: tuple[Any, Any, int] | None = None
        self._layers = Layers(case.costs, ())
        self.cores = _cores(case, way)
        slots = len(self.cores.lifecycle.places.by_name) * 2 + 2
        super().__init__(self.cores.handle, slots + 4, BUILD_S)
        self._plan_changes()

    def _plan_changes(self) -> None:
        changes, others = self._disturbance.changes_s, self._disturbance.others
        if self._way == "oracle" and self._disturbance.seconds:
            plans = self._case.best_under(self._disturbance.slowed), self._case.best
            for number, at_s in enumerate(changes):
                plan = plans[0 if self._disturbance.is_on(at_s) else 1]
                self.at(at_s, le.PlanProposed(le.Owner.CLIENT, 10**6 + number, plan))
        if others:
            for number in range(round(self._disturbance.seconds / OTHERS_EVERY_S)):
                self.at(BEGINS_S + number * OTHERS_EVERY_S, ev.HostSeen(others))
            self.at(BEGINS_S + self._disturbance.seconds, ev.HostSeen(0.0))

    def service_s(self, part: do.RunPart, place: str) -> float:
        what, on = part.descriptor, self._disturbance.is_on(self.now_s)
        stage = self._plans[what.epoch].stages[what.stage]
        slowed = self._disturbance.slowed if on else QUIET.slowed
        noise = self._wander[place].at(self.now_s) * math.exp(PART_NOISE * self._rng.gauss())
        return noise * self._stage_s(stage, on, slowed)

    def _stage_s(self, stage: Stage, on: bool, slowed: Slowed) -> float:
        key = stage, on
        if key not in self._known_s:
            costs = self._costs[on]
            self._known_s[key] = self._case.stage_s(costs, slowed, stage.first, stage.last, stage.place)
        return self._known_s[key]

    def taken(self, what: le.Descriptor, place: str, service_s: float) -> None:
        if self.cores.wants_parts(self.now_s):
            self.post(ev.PartTaken(what.epoch, what.stage, place, service_s))

    def hear(self, instruction: Any) -> None:
        match instruction:
            case do.EpochStarted(epoch=epoch, plan=plan):
                self._plans[epoch] = plan
            case do.Settled(ending=do.Ending.LIVE, plan=plan):
                self.live.append((self.now_s, plan))
            case td.Write(record=event_log.TuningBegan()):
                self.searches.append(self.now_s)
            case td.Write(record=event_log.TrialJudged()):
                self.trials.append(self.now_s)
            case td.TellTuner(message=message):
                began_s = time.process_time()
                self._tell(message)
                self.planned_s += time.process_time() - began_s

    def _tell(self, message: tm.ToTuner) -> None:
        """Do at once what the tuner's process would do."""
        match message:
            case tm.Begin():
                tuner = tuner_for(self._begin(message), self._layers)
                state, proposal = tuner.init()
            case tm.Measured(run=run) if self._search is not None and self._search[2] == run:
                tuner = self._search[0]
                state, proposal = tuner.step(self._search[1], message.measurement)
            case _:
                self._search = None
                return
        self._search = tuner, state, message.run
        stages = proposal.plan
        said: tm.FromTuner = tm.Try(message.run, stages, proposal.reason)
        if proposal.final:
            said = tm.Finished(message.run, stages, proposal.reason)
        self.at(self.now_s, ev.TunerSaid(said))

    def _begin(self, begin: tm.Begin) -> tm.Begin:
        if self._way != "restart":
            return begin
        costs = self._case.costs
        start = seed([layer.weight for layer in costs.layers], costs.places, legal_cuts=costs.legal_cuts)
        return msgspec.structs.replace(begin, start=start, order=start.places)


def _cores(case: Case, way: str) -> Cores:
    """The daemon's cores, which begin with the best plan, as if an earlier run had kept it."""
    costs = case.truth
    names = [place.name for place in costs.places]
    rules = PlanRules(len(costs.layers), tuple(names), costs.legal_cuts)
    slots = 2 * len(names) + 2
    lifecycle = Lifecycle(rules, slots, replace(Policy(), start_s=_FOR_EVER_S, prepare_s=_FOR_EVER_S))
    weights = [layer.weight for layer in costs.layers]
    choice = Choice(case.machine, rules, weights, BestPlans({}), Basis(profiles=Profiles.KNOWN))
    measured = replace(CostsEvaluator(costs).measurement_of(case.best), band=PLACE_NOISE)
    choice.keep(BestPlan(case.best, measured, case.best.places), names, "throughput")
    strategy = "shisha" if way == "restart" else way
    options = None if way in ("static", "oracle") else SearchOptions(strategy, DEFAULT_ALPHA, DEFAULT_BALANCE)
    return Cores(lifecycle, Tuning(lifecycle, choice, options, warm_up=slots + 2), None)


class _Wander:
    """A random factor about 1 whose values are correlated over about `WANDERS_S`; to be called with ascending times."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._steps = 0
        self._log = rng.gauss() * PLACE_NOISE
        self._keeps = math.exp(-_NOISE_EVERY_S / WANDERS_S)

    def at(self, now_s: float) -> float:
        while self._steps * _NOISE_EVERY_S <= now_s:
            self._steps += 1
            spread = PLACE_NOISE * math.sqrt(1 - self._keeps**2)
            self._log = self._keeps * self._log + spread * self._rng.gauss()
        return math.exp(self._log)


# --- runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy under one disturbance, until a minute after its end. `within_s`: None if never, or not asked for."""

    way: str
    answered: int
    within_s: float | None
    p99_s: float
    searches: int
    trials: int
    planned_s: float


def run_of(case: Case, way: str, disturbance: Disturbance, number: int, seconds: float) -> Run:
    daemon = Drifting(case, way, disturbance, number)
    daemon.start()
    daemon.run(BEGINS_S + seconds)
    answered_s = [at_s for at_s in daemon.answered_s if at_s >= BEGINS_S]
    gaps_s = [after - before for before, after in pairwise(answered_s)]
    return Run(
        way,
        len(answered_s),
        within_s(case, disturbance, daemon.live) if math.isinf(disturbance.on_s) else None,
        float(np.quantile(gaps_s, 0.99)),
        sum(at_s >= BEGINS_S for at_s in daemon.searches),
        sum(at_s >= BEGINS_S for at_s in daemon.trials),
        daemon.planned_s,
    )


def within_s(case: Case, disturbance: Disturbance, live: Sequence[tuple[float, Plan]]) -> float | None:
    """Seconds until a plan is live that is near the best under the disturbance; None: none was before its end."""
    slowed = disturbance.slowed
    most_s = (1 + WITHIN) * case.bottleneck_s(case.best_under(slowed), slowed)
    spans = pairwise([*live, (math.inf, case.best)])
    near_s = (
        max(at_s - BEGINS_S, 0.0)
        for (at_s, plan), (until_s, _) in spans
        if until_s > BEGINS_S and case.bottleneck_s(plan, slowed) <= most_s
    )
    first_s = next(near_s, math.inf)
    return first_s if first_s < disturbance.seconds else None


def row(case: Case, what: str, runs: Sequence[Run], oracles: Sequence[Run]) -> Row:
    """A row for one strategy. Figures are means, but seconds and p99 are medians."""
    lost = [oracle.answered - run.answered for run, oracle in zip(runs, oracles, strict=True)]
    reached = [math.inf if run.within_s is None else run.within_s for run in runs]
    middle_s = median_low(reached)
    return {
        "network": case.network,
        "machine": case.machine.name,
        "disturbance": what,
        "way": runs[0].way,
        "runs": len(runs),
        "frames lost": fmean(lost),
        "lost %": 100 * sum(lost) / sum(oracle.answered for oracle in oracles),
        "within 5% after s": middle_s if middle_s < math.inf else None,
        "within 5%, runs": sum(seconds < math.inf for seconds in reached),
        "searches": fmean(run.searches for run in runs),
        "trials": fmean(run.trials for run in runs),
        "p99 between answers, ms": 1e3 * median(run.p99_s for run in runs),
        "CPU ms a trial": 1e3 * sum(run.planned_s for run in runs) / max(1, sum(run.trials for run in runs)),
    }


Job = tuple[str, int, str, float]
"""A machine, the number of a draw of true costs, what happens, and for how many seconds it is watched."""


def _runs(job: Job) -> tuple[Case, list[Run]]:
    """The case, and the runs of all strategies, that of the oracle first."""
    on, number, what, seconds = job
    network, machine = MACHINES[on]
    case = case_of(network, machine(), number)
    place = random.Random(number).choice(case.best.places)
    known = {disturbance.name: disturbance for disturbance in disturbances(case.machine, place)}
    happens = known.get(what, QUIET)
    return case, [run_of(case, way, happens, number, seconds) for way in ("oracle", *WAYS)]


def best_chain(
    layer_count: int,
    legal_cuts: Collection[int],
    places: Sequence[str],
    stage_time_s: Callable[[int, int, str], float],
) -> Plan:
    """The chain of the least bottleneck over all orders and choices of places, for any times of stages.

    `stage_time_s(first layer, last layer, place)`: seconds for a frame; as these are no sums of layers, a place may
    cost something to enter, which `exact` does not know. What sharing a memory costs depends on the whole plan and is
    left out. Places with equal times for everything are one kind, named by the first of them.
    """
    starts = starts_of(layer_count, legal_cuts)
    groups = len(starts) - 1
    times_s = {
        place: {
            (first, end): stage_time_s(starts[first], starts[end] - 1, place)
            for first, end in combinations(range(groups + 1), 2)
        }
        for place in places
    }
    kinds: dict[str, list[str]] = {}
    for place in places:
        same = (kind for kind in kinds if times_s[kind] == times_s[place])
        kinds.setdefault(next(same, place), []).append(place)
    # By the end: kinds used (ascending) -> the least bottleneck, and its stages (first group, end, kind).
    best: list[dict[tuple[str, ...], tuple[float, tuple[tuple[int, int, str], ...]]]] = [{} for _ in range(groups + 1)]
    best[0][()] = (0.0, ())
    for first in range(groups):
        for used, (before_s, stages) in best[first].items():
            for kind in (kind for kind, alike in kinds.items() if used.count(kind) < len(alike)):
                now_used = tuple(sorted((*used, kind)))
                for end in range(first + 1, groups + 1):
                    bottleneck_s = max(before_s, times_s[kind][first, end])
                    if bottleneck_s < best[end].get(now_used, (math.inf, ()))[0]:
                        best[end][now_used] = (bottleneck_s, (*stages, (first, end, kind)))
    _, stages = min(best[groups].values(), key=lambda reached: reached[0])
    names = {kind: iter(alike) for kind, alike in kinds.items()}
    return Plan.of((starts[first], starts[end] - 1, next(names[kind])) for first, end, kind in stages)


def drift(
    draws: Annotated[int, typer.Option(min=1, help="True costs on 8 places, each with another place disturbed.")] = 3,
    seconds: Annotated[float, typer.Option(min=10.0, help="In which nothing happens.")] = 3600.0,
) -> None:
    """Places, links and cores slowed while frames flow, each way to make up for it, in virtual time: minutes."""
    simulated = f"costs, true ones off by {SIGMA:g}; parts by {PART_NOISE:g}, places by {PLACE_NOISE:g}; all time"
    report = Report("drift", {"simulated": simulated})
    names = {disturbance.name: disturbance for disturbance in disturbances(paper_machine("C5"), "fast0")}
    jobs: list[Job] = [("C5", 0, NOTHING, seconds)]
    jobs += [("64 places", 0, name, names[name].seconds + AFTER_S) for name in ON_64]
    jobs += [("C5", number, name, names[name].seconds + AFTER_S) for name in names for number in range(draws)]
    results: dict[tuple[str, str], list[tuple[Case, list[Run]]]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for (machine, number, what, _), (case, runs) in zip(jobs, pool.map(_runs, jobs), strict=True):
            report.step(f"{machine}, draw {number}: {what}")
            results.setdefault((machine, what), []).append((case, runs))
    rows = [
        row(own[0][0], what, [runs[way] for _, runs in own], [runs[0] for _, runs in own])
        for (_, what), own in results.items()
        for way in range(len(WAYS) + 1)
    ]
    report.keep("A disturbed pipeline, simulated", rows)
