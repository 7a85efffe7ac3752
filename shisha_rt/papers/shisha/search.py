"""What all rivals share: counting, stopping, and keeping the best plan measured.

A rival says only where to look next. Wrapped in a `Search` it is a `Tuner` that the one loop (`planner/loop.py`)
runs against any evaluator, and that ends with the best plan measured, wherever the rival itself has wandered.

Rivals draw from the generator that they were given, so the same search again needs a generator in the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

S = TypeVar("S")


class Rival(Protocol[S]):
    """A rival search. Frozen but for its random generator: what changes is in the state `S`."""

    def init(self) -> tuple[S, Proposal]:
        """The first plan to measure."""
        ...

    def step(self, state: S, observation: Measurement) -> tuple[S, Proposal | str]:
        """The next plan, now that the last one has been measured; or, as text, why there is none.

        A final one ends the search, too.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limit:
    """No plan is measured after so many trials, or once trials have taken so much (virtual) time; None: no limit."""

    trials: int | None = None
    trial_time_s: float | None = None

    def reached(self, trials: int, trial_time_s: float) -> str | None:
        """Name of the limit that was reached, in words; None: neither was."""
        if self.trials is not None and trials >= self.trials:
            return f"the limit of {self.trials} trials is reached"
        if self.trial_time_s is not None and trial_time_s >= self.trial_time_s:
            return f"the limit of {self.trial_time_s:g} s of trials is reached"
        return None


@dataclass(frozen=True, slots=True)
class Searched(Generic[S]):
    """`at` is being measured; `best` was measured as `best_measured`, which is None before the first measurement.

    `trials` and `trial_time_s` count what has been measured, and the set-up.
    """

    state: S
    at: Plan
    trials: int
    trial_time_s: float
    best: Plan
    best_measured: Measurement | None


@dataclass(frozen=True, slots=True)
class Search(Generic[S]):
    """A rival as a `Tuner`. `setup_s` is the (virtual) time that passes before its first trial."""

    rival: Rival[S]
    limit: Limit
    setup_s: float = 0.0

    def init(self) -> tuple[Searched[S], Proposal]:
        """The rival's first plan, which is measured whatever the limit: some plan must be kept."""
        state, proposal = self.rival.init()
        plan = proposal.plan
        return Searched(state, plan, trials=0, trial_time_s=self.setup_s, best=plan, best_measured=None), proposal

    def step(self, progress: Searched[S], observation: Measurement) -> tuple[Searched[S], Proposal]:
        """The rival's next plan; at a limit, or where the rival ends, the best plan for good."""
        progress = _judged(progress, observation)
        why = self.limit.reached(progress.trials, progress.trial_time_s)
        if why is not None:
            return progress, _final(progress, why)
        state, proposed = self.rival.step(progress.state, observation)
        if isinstance(proposed, str):
            return replace(progress, state=state), _final(progress, proposed)
        if proposed.final:
            return replace(progress, state=state), proposed
        return replace(progress, state=state, at=proposed.plan), proposed


def _judged(progress: Searched[S], observation: Measurement) -> Searched[S]:
    counted = replace(progress, trials=progress.trials + 1, trial_time_s=progress.trial_time_s + observation.took_s)
    if progress.best_measured is None or observation.is_better_than(progress.best_measured):
        return replace(counted, best=progress.at, best_measured=observation)
    return counted


def _final(progress: Searched[S], why: str) -> Proposal:
    return Proposal(progress.best, f"best of {progress.trials} trials; {why}", final=True)
