"""One search for a better plan, from the daemon's side: its start, its options, and its results so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner
from shisha_rt.core.lifecycle.instructions import Settled
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.plan.form import written
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.strategies import SchemeName, as_scheme


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How plans are searched. `alpha` and `balance` (which stage a move gives a layer to) are for Algorithm 2 alone."""

    strategy: str
    alpha: int
    balance: str

    @property
    def scheme(self) -> SchemeName | None:
        return as_scheme(self.strategy)


@dataclass(slots=True)
class SearchRun:
    """One search, which began under `epoch` from `start`. `trials`: number of plans measured; `best`: the best of them
    so far; `tried`: the last one.

    `over`: the places that it may use. `order`: the places in the order in which Algorithm 2 walks. `scheme`: the
    scheme of partitions, if it uses one. `at_start`: the live plan's measurement just before, if it led to the search.
    `trying`: the plan that is tried now; `proposal`: the number under which it was proposed, None if it was live
    already. `lower_bound_s`: seconds below which no plan can be, as far as the search knows. `found_by`: the number of
    the earlier search whose results these are, 0 if no search of this daemon has found `best`; None: its own.
    `others_ratio`: the share of the cores that other programs used during the search.
    """

    number: int
    epoch: int = 0
    objective: Objective = "throughput"
    began_s: float = 0.0
    start: Plan | None = None
    order: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    scheme: SchemeName | None = None
    at_start: Measurement | None = None
    trials: int = 0
    trying: tm.Try | None = None
    proposal: int | None = None
    best: tuple[Plan, Measurement] | None = None
    tried: Plan | None = None
    lower_bound_s: float | None = None
    found_by: int | None = None
    others_ratio: float = 0.0

    @property
    def gap_ratio(self) -> float:
        """The best plan's seconds over the lower bound; nan if either is not known."""
        best, bound_s = self.best, self.lower_bound_s
        return best[1].value(self.objective) / bound_s if best is not None and bound_s else math.nan

    def moves_to(self, plan: Plan) -> int:
        """Number of moves from the plan tried before; 0 for the first plan."""
        return 0 if self.tried is None else moves_between(self.tried, plan)

    @property
    def best_runnable(self) -> tuple[Plan, Measurement] | None:
        return self.best if self.best is not None and self.best[1].can_run else None

    def leaves(self, plan: Plan, serving: Plan) -> Plan:
        """The plan to be live when the search ends: the best measured; `plan`, the tuner's, if none was tried;
        `serving` if none of those tried could run, as a new search would end there again.
        """
        if self.best_runnable is not None:
            return self.best_runnable[0]
        return plan if self.best is None else serving

    def judge(self, plan: Plan, measurement: Measurement) -> str:
        """Count a trial; return the verdict. A plan becomes the best only if it is better beyond noise."""
        self.trials += 1
        self.tried = plan
        best = self.best
        if best is None:
            self.best = plan, measurement
            return "first" if measurement.can_run else "cannot_run"
        if not measurement.can_run:
            return "cannot_run"
        if not measurement.is_better_than(best[1], self.objective):
            return "not_better"
        self.best = plan, measurement
        return "better"

    def began_record(self, options: SearchOptions, plan: Plan, why: str) -> event_log.TuningBegan:
        return event_log.TuningBegan(
            run=self.number,
            reason=why,
            plan=str(plan),
            strategy=options.strategy,
            alpha=options.alpha,
            objective=self.objective,
        )

    def trial_record(
        self, epoch: int | None, verdict: str, measurement: Measurement, trouble: str
    ) -> event_log.TrialJudged:
        """The trial that has just been judged."""
        assert self.trying is not None
        plan = self.trying.plan
        ran = measurement.can_run
        return event_log.TrialJudged(
            run=self.number,
            trial=self.trials - 1,
            proposal=None if self.proposal is None else f"{Owner.TUNER.value} {self.proposal}",
            epoch=epoch,
            plan=str(plan),
            stages=tuple(written(plan)),
            reason=self.trying.reason,
            verdict=verdict,
            trouble=trouble or None,
            service_s=measurement.service_s if ran else None,
            throughput_fps=measurement.throughput_fps if ran else None,
            latency_s=measurement.latency_s if ran else None,
            energy_j=event_log.if_finite(measurement.energy_j),
            band=measurement.band if ran else None,
            frames=measurement.frames,
            measured_in_s=measurement.took_s,
        )

    def ended_record(self, plan: Plan, reason: str, now_s: float) -> event_log.TuningEnded:
        best = None if self.best_runnable is None else self.best_runnable[1]
        return event_log.TuningEnded(
            run=self.number,
            plan=str(plan),
            reason=reason,
            trials=self.trials,
            seconds=round(now_s - self.began_s, 3),
            throughput_fps=None if best is None else best.throughput_fps,
            latency_s=None if best is None else best.latency_s,
            energy_j=None if best is None else event_log.if_finite(best.energy_j),
        )


def never_ran(end: Settled) -> Measurement:
    """Measurement that stands for a plan that could not go live."""
    return Measurement((math.inf,) * max(1, len(end.plan.stages)), 0.0, 0, 0.0, failed_stage=end.failed_stage)


def moves_between(before: Plan, after: Plan) -> int:
    """Number of moves of a layer from a stage to its neighbour that turn one plan into the other.

    Stages may become empty on the way, or get layers again. 0 if no moves lead from one plan to the other: if one is no
    chain, or has other teams.
    """
    shorter, longer = sorted(([stage.teams for stage in plan.stages] for plan in (before, after)), key=len)
    position = {teams: index for index, teams in enumerate(longer)}
    at = [position.get(teams, -1) for teams in shorter]
    if not (before.is_chain and after.is_chain) or len(position) < len(longer) or -1 in at or at != sorted(at):
        return 0
    was, now = ([position[stage.teams] for stage in plan.stages for _ in stage.layers] for plan in (before, after))
    return sum(
        abs(past - other) for past, other in zip(was, now, strict=False)
    )  # not strict, as a plan that will be refused may have any number of layers


def walk_order(before: SearchRun, start: Plan, available: tuple[str, ...]) -> tuple[str, ...]:
    """The places in a search's order: as before if that fits `start`, so that emptied places may get layers again."""
    left = set(available)
    kept = tuple(name for name in before.order if name in left)
    places = start.places
    used = set(places)
    return kept if tuple(name for name in kept if name in used) == places else places
