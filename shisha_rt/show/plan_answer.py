"""The result of the command `plan`: as the object of `--json`, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from shisha_rt.outcome import Outcome
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan, Stage, team_name
from shisha_rt.plan.rate import Objective, Rate, rate_of, stage_seconds
from shisha_rt.planner.loop import Result, Trial
from shisha_rt.planner.seed import Ranked
from shisha_rt.planner.solution import PLAIN_CHAINS, explored_fraction, plan_count
from shisha_rt.show.picture import Box, draw, millijoules, milliseconds, stage_in_words
from shisha_rt.show.stages import time_in_words, unused_places

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs

_SHOWN_MOVES: Final = 10


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """Input of a strategy, whatever its source. `needs` as in `PlanRules`; empty if not known."""

    weights: Sequence[float]
    places: Sequence[Ranked]
    legal_cuts: frozenset[int]
    costs: Costs | None = None
    needs: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanAim:
    """What was searched for. `replicate`: with copies and teams; `space`: the plans, in words; `split`: with shards."""

    replicate: bool = False
    objective: Objective = "throughput"
    space: str = PLAIN_CHAINS
    split: bool = False

    @property
    def is_plain(self) -> bool:
        return not (self.replicate or self.split)


@dataclass(frozen=True, slots=True)
class OrderFound:
    """`gain`: speed with the best order of layers found, relative to the file's order. `most_gain`: upper bound of the
    gain of any order. Both are at least 1, or None if not known; then `reason` says why. `order`: "file" or "best", the
    order that was asked for.
    """

    order: str = "file"
    gain: float | None = None
    most_gain: float | None = None
    reason: str | None = None

    def in_words(self) -> str:
        if self.gain is None:
            return ""
        most = "" if self.most_gain is None else f", and none is more than {self.most_gain:.4g} times as fast"
        if self.order == "best":
            return f"over the best order found of the layers: {self.gain:.4g} times as fast as over the file's"
        if self.gain > 1:
            return f"over another order of the layers: {self.gain:.4g} times as fast (--order best)"
        return f"no better order of the layers {'exists' if self.most_gain == 1 else 'was found' + most}"


KnownSeconds: TypeAlias = Sequence[Sequence[float | None]]
"""(stages, teams): seconds, None if not known."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan, which may have no stages, and its known properties. `reason`: why there is no plan that can run.

    `team_s`: each stage's seconds on each of its teams. `stage_count`: the seed's, as tuning may have emptied a stage.
    `tuned`: None if nothing was tuned.
    """

    problem: PlanProblem
    plan: Plan
    stage_count: int
    team_s: KnownSeconds
    outcome: Outcome
    reason: str | None
    trials: int = 0
    trial_time_s: float = 0.0
    tuned: Result | None = None
    aim: PlanAim = PlanAim()
    lower_bound_s: float | None = None
    latency_proven: bool = False
    lower_bound_j: float | None = None
    order: OrderFound = OrderFound()

    def as_object(self) -> dict[str, object]:
        """The object that `--json` prints; it always has all keys."""
        rate = self.rate
        # There is no formula here for the number of plans with copies and teams, with splits, or over any order.
        plain = self.aim.is_plain and self.order.order == "file"
        space_size = plan_count(len(self.problem.legal_cuts), len(self.problem.places), self.stage_count)
        return {
            "stages": written(self.plan, service_s=self.service_s),
            "unused": self.unused,
            "bottleneck_s": None if rate is None else rate.bottleneck_s,
            "throughput_fps": 1 / rate.bottleneck_s if rate is not None and rate.bottleneck_s else None,
            "latency_s": None if rate is None else rate.latency_s,
            "energy_j": rate.energy_j if rate is not None and math.isfinite(rate.energy_j) else None,
            "link": rate.link if rate is not None and rate.is_link_bound else None,
            "latency_proven": self.latency_proven,
            "objective": self.aim.objective,
            "space": self.aim.space,
            "trials": self.trials,
            "trial_time_s": self.trial_time_s,
            # Decimal: Python refuses to print an int of more than 4,300 digits, which many places can reach.
            "space_size": str(Decimal(space_size)) if plain else None,
            "log10_space_size": math.log10(space_size) if plain else None,
            "explored_fraction": (
                explored_fraction(self.trials, len(self.problem.weights), self.stage_count) if plain else None
            ),
            "lower_bound_s": self.lower_bound_s,
            "lower_bound_j": self.lower_bound_j,
            "outcome": self.outcome,
            "reason": self.reason,
            "order": self.order.order,
            "order_gain": self.order.gain,
            "order_gain_most": self.order.most_gain,
            "order_reason": self.order.reason,
        }

    @property
    def service_s(self) -> list[float | None]:
        """(stages,): for unlike teams, the time with which equal teams would have the same rate."""
        return [stage_seconds(known) if (known := _known(times)) else None for times in self.team_s]

    @property
    def rate(self) -> Rate | None:
        """Rate of the plan; None where the time of some stage is not known."""
        known = [_known(times) for times in self.team_s]
        if not known or not all(known):
            return None
        costs = self.problem.costs
        if costs is None or not (costs.link_of or costs.batches or costs.power_w):
            return rate_of(self.plan, known)
        from shisha_rt.costs.team_costs import team_costs

        return team_costs(costs).rate(self.plan, known)

    @property
    def unused(self) -> list[str]:
        return unused_places(self.plan, (place.name for place in self.problem.places))

    def in_words(self, width: int) -> str:
        """The picture, with what is proven, or if the plan was tuned, the moves and the gain."""
        if not self.plan.stages:
            return "no plan"
        if self.lower_bound_j is not None:
            return f"{self.picture(width)}\n{self._energy(self.lower_bound_j)}"
        if self.lower_bound_s is not None:
            lines = (self.picture(width), self._proven(self.lower_bound_s), self.order.in_words())
            return "\n".join(filter(None, lines))
        if self.tuned is None:
            return self.picture(width)
        gain = _gain(self.tuned, self.aim.objective)
        return "\n".join([*_walk(self.tuned), self.picture(width), f"kept: {self.tuned.reason}", gain])

    def _energy(self, lower_bound_j: float) -> str:
        rate = self.rate
        assert rate is not None, "a solved plan has known times"
        took = f"{millijoules(rate.energy_j)} a frame by described power, {milliseconds(rate.latency_s)} by itself"
        if self.outcome is not Outcome.OPTIMAL:
            return f"{took}; not proven: only that none takes less than {millijoules(lower_bound_j)}"
        others = " (--replicate looks at copies and teams, too)" if self.aim.is_plain else ""
        return f"{took}; proven: no plan among {self.aim.space} takes less{others}"

    def _proven(self, lower_bound_s: float) -> str:
        among = f" among {self.aim.space}"
        if self.order.order == "file" and (self.order.gain or 1) > 1:
            among += " over the file's order of layers"
        latency = self.aim.objective == "latency"
        if self.outcome is not Outcome.OPTIMAL:
            what = "a latency" if latency else "a slowest stage"
            return f"not proven: only that no plan{among} has {what} of less than {lower_bound_s * 1e3:.4g} ms"
        others = " (--replicate looks at copies and teams, too)" if self.aim.is_plain else ""
        if latency:
            return f"proven: no plan{among} has a lower latency than {lower_bound_s * 1e3:.4g} ms{others}"
        least = ", and none as fast has a lower latency" if self.latency_proven else ""
        return f"proven: no plan{among} is faster{least}{others}"

    def picture(self, width: int) -> str:
        """A box for each stage; its bar is what it adds between two frames, without times its share of the weight."""
        rate = self.rate
        if rate is None or not 0 < rate.bottleneck_s < math.inf:
            whole = sum(self.problem.weights)
            bars = [self._weight(stage) / whole if whole else 0.0 for stage in self.plan.stages]
            labels = [f"{bar:5.1%} of the weight" for bar in bars]
        else:
            bars = [period_s / rate.bottleneck_s for period_s in rate.period_s]
            stages = zip(self.plan.stages, self.service_s, strict=True)
            labels = [time_in_words(service_s, len(stage.teams)) for stage, service_s in stages]
        longest = max(map(len, labels), default=0)  # so that bars of one length stand for one time
        boxes = [
            Box(_on(stage), stage_in_words(stage), label.rjust(longest), bar, rate is not None and bar == 1)
            for stage, label, bar in zip(self.plan.stages, labels, bars, strict=True)
        ]
        unused = f"\nunused: {', '.join(self.unused)}" if self.unused else ""
        link = ""
        if rate is not None and rate.is_link_bound:
            link = f"\nthe link {rate.link} is slower than any stage: {rate.link_s * 1e3:.4g} ms a frame"
        predicted = ""
        if rate is not None and rate.bottleneck_s > 0:
            predicted = f"\npredicted {1 / rate.bottleneck_s:.4g} frames/s, latency {milliseconds(rate.latency_s)}"
        return draw(boxes, width) + link + unused + predicted

    def _weight(self, stage: Stage) -> float:
        whole = sum(self.problem.weights[layer] for layer in stage.layers)
        if stage.split is None:
            return whole
        first, last = stage.split.span
        split = sum(self.problem.weights[first : last + 1])
        return whole - split + split * stage.split.fraction


def _known(times_s: Sequence[float | None]) -> list[float]:
    """The times of all teams; empty if any is not known."""
    known = [time_s for time_s in times_s if time_s is not None]
    return known if len(known) == len(times_s) else []


def _on(stage: Stage) -> str:
    """Where a stage runs: `core0`, a team as `core0+core1`, copies as `2 copies: core0, core1`."""
    teams = ", ".join(map(team_name, stage.teams))
    return f"{len(stage.teams)} copies: {teams}" if len(stage.teams) > 1 else teams


def _walk(tuned: Result) -> list[str]:
    """The first plan, and the last moves with their results."""
    first, *moves = tuned.trials
    shown = moves[-_SHOWN_MOVES:]
    left_out = len(moves) - len(shown)
    return [
        f"start {first.plan}: {_fps(first)}",
        *([f"      ({left_out} earlier moves)"] if left_out else []),
        *(f"{move.number:4}  {move.reason}: {_fps(move)}{', best so far' * move.is_best}" for move in shown),
    ]


def _gain(tuned: Result, objective: Objective) -> str:
    before, after = tuned.trials[0].measurement, tuned.measurement
    before_s, after_s = before.value(objective), after.value(objective)
    gain = f", {before_s / after_s:.3g} times" if before.can_run and after_s else ""
    if objective == "energy":
        return f"energy: {millijoules(before_s)} a frame before, {millijoules(after_s)} after{gain}"
    if objective == "latency":
        return f"latency: {1e3 * before_s:.4g} ms before, {1e3 * after_s:.4g} ms after{gain}"
    return f"throughput: {before.throughput_fps:.4g} frames/s before, {after.throughput_fps:.4g} frames/s after{gain}"


def _fps(trial: Trial) -> str:
    return f"{trial.measurement.throughput_fps:.4g} frames/s" if trial.measurement.can_run else "cannot run"
