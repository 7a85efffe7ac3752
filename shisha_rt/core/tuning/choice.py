"""Which plan the daemon chooses by itself: at the start, after the loss of a place, and when one is back.

In this order: the best plan that tuning has found on this very machine, if it fits; the best by stored costs, while the
machine is the one that they are for; the whole model on each place, while costs are wanted but not known, as it needs
none to be good; the seed; and if places lack the memory for that, the best plan by weights. The machine as it is now is
kept here, and nowhere else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shisha_rt.core.tuning.best import BestPlan, BestPlans
from shisha_rt.core.tuning.drift import Drift
from shisha_rt.core.tuning.profiler_messages import ModelProfiled, NotProfiled
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import PlaceNow
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine, is_openvino
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.rate import EVERY_OBJECTIVE, OBJECTIVES, AnyObjective, Objective
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.goal import PART_OF_TARGET
from shisha_rt.planner.seed import Assign, seed
from shisha_rt.planner.strategies import SchemeName


@dataclass(frozen=True, slots=True)
class Basis:
    """What choices are based on when the daemon starts: what its user has asked for, and what is known by then.

    `objective`: what plans are chosen for. `replicate`: plans may have copies and teams. `scheme`: the scheme of
    partitions that makes plans, if any; each scheme has best plans of its own. `plan`: the one that a client has set,
    if any. `engine`: computes the plans chosen here, if a user has named one; `engines`: engines on which the whole
    network may be tried; `tried`: results of their trials; `spare_bytes`: memory for engines' own weights.
    `target_s`: time within which frames are to be answered.
    `partial`: places that cannot run every layer; without costs they are used only if no other is left.
    `profiles`: whether costs are known; `by_costs`: the best plans by them, for all places of the machine.
    `assign`: how the stages of Shisha's seed get their places.
    """

    objective: AnyObjective = "throughput"
    replicate: bool = False
    scheme: SchemeName | None = None
    plan: Plan | None = None
    engine: StageEngine = DEFAULT_ENGINE
    engines: tuple[StageEngine, ...] = ()
    tried: EnginesTried | None = None
    spare_bytes: float = math.inf
    target_s: float = math.inf
    partial: frozenset[str] = frozenset()
    profiles: Profiles = Profiles.UNWANTED
    by_costs: Mapping[Objective, Plan] = field(default_factory=dict)
    assign: Assign = "weight"


class Choice:
    """`filed`: the machine as its file has it; `machine`: as it is now. `weights` (layers,): Eq. 1. `of_client`: the
    plan that a client has set; None: the daemon may replace the live plan. `objective`: what plans are chosen for now;
    with `auto` it follows the load, but is throughput until the best plans for both are known. The rest is as in
    `Basis`.
    """

    def __init__(
        self,
        filed: Machine,
        rules: PlanRules,
        weights: Sequence[float],
        best_plans: BestPlans,
        basis: Basis = Basis(),
    ) -> None:
        self.filed = self.machine = filed
        self.of_client = basis.plan
        self.scheme = basis.scheme
        self.engines, self.tried, self.spare_bytes = basis.engines, basis.tried, basis.spare_bytes
        self.replicate = basis.replicate
        self.target_s = basis.target_s
        self.profiles = basis.profiles
        self.by_costs = dict(basis.by_costs)
        self.auto = False
        self.objective: Objective = "throughput"
        self._engine = basis.engine
        self._partial = basis.partial
        self._assign, self._rng = basis.assign, random.Random(0)
        self.rules = rules
        self._verdicts: dict[Plan, bool] = {}  # of best plans: few
        self._weights = weights
        self._best_plans = best_plans
        self.aim_at(basis.objective)
        if self.auto and all(self.best([place.name for place in filed.usual], aim) for aim in OBJECTIVES):
            self.objective = "latency"  # no frame has come yet
        self._by_weights: tuple[tuple[Place, ...], Plan | None] | None = None

    @property
    def automatic(self) -> bool:
        """No client has set a plan, so the daemon may replace the live one."""
        return self.of_client is None

    def aim_at(self, wanted: AnyObjective) -> bool:
        """Set the objective; return whether the present one has changed. With `auto` only the load changes it."""
        self.auto = wanted == "auto"
        before = self.objective
        self.objective = before if wanted == "auto" else wanted
        return self.objective != before

    def is_clients(self, live: tuple[int, Plan] | None) -> bool:
        return live is not None and live[1] == self.of_client

    @property
    def most_run_s(self) -> float:
        """How long a batch may take: a frame may have to wait for another batch before its own."""
        return self.target_s / 2

    @property
    def most_batch(self) -> int:
        return self.rules.most_batch

    @property
    def compares(self) -> bool:
        """Whether candidates may be compared live: not for energy, which comparisons do not measure."""
        return bool(self.engines) and self.automatic and self.objective != "energy"

    @property
    def tries_engines(self) -> bool:
        """Whether trials of the whole network on engines can affect what is chosen."""
        return bool(self.engines) and (any(map(is_openvino, self.engines)) or self.most_batch > 1)

    def _aim(self, objective: Objective, scheme: SchemeName | None) -> str:
        """Key part under which best plans are kept: objective, kind of plans, scheme and engines.

        For energy also each place's power and the target, as the best plan depends on them.
        """
        kind = "" if self.replicate else "plain chains"
        powers = f"{self.target_s} s, {dict(self.machine.power_w)}" if objective == "energy" else ""
        return ", ".join(filter(None, (objective, kind, scheme, " or ".join(self.engines), powers)))

    def best(self, available: Collection[str], objective: Objective | None = None) -> BestPlan | None:
        """The best plan known for the machine as it is now, over available places. `objective` None: the daemon's."""
        return self._runnable(self._over(available), objective or self.objective)

    def _runnable(self, machine: Machine, objective: Objective) -> BestPlan | None:
        """The best plan known for a machine, if it can run now: an earlier run may have had more memory."""
        best = self._best_plans.of(machine, self._aim(objective, self.scheme))
        return best if best is not None and self._can_run(best.plan) else None

    def _can_run(self, plan: Plan) -> bool:
        """Whether a plan follows the rules. They never change, and best plans are asked for several times a second."""
        if plan not in self._verdicts:
            self._verdicts[plan] = not self.rules.problems(plan)
        return self._verdicts[plan]

    def keep(
        self, best: BestPlan, available: Collection[str], objective: Objective, scheme: SchemeName | None = None
    ) -> str:
        """Record the best plan of these places as they are now; return the key to store it under."""
        return self._best_plans.replace(self._over(available), best, self._aim(objective, scheme))

    def correct(self, live: Plan, drift: Drift, available: Collection[str]) -> None:
        """Correct best plans after a drift of the live plan. Other plans on the places of the stage that has drifted
        are scaled as that stage, until they are measured. Plans on disk stay as they are.
        """
        changed = set(live.stages[drift.stage].places)
        for objective in EVERY_OBJECTIVE:
            best = self.best(available, objective)
            if best is not None and not changed.isdisjoint(best.plan.places):
                measurement = drift.plan_now if best.plan == live else best.measurement.scaled(drift.ratio)
                self.keep(replace(best, measurement=measurement), available, objective, self.scheme)

    def _over(self, available: Collection[str]) -> Machine:
        return replace(self.machine, places=tuple(place for place in self.machine.places if place.name in available))

    def start(self, wanted: Plan, available: Collection[str]) -> Plan:
        """Return the plan from which a search begins: `wanted`, unless it uses a place that is out."""
        return wanted if self.fits(wanted, available) else self.plan(available)

    def plan(self, available: Collection[str]) -> Plan:
        """Return a plan over available places: first of all the one that a client has set, if it fits."""
        if self.of_client is not None and self.fits(self.of_client, available):
            return self.of_client
        for best in (self.best(available), self._runnable(self.machine, self.objective)):
            if best is not None and self.fits(best.plan, available):
                return best.plan
        if self._engine != DEFAULT_ENGINE:
            return self._copies(available)
        by_costs = self.by_costs.get(self.objective)
        if by_costs is not None and self.machine == self.filed and set(by_costs.places) <= set(available):
            return by_costs
        if self.replicate and self.profiles in (Profiles.COMING, Profiles.FAILED):
            copies = self._copies(available)
            if not self.rules.problems(copies):
                return copies
        chosen = self.seed(available)
        if self.rules.memory_bytes and self.rules.problems(chosen):
            return self._with_room(tuple(self._whole(available))) or chosen
        return chosen

    def hear(self, profiled: ModelProfiled | NotProfiled) -> None:
        """Note the measured costs of layers, or that they cannot be measured."""
        if isinstance(profiled, ModelProfiled):
            self.profiles = Profiles.KNOWN
            self.by_costs = dict(profiled.by_costs)
        else:
            self.profiles = Profiles.FAILED

    def hear_ahead(self, by_costs: Mapping[Objective, Plan]) -> None:
        """Note plans by the costs known at the start; plans by costs measured since then take precedence."""
        self.by_costs = {**by_costs, **self.by_costs}

    def _copies(self, available: Collection[str]) -> Plan:
        """The whole model on each place; on one of the fastest if plans may have no copies."""
        places = self._whole(available)
        if not self.replicate:
            places = [min(places, key=lambda place: place.rank)]
        teams = tuple((place.name,) for place in places)
        return Plan((Stage(((0, len(self._weights) - 1),), teams, engine=self._engine),))

    def _with_room(self, places: tuple[Place, ...]) -> Plan | None:
        """The best plan by weights; cached, as it takes long and is asked for again while no plan can serve."""
        from shisha_rt.core.tuning.plan_by_weights import plan_by_weights  # the planners: only if memory is short

        if self._by_weights is None or self._by_weights[0] != places:
            self._by_weights = places, plan_by_weights(self.rules, self._weights, places)
        return self._by_weights[1]

    def seed(self, available: Collection[str]) -> Plan:
        """Shisha's seed, over available places."""
        cuts = self.rules.legal_cuts
        return seed(self._weights, self._whole(available), assign=self._assign, legal_cuts=cuts, rng=self._rng)

    def _whole(self, available: Collection[str]) -> list[Place]:
        """The available places that can run every layer; all available places if none can."""
        places = [place for place in self.machine.places if place.name in available]
        return [place for place in places if place.name not in self._partial] or places

    @property
    def latency_s(self) -> float:
        """The longest latency of a single frame, by costs, in a plan for energy."""
        return PART_OF_TARGET * self.target_s

    def fits(self, plan: Plan, available: Collection[str]) -> bool:
        """Whether a plan uses only available places, and none whose speed has been changed in a team of several.

        A changed speed is emulated by the place's own worker: as the lead it would slow the whole team, and as any
        other place of a team it would have no effect.
        """
        teams = {team for stage in plan.stages for team in stage.teams if len(team) > 1}
        as_filed = (self.machine.place(name) == self.filed.place(name) for team in teams for name in team)
        return set(plan.places) <= set(available) and all(as_filed)

    def are_alike(self, stage: Stage) -> bool:
        """Whether all teams of a stage are alike, on the machine as it is now."""
        speeds = {self.machine.place(name).speed for name in stage.places}
        return len(speeds) == 1 and self.rules.are_alike(stage)

    def places_now(self, available: Collection[str]) -> tuple[PlaceNow, ...]:
        return tuple(
            PlaceNow(place.name, place.rank, self.filed.place(place.name).speed / place.speed)
            for place in self.machine.places
            if place.name in available
        )
