"""Order for, and result of, a daemon's preparation: both pass between two processes. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import ToTuner
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.daemon.settings import Settings, objective_of
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan.engine import AnyEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective
from shisha_rt.planner.goal import PART_OF_TARGET
from shisha_rt.planner.strategies import SchemeName, as_scheme

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs
    from shisha_rt.costs.layer_costs import PacedCosts
    from shisha_rt.papers.partitiontuner.processors import ProcessorCosts


@dataclass(frozen=True, slots=True)
class Planning:
    """How plans are made: as `settings` say.

    `fresh`: the best plan of earlier runs is neither used nor replaced. `engine`: what may compute whole stages.
    `plan`: the first plan, which stays live as if a client had set it. `processors`: the costs for a scheme of
    partitions.
    """

    settings: Settings
    fresh: bool = False
    engine: AnyEngine = "onnxruntime"
    plan: Plan | None = None
    processors: ProcessorCosts | None = None

    @property
    def objective(self) -> AnyObjective:
        """What plans are chosen for; `auto`: as the load asks."""
        return objective_of(self.settings)

    @property
    def first_objective(self) -> Objective:
        """Objective of the first plan, unless best plans of earlier runs are known."""
        return "throughput" if self.objective == "auto" else self.objective

    @property
    def target_s(self) -> float:
        """Time within which frames are to be answered."""
        return math.inf if self.settings.target_ms is None else self.settings.target_ms / 1e3

    @property
    def latency_s(self) -> float:
        """Limit of a single frame's predicted latency in a plan for energy."""
        return PART_OF_TARGET * self.target_s

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.settings.strategy)


@dataclass(frozen=True)
class Preparation:
    """Order to prepare a model: `settings` that have been checked, on `machine`. `fresh`: as in `Planning`.

    `log`: level and format of the log, which goes to the daemon's standard error.
    """

    settings: Settings
    machine: Machine
    fresh: bool
    log: tuple[int, str]


@dataclass(frozen=True)
class PreparedModel:
    """A model on a machine, with the results of its preparation (see `prepare`).

    `profiles`: whether layer costs are known. `costs`: layer costs as trials would measure them, if known and still
    needed for planning. `by_costs`: the best plans by `costs`, or the schedule of a scheme. `pacing`: the costs that
    `timing = "modelled"` paces by. `others_ratio`: the largest share of the cores that other programs took while costs
    were measured. `told_first`: messages to the tuner before its first search. `engines`: results of the engines'
    trials, if several engines may serve the network and the results are known already.
    """

    ready: ModelOnMachine
    planning: Planning
    profiles: Profiles = Profiles.UNWANTED
    costs: Costs | None = None
    by_costs: Mapping[Objective, Plan] = field(default_factory=dict)
    pacing: PacedCosts | None = None
    others_ratio: float = 0.0
    told_first: tuple[ToTuner, ...] = ()
    engines: EnginesTried | None = None

    @property
    def for_serving(self) -> PreparedModel:
        """A copy without what only planning needs: the weights that the model's reader holds, and `costs`."""
        return replace(self, ready=replace(self.ready, compiled=self.ready.compiled.without_weights), costs=None)
