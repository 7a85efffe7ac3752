"""What comparisons of live plans have found out, and what is still to be compared.

Results hold for the places that were available. A daemon that starts with an earlier run's best plan compares nothing
but plans with batches, which are compared once more when many frames are in flight. Plans that were compared while
other programs used the cores, in an earlier run too, are compared again once these are gone.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from shisha_rt.core.tuning.awaited_load import Pauses
from shisha_rt.core.tuning.candidates import Candidate, candidates
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.duel import Duel
from shisha_rt.core.tuning.instructions import TuningOutbox
from shisha_rt.core.tuning.recalibration import OthersShare, Recalibration
from shisha_rt.core.tuning.state import Serving
from shisha_rt.costs.engine_trials import usable
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, OBJECTIVES, Objective

FILLS: Final = 2
"""Full batches in flight for each team, from which on their gain can be measured: one being computed, one waiting."""
WORTH_SEARCHING: Final = 1.15
"""If the best candidate that can be cut is slower than the best of all by more than this, no cuts are searched."""


@dataclass(frozen=True, slots=True)
class Winner:
    """What comparing candidates on some places showed. `cuttable`: the best that can be cut, `behind` times as slow as
    the best of all.

    `others_ratio`: the share of the cores that other programs used while two plans were compared, of all such pairs the
    largest. A mean over each pair's time: the short start of a program is no reason to compare again.
    """

    cuttable: Plan | None
    behind: float
    others_ratio: float = 0.0


@dataclass(slots=True)
class Contest:
    """Candidates for `objective` over the places of `over`. `serving`: the best so far, called `name`. `left`: those
    still to be compared; `known`: their plans, and those compared before. `value`: speed of each judged plan, relative
    to the plan that served first. `filled`: plans with batches that were judged while enough frames were in flight to
    fill these. `in_flight`: the most frames in flight during the present challenger's duel. `tried_before`: how many
    plans had been judged when the comparison was last resumed. `others_ratio`: as in `Winner`, so far. `is_whole`: it
    is of all candidates.
    """

    objective: Objective
    over: tuple[str, ...]
    serving: Plan
    name: str
    left: deque[Candidate] = field(default_factory=deque)
    of: int = 1
    challenger: Candidate | None = None
    epochs: tuple[int, int] = (0, 0)
    duel: Duel | None = None
    value: dict[Plan, float] = field(default_factory=dict)
    known: set[Plan] = field(default_factory=set)
    filled: set[Plan] = field(default_factory=set)
    in_flight: int = 0
    tried_before: int = 0
    others_ratio: float = 0.0
    is_whole: bool = False

    @property
    def tried(self) -> int:
        """How many candidates have been judged, the first included."""
        return self.of - len(self.left) - (self.challenger is not None)


class Findings:
    """`awaited`: the results of engine trials are to come."""

    def __init__(self, serving: Serving, choice: Choice, outbox: TuningOutbox) -> None:
        self.awaited = choice.tries_engines and choice.tried is None
        self.pauses = Pauses()
        self.others = OthersShare()  # since the search, or the comparison of two plans, began
        self._serving = serving
        self._choice = choice
        self._outbox = outbox
        self._winners: dict[tuple[Objective, tuple[str, ...]], Winner] = {}
        self._recalibrations = {objective: Recalibration() for objective in EVERY_OBJECTIVE}
        self._reasons: dict[Objective, str] = {}  # of objectives whose plans are to be compared again
        self._kept: dict[tuple[Objective, tuple[str, ...]], bool] = {}  # whether an earlier run has left a best plan
        self._filled: set[tuple[tuple[str, ...], Plan]] = set()  # plans with batches, compared while these were full

    @property
    def is_wanted(self) -> bool:
        """Whether candidates are to be tried, as soon as they are known and their load comes."""
        return self._choice.compares and (self.awaited or bool(self.due))

    @property
    def engines(self) -> tuple[StageEngine, ...]:
        """Engines that plans may use, by their trials."""
        tried = self._choice.tried
        known = (DEFAULT_ENGINE,) if tried is None else usable(tried)
        return tuple(engine for engine in self._choice.engines if engine != "openvino" or engine in known)

    @property
    def due(self) -> tuple[Objective, ...]:
        """Objectives for which candidates are to be tried now; the current objective comes first."""
        choice, over = self._choice, self._serving.available
        if not choice.compares or self.awaited or not over:
            return ()
        wanted = [choice.objective, *(OBJECTIVES if choice.auto else ())]
        return tuple(
            objective
            for objective in dict.fromkeys(wanted)
            if not self.is_known(objective, over) and not self.pauses.is_on(objective, self._outbox.now_s)
            if self.others.last <= DISTURBED or objective not in self._reasons
        )

    def _is_kept(self, objective: Objective, over: tuple[str, ...]) -> bool:
        """Whether an earlier run has left its best plan over these places."""
        key = objective, over
        if key not in self._kept:
            best = self._choice.best(over, objective)
            self._kept[key] = best is not None
            if best is not None:
                self._recalibrations[objective].measured(best.others_ratio)
        return self._kept[key]

    def winner(self, objective: Objective) -> Winner | None:
        """The best candidate over the places that are available; None if it is not known."""
        return self._winners.get((objective, self._serving.available))

    def is_known(self, objective: Objective, over: tuple[str, ...]) -> bool:
        """Whether the best plan over these places is known, from this run or an earlier one."""
        return (objective, over) in self._winners or self._is_kept(objective, over)

    def search_ended(self, objective: Objective, over: tuple[str, ...], others_ratio: float) -> float:
        """Note that a search of this run is about to keep its best plan: candidates may still have to be compared.

        `others_ratio`: the share of the cores that other programs used meanwhile; return it, or that of the comparison
        with candidates, whichever is larger.
        """
        self._kept.setdefault((objective, over), False)
        others_ratio = max(others_ratio, self.others_ratio(objective))
        winner = self._winners.get((objective, over))
        if winner is not None:
            self._winners[objective, over] = replace(winner, others_ratio=others_ratio)
        self._recalibrations[objective].measured(others_ratio)
        return others_ratio

    def reason(self, objective: Objective) -> str | None:
        """Why plans are compared again; None for the first time."""
        return self._reasons.get(objective)

    def batches_due(self, in_flight: int) -> list[Candidate]:
        """Plans with batches that were never compared while enough frames were in flight to fill these, as there are
        now: with fewer, batches gain less or nothing. Also after a start with an earlier run's plan, as that run may
        have had few frames in flight.
        """
        choice, live, over = self._choice, self._serving.live, self._serving.available
        pauses = self.pauses.is_on("throughput", self._outbox.now_s)
        if self.awaited or pauses or live is None or choice.most_batch == 1:
            return []
        return [
            candidate
            for candidate in candidates(choice, over, "throughput", self.engines)
            if has_batches(candidate.plan) and frames_to_fill(candidate.plan) <= in_flight
            if candidate.plan != live[1] and (over, candidate.plan) not in self._filled
            if choice.fits(candidate.plan, over)
        ]

    def note(self, compared: Contest) -> None:
        """Note the results of a comparison."""
        objective, over = key = compared.objective, compared.over
        self._filled |= {(over, plan) for plan in compared.filled}
        others_ratio = compared.others_ratio
        if compared.is_whole:
            self._reasons.pop(objective, None)
        else:
            others_ratio = max(others_ratio, self.others_ratio(objective))
        self._recalibrations[objective].measured(others_ratio)
        gain = compared.value[compared.serving]
        cuttable = {plan: value for plan, value in compared.value.items() if _is_cuttable(plan)}
        best = max(cuttable, key=lambda plan: cuttable[plan], default=None)
        if self._kept.get(key):  # cuts have been searched already
            self._winners[key] = Winner(None, math.inf, others_ratio)
        elif best is not None:
            self._winners[key] = Winner(best, gain / cuttable[best], others_ratio)
        else:
            before = self._winners.get(key, Winner(None, math.inf))
            self._winners[key] = Winner(before.cuttable, before.behind * gain, others_ratio)

    def drop_disturbed(self) -> list[Objective]:
        """Drop the results for objectives whose plans were compared beside other programs, if these are gone now;
        return the objectives. They are compared again as soon as frames come while the others leave the cores.
        """
        again = [each for each, when in self._recalibrations.items() if when.look(self._outbox.now_s, self.others.last)]
        for objective in again:
            share = f"{self.others_ratio(objective):.0%} of the cores"
            self._reasons[objective] = f"other programs used {share} the last time"
            self._winners = {key: winner for key, winner in self._winners.items() if key[0] != objective}
            self._kept |= {key: False for key in self._kept if key[0] == objective}
            if objective == "throughput":
                self._filled.clear()
        return again

    def others_ratio(self, objective: Objective) -> float:
        """The share of the cores that other programs used while the best plan was compared with others (`Winner`)."""
        known = self.winner(objective) or self._choice.best(self._serving.available, objective)
        return 0.0 if known is None else known.others_ratio

    def forget(self) -> None:
        """Drop all results, as the machine has changed."""
        self._winners.clear()
        self._filled.clear()
        self._kept = dict.fromkeys(self._kept, False)
        self._recalibrations = {objective: Recalibration() for objective in EVERY_OBJECTIVE}
        self._reasons.clear()
        self.pauses.forget()


def frames_to_fill(plan: Plan) -> int:
    """Frames in flight from which on the gain of the plan's batches can be judged."""
    return max(FILLS * stage.batch * len(stage.teams) for stage in plan.stages)


def has_batches(plan: Plan) -> bool:
    """Whether frames share a run in one of the plan's stages."""
    return any(stage.batch > 1 for stage in plan.stages)


def _is_cuttable(plan: Plan) -> bool:
    return not has_batches(plan) and all(stage.engine == DEFAULT_ENGINE for stage in plan.stages)
