"""The three cores that a daemon starts with, made from its prepared model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from shisha_rt.cache import cache_folder
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning.best import BestPlans
from shisha_rt.core.tuning.candidates import MOST_MEASURED_BATCH
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.cores import Cores
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.daemon.prepared import Planning, PreparedModel
from shisha_rt.daemon.settings import why_usual_engine
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.host.memory import available_memory_bytes
from shisha_rt.machine.machine import Machine
from shisha_rt.measure import plan_store
from shisha_rt.measure.compiled import Compiled
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.seed import Assign
from shisha_rt.planner.strategies import DEFAULT_ALPHA, Balance

_LEAST_STARTS: Final = 4
_PART_OF_MEMORY: Final = 0.5
"""Share of the memory available at the start that engines may use for private copies of weights."""


def first_cores(prepared: PreparedModel) -> Cores:
    ready, planning, settings = prepared.ready, prepared.planning, prepared.planning.settings
    engines = _candidate_engines(planning, ready.machine, ready.rules)
    most_batch = settings.batch or (_most_measured_batch(ready.rules) if engines else 1)
    rules = replace(ready.rules, most_batch=most_batch)
    # Two parts for each worker, and slack at both ends, so that no worker waits for admission or answers.
    slots = 2 * len(ready.machine.places) + 2
    usual, request_bytes = Policy(), largest_request_bytes(ready.compiled)
    # If frames are large, fewer may be in flight: as many as slots and the waiting buffer hold.
    in_slots_and_waiting = slots * most_batch + usual.waiting_bytes // max(1, request_bytes)
    policy = replace(
        usual,
        max_in_flight=min(usual.max_in_flight, in_slots_and_waiting),
        starts_at_once=max(_LEAST_STARTS, 2 * len(usable_cores())),
        batch=settings.batch or 1,
        batch_delay_s=settings.batch_delay_us / 1e6,
        target_s=planning.target_s,
    )
    lifecycle = Lifecycle(rules, slots, policy, down=ready.machine.spare)
    options = None
    if settings.strategy != "seed":
        options = SearchOptions(settings.strategy, DEFAULT_ALPHA, cast(Balance, settings.balance))
    warm_up = len(ready.compiled.each) * slots + 2
    tuning = Tuning(lifecycle, _choice(prepared, rules, engines), options, warm_up)
    placing = None
    if rules.devices:
        from shisha_rt.core.tuning.greedy_placement import GreedyPlacement  # most daemons place no operators
        from shisha_rt.core.tuning.placing import Placing

        at_once = GreedyPlacement(ready.operator_costs, ready.compiled.index.operators_of)
        placing = Placing(lifecycle, lambda: tuning.searching, settings.solver, at_once)
    return Cores(lifecycle, tuning, placing)


def _choice(prepared: PreparedModel, rules: PlanRules, engines: tuple[StageEngine, ...]) -> Choice:
    """The choice of plans, which starts with the best plans of earlier runs unless these are to be ignored."""
    ready, planning, settings = prepared.ready, prepared.planning, prepared.planning.settings
    begins_anew = planning.fresh or settings.strategy == "seed"
    kept = {} if begins_anew else plan_store.load_plans(plans_file(), ready.compiled.key)
    basis = Basis(
        planning.objective,
        settings.replicate,
        planning.scheme,
        planning.plan,
        DEFAULT_ENGINE if planning.engine == "auto" else planning.engine,
        engines,
        prepared.engines,
        spare_bytes=_PART_OF_MEMORY * available_memory_bytes(),
        partial=ready.partial,
        target_s=planning.target_s,
        profiles=prepared.profiles,
        by_costs=prepared.by_costs,
        assign=cast(Assign, settings.assign),
    )
    weights = [layer.weight for layer in ready.compiled.layers]
    return Choice(ready.machine, rules, weights, BestPlans(kept), basis)


def _candidate_engines(planning: Planning, machine: Machine, rules: PlanRules) -> tuple[StageEngine, ...]:
    """Engines on which the whole network is tried live; none if options or the machine restrict the choice of plans."""
    settings = planning.settings
    as_usual = settings.strategy == "guided" and settings.replicate and settings.batch in (None, 1)
    if not as_usual or why_usual_engine(machine):
        return ()
    asked = planning.engine
    return tuple(engine for engine in rules.engines if asked == "auto" or engine.startswith(asked))


def _most_measured_batch(rules: PlanRules) -> int:
    """The largest batch that is tried; 1 if the whole network cannot compute in batches."""
    whole = Plan((Stage(((0, rules.layer_count - 1),), ((rules.places[0],),)),))
    return 1 if rules.in_batches(whole, MOST_MEASURED_BATCH) == whole else MOST_MEASURED_BATCH


def largest_request_bytes(compiled: Compiled) -> int:
    return max(sum(tensor.size_bytes for tensor in shape.model.graph.inputs) for shape in compiled.each)


def plans_file() -> Path:
    return cache_folder() / plan_store.FILE_NAME
