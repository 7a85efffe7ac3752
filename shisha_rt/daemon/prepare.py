"""Preparation before a daemon serves: makes the model ready, gets the costs of its layers, and finds the best plans.

This needs the ONNX reader, the planners and the measuring code, which the daemon itself never loads: `serve` runs it in
a separate process (`children.preparer`), except with a cluster, whose connection stays with the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shisha_rt.checked import shown
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.costs.engine_trials import EnginesTried, why_not
from shisha_rt.costs.layer_costs import LayerCosts, PacedCosts
from shisha_rt.daemon.prepared import Planning, Preparation, PreparedModel
from shisha_rt.daemon.settings import engine_of, layer_kind, why_usual_engine
from shisha_rt.errors import BadInput
from shisha_rt.measure.costs_of_model import known_layer_costs, layer_costs, plans_by_costs, priced_splits, told_costs
from shisha_rt.measure.engines import engines_tried, known_engines
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.plan_file import read_plan
from shisha_rt.measure.sitting import Sitting
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.engine import DEFAULT_ENGINE, AnyEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, Objective
from shisha_rt.planner.goal import Goal
from shisha_rt.studies import study

if TYPE_CHECKING:
    from shisha_rt.hosts.joined import Joined
    from shisha_rt.papers.partitiontuner.processors import ProcessorCosts

_SCHEDULING_S: Final = 20.0
"""Time limit of the search for the first schedule of partitions; for very large networks the best so far is used."""


def prepare(asked: Preparation, tell: Callable[[str], None], joined: Joined | None = None) -> PreparedModel:
    """Read, compile and plan; measure if costs are needed before the first frame.

    `joined`: the cluster with far places; if given, plans for all objectives are made now.

    Raises BadInput and Failure as `make_ready`, `read_plan`, `profile_model` and `ready_there` do.
    """
    settings, machine = asked.settings, asked.machine
    engine = engine_of(settings, machine)
    ready = _model_made_ready(asked, joined, tell)
    engines = _engines(ready, engine, tell)
    planning = _planning(asked, engine, ready)
    stored = processors = None
    if machine.timing == "modelled":
        stored = layer_costs(ready, tell)
    elif settings.strategy == "guided":
        stored = known_layer_costs(ready)
    if planning.scheme is not None:
        processors = study("processor_costs")(ready, tell, settings.groups).costs
    prepared = replace(planned(ready, planning, stored, processors), engines=engines)
    if joined is None:
        return prepared
    return replace(prepared, by_costs={**prepared.by_costs, **plans_for_others(prepared)})


def _model_made_ready(asked: Preparation, joined: Joined | None, tell: Callable[[str], None]) -> ModelOnMachine:
    settings, machine = asked.settings, asked.machine
    ready = make_ready(
        resolve_model(settings.model, tell),
        machine,
        sizes=[InputSizes(settings.dims, sizes) for sizes in settings.shape or ({},)],
        precision=settings.precision,
        calibration=None if settings.calibration is None else Path(settings.calibration),
        kind=layer_kind(settings, machine),
        teams=settings.replicate and settings.strategy == "guided",
        on_progress=tell,
    )
    if settings.name is not None:
        ready = replace(ready, compiled=ready.compiled.named(settings.name))
    if joined is None:
        return ready
    from shisha_rt.hosts.joined import measure_there, ready_there

    ready = ready_there(ready, joined)
    if settings.strategy != "seed" or machine.timing == "modelled":
        measure_there(ready, joined)
    return ready


def _planning(asked: Preparation, engine: AnyEngine, ready: ModelOnMachine) -> Planning:
    settings = asked.settings
    plan = None if settings.plan is None else read_plan(Path(settings.plan), ready)
    return Planning(settings, asked.fresh, engine, plan)


def _engines(ready: ModelOnMachine, engine: AnyEngine, tell: Callable[[str], None]) -> EnginesTried | None:
    """Results of engine trials, as far as they are known.

    If one other engine is asked for by name, it is tried now. Raises BadInput if it may not serve the network.
    """
    if engine == DEFAULT_ENGINE and why_usual_engine(ready.machine):
        return None
    if engine == "auto" or engine == DEFAULT_ENGINE:
        return known_engines(ready.compiled, ready.machine, ready.precision)
    tried = engines_tried(ready.compiled, ready.machine, Sitting(tell), precision=ready.precision)
    trial = tried.of(engine)
    assert trial is not None, "it is installed"
    if why := why_not(trial):
        name = ready.compiled.model.name
        raise BadInput(f"engine = {shown(engine)}: not for {name}: {why}; expected auto or {DEFAULT_ENGINE}")
    return tried


def planned(
    ready: ModelOnMachine,
    planning: Planning,
    stored: PacedCosts | None = None,
    processors: ProcessorCosts | None = None,
) -> PreparedModel:
    """The prepared model, with the best plan for the first objective.

    `stored`: layer costs, if known and wanted; strategy `guided` starts with these, and without them layers are
    measured while the daemon serves. `processors`: the costs for a scheme of partitions.
    """
    machine = ready.machine
    searches = planning.settings.strategy != "seed" and planning.scheme is None
    splits = priced_splits(ready) if searches and stored is not None else ()  # pricing by formulas takes long
    unknown = Profiles.COMING if planning.settings.strategy == "guided" else Profiles.UNWANTED
    prepared = PreparedModel(
        ready,
        planning,
        unknown if stored is None else Profiles.KNOWN,
        None if stored is None else told_costs(stored, machine.time_scale, *splits),
        raw=stored.raw if machine.timing == "modelled" and isinstance(stored, LayerCosts) else None,
    )
    if isinstance(stored, LayerCosts) and searches and machine.time_scale == 1:
        prepared = replace(prepared, others_ratio=stored.others_ratio)
    first, messages = _first_plans(prepared, processors), _told_first(prepared, processors)
    return replace(prepared, by_costs=first, told_first=messages)


def _told_first(prepared: PreparedModel, processors: ProcessorCosts | None) -> tuple[tm.ToTuner, ...]:
    costs = prepared.costs
    if processors is not None:
        return (tm.StoredProcessors(msgspec.msgpack.encode(processors)),)
    if costs is None:
        return ()
    return (tm.StoredCosts(msgspec.json.encode(costs_object(costs)), prepared.ready.compiled.needs),)


def _first_plans(prepared: PreparedModel, processors: ProcessorCosts | None) -> dict[Objective, Plan]:
    planning = prepared.planning
    if planning.scheme is not None and processors is not None:
        until_s = time.monotonic() + _SCHEDULING_S
        first = study("scheme_plan")(planning.scheme, processors, lambda: until_s - time.monotonic())
        return {} if first is None else {planning.first_objective: first.plan}
    return _plans_by_costs(prepared, [planning.first_objective])


def plans_for_others(prepared: PreparedModel) -> dict[Objective, Plan]:
    """Best plans by costs for the objectives other than the first, which may be wanted later."""
    first = prepared.planning.first_objective
    return _plans_by_costs(prepared, [objective for objective in EVERY_OBJECTIVE if objective != first])


def _plans_by_costs(prepared: PreparedModel, objectives: Sequence[Objective]) -> dict[Objective, Plan]:
    planning, costs = prepared.planning, prepared.costs
    if costs is None or planning.settings.strategy != "guided":
        return {}
    goal = Goal(planning.settings.replicate, latency_s=planning.latency_s)
    return plans_by_costs(costs, prepared.ready.machine, goal, objectives)
