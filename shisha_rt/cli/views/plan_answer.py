"""What `plan` found: as the object of `--json`, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from shisha_rt.cli.views.picture import Box, draw, span
from shisha_rt.outcome import Outcome
from shisha_rt.pipeline.loop import Result, Trial
from shisha_rt.pipeline.seed import Ranked
from shisha_rt.pipeline.space import explored_fraction, plan_count
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs

_SHOWN_MOVES: Final = 10


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """What a strategy is given, wherever it came from."""

    weights: Sequence[float]
    places: Sequence[Ranked]
    legal_cuts: frozenset[int]
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan, which may have no stages, and what is known of it; `reason` says why it is none that can run.

    `services_s` has an entry for each stage, None where not known. `stage_count` is the seed's, as tuning may have
    emptied a stage; `tuned` is None where nothing was tuned.
    """

    problem: PlanProblem
    plan: Plan
    stage_count: int
    services_s: Sequence[float | None]
    outcome: Outcome
    reason: str | None
    trials: int = 0
    trial_time_s: float = 0.0
    tuned: Result | None = None
    lower_bound_s: float | None = None
    latency_proven: bool = False

    def as_object(self) -> dict[str, object]:
        """The answer of `--json`: all keys, always."""
        bottleneck_s = self.bottleneck_s
        space_size = plan_count(len(self.problem.legal_cuts), len(self.problem.places), self.stage_count)
        return {
            "stages": written(self.plan, service_s=self.services_s),
            "unused": self.unused,
            "bottleneck_s": bottleneck_s,
            "throughput_fps": 1 / bottleneck_s if bottleneck_s else None,
            "latency_s": None if bottleneck_s is None else math.fsum(s for s in self.services_s if s is not None),
            "latency_proven": self.latency_proven,
            "trials": self.trials,
            "trial_time_s": self.trial_time_s,
            # Decimal: Python refuses to print an int of more than 4,300 digits, which many places can reach.
            "space_size": str(Decimal(space_size)),
            "log10_space_size": math.log10(space_size),
            "explored_fraction": explored_fraction(self.trials, len(self.problem.weights), self.stage_count),
            "lower_bound_s": self.lower_bound_s,
            "outcome": self.outcome,
            "reason": self.reason,
        }

    @property
    def bottleneck_s(self) -> float | None:
        """None where no stage or not every stage's time is known."""
        known = [service_s for service_s in self.services_s if service_s is not None]
        return max(known) if known and len(known) == len(self.services_s) else None

    @property
    def unused(self) -> list[str]:
        return [place.name for place in self.problem.places if place.name not in self.plan.places]

    def in_words(self, width: int) -> str:
        """The picture, and where there was tuning, how it went and what it brought; or what is proven."""
        if not self.plan.stages:
            return "no plan"
        if self.lower_bound_s is not None:
            return f"{self.picture(width)}\n{self._proven(self.lower_bound_s)}"
        if self.tuned is None:
            return self.picture(width)
        return "\n".join([*_walk(self.tuned), self.picture(width), *_gain(self.tuned)])

    def _proven(self, lower_bound_s: float) -> str:
        if self.outcome is not Outcome.OPTIMAL:
            return f"not proven: only that no plan has a slowest stage of less than {lower_bound_s * 1e3:.4g} ms"
        least = ", and none as fast has a lower latency" if self.latency_proven else ""
        return f"proven: no plan is faster{least}"

    def picture(self, width: int) -> str:
        """One box for each stage with its share of the weight; the slowest is marked where times are known."""
        whole = sum(self.problem.weights)
        slowest_s = self.bottleneck_s
        boxes = []
        for stage, service_s in zip(self.plan.stages, self.services_s, strict=True):
            weight = sum(self.problem.weights[stage.first : stage.last + 1])
            share = weight / whole if whole else 0.0
            time = "" if service_s is None else f", {service_s * 1e3:.4g} ms"
            text = span(stage.first, stage.last) + time
            is_slowest = service_s is not None and service_s == slowest_s
            boxes.append(Box(stage.place, text, f"{share:5.1%}", share, is_slowest))
        unused = f"\nunused: {', '.join(self.unused)}" if self.unused else ""
        return draw(boxes, width) + unused


def _walk(tuned: Result) -> list[str]:
    """The first plan, and the last moves with what became of each."""
    first, *moves = tuned.trials
    shown = moves[-_SHOWN_MOVES:]
    left_out = len(moves) - len(shown)
    return [
        f"start {first.plan}: {_fps(first)}",
        *([f"      ({left_out} earlier moves)"] if left_out else []),
        *(f"{move.number:4}  {move.reason}: {_fps(move)}{', best so far' * move.is_best}" for move in shown),
    ]


def _gain(tuned: Result) -> list[str]:
    before, after = tuned.trials[0].measurement, tuned.measurement
    gain = f", {before.bottleneck_s / after.bottleneck_s:.3g} times" if before.can_run and after.bottleneck_s else ""
    return [
        f"kept: {tuned.reason}",
        f"throughput: {before.throughput_fps:.4g} fps before, {after.throughput_fps:.4g} fps after{gain}",
    ]


def _fps(trial: Trial) -> str:
    return f"{trial.measurement.throughput_fps:.4g} fps" if trial.measurement.can_run else "cannot run"
