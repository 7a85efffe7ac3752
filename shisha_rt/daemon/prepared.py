"""Order for, and result of, a daemon's preparation: both pass between two processes. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import ToTuner
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.daemon.fleet.watch import DEFAULT_LIMITS, HangLimits
from shisha_rt.daemon.settings import ONLY_VERSION, Settings
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan.engine import AnyEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective
from shisha_rt.planner.goal import PART_OF_TARGET
from shisha_rt.planner.seed import Assign
from shisha_rt.planner.strategies import DEFAULT_BALANCE, Balance, SchemeName, as_scheme
from shisha_rt.process.output_room import OUTPUT_BYTES

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs
    from shisha_rt.costs.layer_costs import LayerCosts
    from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
    from shisha_rt.placement.placed_costs import PlacedCosts


@dataclass(frozen=True, slots=True)
class Planning:
    """How plans are made. `strategy`: "seed" tunes nothing. `solver`: places operators, if places have devices.

    `fresh`: the best plan of earlier runs is neither used nor replaced. `replicate`: the daemon's own plans may have
    copies and teams. `objective`: what plans are chosen for; `auto`: as the load asks. `engine`: what may compute whole
    stages. `processors`: the costs for a scheme of partitions. `plan`: the first plan, which stays live as if a client
    had set it. `batch`: the most frames of one batch; None: as measured. `batch_delay_s`: how long an idle stage waits
    for more frames. `target_s`: time within which frames are to be answered. `assign`, `balance`: options of Shisha's
    seed and walk, whose combinations are its H1 to H6.
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
        """Objective of the first plan, unless best plans of earlier runs are known."""
        return "throughput" if self.objective == "auto" else self.objective

    @property
    def latency_s(self) -> float:
        """Limit of a single frame's predicted latency in a plan for energy."""
        return PART_OF_TARGET * self.target_s

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.strategy)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What workers may take. `output_bytes`: buffer size of each output whose shape depends on the data.

    `max_worker_bytes`: see `messages.worker.WorkerConfig`. `patience`: when a worker counts as hung.
    """

    output_bytes: int = OUTPUT_BYTES
    max_worker_bytes: int | None = None
    patience: HangLimits = DEFAULT_LIMITS


DEFAULT_WORKERS: Final = WorkerLimits()


@dataclass(frozen=True)
class Preparation:
    """Order to prepare a model: `settings` that have been checked, on `machine`. `fresh`: as in `Planning`."""

    settings: Settings
    machine: Machine
    fresh: bool = False


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
    pacing: LayerCosts | PlacedCosts | None = None
    others_ratio: float = 0.0
    told_first: tuple[ToTuner, ...] = ()
    engines: EnginesTried | None = None
    version: str = ONLY_VERSION
    workers: WorkerLimits = DEFAULT_WORKERS

    @property
    def for_serving(self) -> PreparedModel:
        """A copy without what only planning needs: the weights that the model's reader holds, and `costs`."""
        return replace(self, ready=replace(self.ready, compiled=self.ready.compiled.without_weights), costs=None)
