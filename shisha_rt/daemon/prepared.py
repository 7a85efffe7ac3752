"""What is to be prepared before a daemon serves, and what comes of it: both pass between two processes. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import ToTuner
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.daemon.settings import ONLY_VERSION, Settings
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan.engine import AnyEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective
from shisha_rt.planner.goal import PART_OF_TARGET
from shisha_rt.planner.seed import Assign
from shisha_rt.planner.strategies import DEFAULT_BALANCE, Balance, SchemeName, as_scheme

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs
    from shisha_rt.costs.layer_costs import LayerCosts
    from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
    from shisha_rt.placement.placed_costs import PlacedCosts


@dataclass(frozen=True, slots=True)
class Planning:
    """How plans are made. `strategy`: "seed" tunes nothing; `solver` places operators, where places have devices.

    `fresh`: the best plan of earlier runs is neither used nor replaced. `replicate`: plans of the daemon's own may have
    copies and teams. `objective`: what they are chosen for; `auto`: as the load asks. `engine`: what may compute whole
    stages. `processors`: of a scheme of partitions, what it goes by. `plan`: the first one, which stays live as one
    that a client has set. `batch`: the most frames of one run, None: as measured; `batch_delay_s`: how long an idle
    stage waits for more. `target_s`: within which frames are to be answered. `assign`, `balance`: of Shisha's seed and
    walk, which together are its H1 to H6.
    """

    strategy: str = "seed"
    solver: str = "exact"
    fresh: bool = False
    replicate: bool = True
    objective: AnyObjective = "throughput"
    processors: ProcessorCosts | None = None
    plan: Plan | None = None
    engine: AnyEngine = "onnxruntime"
    batch: int | None = 1
    batch_delay_s: float = 0.0
    target_s: float = math.inf
    assign: Assign = "weight"
    balance: Balance = DEFAULT_BALANCE

    @property
    def first_objective(self) -> Objective:
        """What the first plan is chosen for, unless the best ones are known."""
        return "throughput" if self.objective == "auto" else self.objective

    @property
    def latency_s(self) -> float:
        """What a frame by itself may take in a plan for energy, as far as costs tell."""
        return PART_OF_TARGET * self.target_s

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.strategy)


@dataclass(frozen=True)
class Preparation:
    """What is to be served: `settings` that have been checked, on `machine`. `fresh` as in `Planning`."""

    settings: Settings
    machine: Machine
    fresh: bool = False


@dataclass(frozen=True)
class PreparedModel:
    """A model on a machine, and all that has been thought out before it is served (see `prepare`).

    `profiles`: whether it is known what layers cost. `costs`: what they do, as trials measure it, where that is known
    and still to be planned by. `by_costs`: the best plans by these, or the schedule of a scheme. `pacing`: by which
    `timing = "modelled"` paces. `others_ratio`: the largest part of the cores that others took while something of the
    costs was measured. `told_first`: what a tuner has to hear before it searches. `engines`: what each makes of the
    whole network, where several may serve it and that is known already.
    """

    ready: ModelOnMachine
    planning: Planning
    profiles: Profiles = Profiles.UNWANTED
    costs: Costs | None = None
    by_costs: Mapping[Objective, Plan] = field(default_factory=dict)
    pacing: LayerCosts | PlacedCosts | None = None
    others_ratio: float = 0.0
    told_first: tuple[ToTuner, ...] = ()
    engines: EnginesTried | None = None
    version: str = ONLY_VERSION

    @property
    def for_serving(self) -> PreparedModel:
        """The same without what only planning needs: weights that the model's reader holds, and costs."""
        return replace(self, ready=replace(self.ready, compiled=self.ready.compiled.without_weights), costs=None)
