"""What all rivals share: counting, stopping, and keeping the best plan measured.

A rival only chooses the next plan. Wrapped in a `Search` it is a `Tuner` for the search loop (`planner/loop.py`) and
any evaluator. Its result is the best plan measured, wherever the rival ended, unless the rival names its own result (a
final proposal).

Rivals use the random generator that they were given, so repeating a search needs a generator in the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

S = TypeVar("S")


class Rival(Protocol[S]):
    """A rival search. Immutable except for its random generator: all that changes is in the state `S`."""

    def init(self) -> tuple[S, Proposal]:
        """The first plan to measure."""
        ...

    def step(self, state: S, observation: Measurement) -> tuple[S, Proposal | str]:
        """The next plan, after the last one has been measured; or, as text, the reason why there is none.

        A final proposal ends the search, too, with its plan as the result.
        """
        ...


MOST_TIMELESS: Final = 5000


@dataclass(frozen=True, slots=True)
class Limit:
    """The most trials, and the (virtual) seconds of trials after which no further plan is measured; None: no limit.

    Trials of plans that cannot run take no time: a search with a limit of time also ends after `MOST_TIMELESS` of them
    in a row.
    """

    trials: int | None = None
    trial_time_s: float | None = None

    def reached(self, trials: int, trial_time_s: float, timeless: int) -> str | None:
        """Which limit was reached, in words; None: none was. `timeless`: how many of the newest took no time."""
        if self.trials is not None and trials >= self.trials:
            return f"the limit of {self.trials} trials is reached"
        if self.trial_time_s is not None and trial_time_s >= self.trial_time_s:
            return f"the limit of {self.trial_time_s:g} s of trials is reached"
        if self.trial_time_s is not None and timeless >= MOST_TIMELESS:
            return f"the last {timeless} trials took no time, as those of plans that cannot run do"
        return None


@dataclass(frozen=True, slots=True)
class Searched(Generic[S]):
    """`at` is being measured; `best` has the measurement `best_measured`, None before the first measurement.

    `trials`: number of measurements so far; `trial_time_s`: their time, with the set-up; `timeless`: how many of the
    newest in a row took no time.
    """

    state: S
    at: Plan
    trials: int
    trial_time_s: float
    best: Plan
    best_measured: Measurement | None
    timeless: int = 0


@dataclass(frozen=True, slots=True)
class Search(Generic[S]):
    """A rival as a `Tuner`. `setup_s` is the (virtual) time that passes before its first trial."""

    rival: Rival[S]
    limit: Limit
    setup_s: float = 0.0

    def init(self) -> tuple[Searched[S], Proposal]:
        """The rival's first plan. It is measured whatever the limit, as a search must have a result."""
        state, proposal = self.rival.init()
        plan = proposal.plan
        return Searched(state, plan, trials=0, trial_time_s=self.setup_s, best=plan, best_measured=None), proposal

    def step(self, progress: Searched[S], observation: Measurement) -> tuple[Searched[S], Proposal]:
        """The rival's next plan; at a limit, or when the rival has none, the best plan as final proposal."""
        progress = _judged(progress, observation)
        why = self.limit.reached(progress.trials, progress.trial_time_s, progress.timeless)
        if why is not None:
            return progress, _final(progress, why)
        state, proposed = self.rival.step(progress.state, observation)
        if isinstance(proposed, str):
            return replace(progress, state=state), _final(progress, proposed)
        if proposed.final:
            return replace(progress, state=state), proposed
        return replace(progress, state=state, at=proposed.plan), proposed


def _judged(progress: Searched[S], observation: Measurement) -> Searched[S]:
    counted = replace(
        progress,
        trials=progress.trials + 1,
        trial_time_s=progress.trial_time_s + observation.took_s,
        timeless=0 if observation.took_s else progress.timeless + 1,
    )
    if progress.best_measured is None or observation.is_better_than(progress.best_measured):
        return replace(counted, best=progress.at, best_measured=observation)
    return counted


def _final(progress: Searched[S], why: str) -> Proposal:
    return Proposal(progress.best, f"best of {progress.trials} trials; {why}", final=True)
