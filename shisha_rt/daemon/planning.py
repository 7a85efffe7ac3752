"""With what a daemon begins: how its plans are to be made, and the three cores that make them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.cache import cache_folder
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlans
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.cores import Cores
from shisha_rt.core.tuning.greedy_placement import GreedyPlacement
from shisha_rt.core.tuning.placing import Placing
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure import plan_store
from shisha_rt.measure.compile import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.told_costs import plans_by_costs
from shisha_rt.placement.processors import ProcessorCosts
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, AnyObjective, Objective
from shisha_rt.planner.scheme_names import SchemeName, as_scheme
from shisha_rt.planner.tune import DEFAULT_ALPHA, DEFAULT_HEURISTIC
from shisha_rt.studies import study

_SCHEDULING_S: Final = 20.0
"""For the first schedule of partitions; of very large networks it is then a good one."""
_LEAST_STARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Planning:
    """How plans are made. `strategy`: "seed" tunes nothing; `solver` places operators, where places have devices.

    `fresh`: the best plan of earlier runs is neither used nor replaced. `replicate`: plans of the daemon's own may have
    copies and teams. `objective`: what they are chosen for; `auto`: as the load asks. `processors`: of a scheme of
    partitions, what it goes by. `plan`: the first one, which stays live as one that a client has set.
    """

    strategy: str = "seed"
    solver: str = "exact"
    fresh: bool = False
    replicate: bool = True
    objective: AnyObjective = "throughput"
    processors: ProcessorCosts | None = None
    plan: Plan | None = None

    @property
    def first_objective(self) -> Objective:
        """What the first plan is chosen for, unless the best ones are known."""
        return "throughput" if self.objective == "auto" else self.objective

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.strategy)


def first_cores(ready: ModelOnMachine, planning: Planning, costs: Costs | None) -> Cores:
    """The three pure cores; `costs` are in the time of measurements."""
    machine, rules = ready.machine, ready.rules
    # Two parts for each worker, and slack at both ends: admission and answers never hold one up.
    slots = 2 * len(machine.usual) + 2
    lifecycle = Lifecycle(rules, slots, _policy(ready.compiled, slots), down=machine.spare)
    begins_anew = planning.fresh or planning.strategy == "seed"
    kept = {} if begins_anew else plan_store.load_plans(plans_file(), ready.compiled.key)
    guided = planning.strategy == "guided"
    wanted = planning.first_objective
    by_costs = plans_by_costs(costs, machine, planning.replicate, [wanted]) if guided and costs is not None else {}
    if planning.scheme is not None and planning.processors is not None:
        until_s = time.monotonic() + _SCHEDULING_S
        first = study("scheme_plan")(planning.scheme, planning.processors, lambda: until_s - time.monotonic())
        by_costs = {} if first is None else {wanted: first.plan}
    unknown = Profiles.COMING if guided else Profiles.UNWANTED
    weights = [layer.weight for layer in ready.compiled.layers]
    choice = Choice(
        machine,
        rules,
        weights,
        BestPlans(kept),
        by_costs,
        objective=planning.objective,
        replicate=planning.replicate,
        profiles=unknown if costs is None else Profiles.KNOWN,
    )
    choice.of_client, choice.scheme, choice.partial = planning.plan, planning.scheme, ready.partial
    options = None
    if planning.strategy != "seed":
        options = SearchOptions(planning.strategy, DEFAULT_ALPHA, DEFAULT_HEURISTIC.balance)
    tuning = Tuning(lifecycle, choice, options, warm_up=len(ready.compiled.each) * lifecycle.frames.slot_count + 2)
    placing = None
    if rules.devices:
        at_once = GreedyPlacement(ready.operator_costs, ready.compiled.index.operators_of)
        placing = Placing(lifecycle, tuning, planning.solver, at_once)
    return Cores(lifecycle, tuning, placing)


def told_first(costs: Costs | None, needs: tuple[frozenset[int], ...], planning: Planning) -> list[tm.ToTuner]:
    """What a tuner has to hear before it searches."""
    if planning.processors is not None:
        return [tm.StoredProcessors(planning.processors)]
    return [] if costs is None else [tm.StoredCosts(msgspec.json.encode(costs_object(costs)), needs)]


def plans_for_others(costs: Costs | None, machine: Machine, planning: Planning) -> dict[Objective, Plan]:
    """By costs, for the objectives that are not wanted at the start, but may be later."""
    if costs is None or planning.strategy != "guided":
        return {}
    others = [objective for objective in OBJECTIVES if objective != planning.first_objective]
    return plans_by_costs(costs, machine, planning.replicate, others)


def _policy(compiled: Compiled, slots: int) -> Policy:
    """Of large frames a client may have fewer in flight: what fits into the slots, and into the room for waiting."""
    usual, request_bytes = Policy(), largest_request_bytes(compiled)
    return replace(
        usual,
        max_in_flight=min(usual.max_in_flight, slots + usual.waiting_bytes // max(1, request_bytes)),
        starts_at_once=max(_LEAST_STARTS, 2 * len(usable_cores())),
    )


def largest_request_bytes(compiled: Compiled) -> int:
    return max(sum(tensor.size_bytes for tensor in shape.model.graph.inputs) for shape in compiled.each)


def plans_file() -> Path:
    return cache_folder() / plan_store.FILE_NAME
