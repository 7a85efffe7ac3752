"""The one loop that tunes: ask the tuner for a plan, have it measured, tell the tuner.

Tuners only propose plans. A tuner is a record with `init` and `step`; all that it learns is in a state that it returns,
so it can be paused, replayed, or moved to another process between any two steps. The evaluator may be a file of costs,
a simulation, or a daemon that serves meanwhile: neither side knows the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shisha_rt.outcome import Outcome
from shisha_rt.plan.evaluator import Evaluator, Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective

S = TypeVar("S")


class Tuner(Protocol[S]):
    """Searches for a plan. A tuner is immutable: all that changes is in the state `S`, an immutable value, too."""

    def init(self) -> tuple[S, Proposal]:
        """The first plan to measure."""
        ...

    def step(self, state: S, observation: Measurement) -> tuple[S, Proposal]:
        """The next proposal, after the last proposal's plan has been measured."""
        ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One plan measured, `number` counted from 0; `is_best`: better, beyond the noise, than all before it."""

    number: int
    plan: Plan
    reason: str
    measurement: Measurement
    is_best: bool


@dataclass(frozen=True, slots=True)
class Result:
    """`solution`: the plan to keep. `measurement`: its last one. `reason`: why the search ended with it.

    `outcome` is infeasible if no plan tried could run. Measurements prove nothing: `lower_bound_s` is that of the final
    proposal, by the tuner's costs; None: it has none.
    """

    solution: Plan
    measurement: Measurement
    outcome: Outcome
    reason: str
    trials: tuple[Trial, ...]
    lower_bound_s: float | None

    @property
    def trial_time_s(self) -> float:
        return math.fsum(trial.measurement.took_s for trial in self.trials)

    @property
    def trials_to_best(self) -> int:
        """Trials up to and with the last gain: what Shisha's figures call convergence."""
        return 1 + max(trial.number for trial in self.trials if trial.is_best)

    @property
    def time_to_best_s(self) -> float:
        return math.fsum(trial.measurement.took_s for trial in self.trials[: self.trials_to_best])


def run(
    tuner: Tuner[S],
    evaluator: Evaluator,
    on_trial: Callable[[Trial], None] | None = None,
    objective: Objective = "throughput",
) -> Result:
    """Tune until the tuner makes its final proposal; `on_trial` is called with each trial when it is done.

    `objective`: by which a trial is better than those before it.

    Raises what the evaluator raises: so a search can be stopped from outside.
    """
    trials: list[Trial] = []
    measured: dict[Plan, Measurement] = {}
    best: Measurement | None = None
    state, proposal = tuner.init()
    while not proposal.final:
        measurement = evaluator.measure(proposal)
        is_best = best is None or measurement.is_better_than(best, objective)
        best = measurement if best is None or is_best else best
        trial = Trial(len(trials), proposal.plan, proposal.reason, measurement, is_best)
        trials.append(trial)
        measured[proposal.plan] = measurement
        if on_trial is not None:
            on_trial(trial)
        state, proposal = tuner.step(state, measurement)
    kept = measured[proposal.plan]
    return Result(
        solution=proposal.plan,
        measurement=kept,
        outcome=Outcome.FEASIBLE if kept.can_run else Outcome.INFEASIBLE,
        reason=proposal.reason,
        trials=tuple(trials),
        lower_bound_s=proposal.lower_bound_s,
    )
