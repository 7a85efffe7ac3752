"""What comparisons of live plans have found out, and what is still to be compared.

Results hold for the places that were available. A daemon that starts with an earlier run's best plan compares nothing
but plans with batches, which are compared once more when many frames are in flight. Plans that were compared while
other programs used the cores, in an earlier run too, are compared again once these are gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from shisha_rt.core.tuning.awaited_load import Pauses
from shisha_rt.core.tuning.candidates import Candidate, candidates, frames_to_fill, has_batches
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.instructions import PlanningOutbox
from shisha_rt.core.tuning.recalibration import OthersShare, Recalibration
from shisha_rt.core.tuning.state import Profiles, Serving
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.plan.engine import DEFAULT_ENGINE
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, OBJECTIVES, Objective

if TYPE_CHECKING:
    from shisha_rt.core.tuning.contest import Contest

WORTH_SEARCHING: Final = 1.15
"""If the best candidate that can be cut is slower than the best of all by more than this, no cuts are searched."""

_Key: TypeAlias = tuple[Objective, tuple[str, ...]]  # and the places that were available


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

    @property
    def worth_cutting(self) -> Plan | None:
        """The best that can be cut, if it is nearly as fast as the best of all."""
        return self.cuttable if self.behind <= WORTH_SEARCHING else None


class Findings:
    """`awaited`: the results of engine trials are to come."""

    def __init__(self, serving: Serving, choice: Choice, outbox: PlanningOutbox) -> None:
        self.awaited = choice.tries_engines and choice.tried is None
        self.pauses = Pauses()
        self.others = OthersShare()  # since the search, or the comparison of two plans, began
        self._serving, self._choice, self._outbox = serving, choice, outbox
        self._winners: dict[_Key, Winner] = {}
        self._recalibrations = {objective: Recalibration() for objective in EVERY_OBJECTIVE}
        self._reasons: dict[Objective, str] = {}  # of objectives whose plans are to be compared again
        self._kept: dict[_Key, bool] = {}  # whether an earlier run has left a best plan
        self._filled: set[tuple[tuple[str, ...], Plan]] = set()  # plans with batches, compared while these were full
        self._searched: set[_Key] = set()  # cuts
        self._decided: set[_Key] = set()  # the best plan was measured in this run

    @property
    def is_wanted(self) -> bool:
        """Whether candidates are to be tried, as soon as they are known and their load comes."""
        return self._choice.compares and (self.awaited or bool(self.due))

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

    @property
    def is_decided(self) -> bool:
        """Whether the best plan for the present objective and places was measured, and the measurement still holds."""
        return (self._choice.objective, self._serving.available) in self._decided

    @property
    def cuts_due(self) -> Plan | None:
        """The candidate whose cuts are still to be searched; None: they have been, or cannot help, or lack costs."""
        objective, over = self._choice.objective, self._serving.available
        winner = self.winner(objective)
        if winner is None or (objective, over) in self._searched or self._choice.profiles is not Profiles.KNOWN:
            return None
        return winner.worth_cutting

    def search_begins(self) -> None:
        """Note that a search begins for the present objective and places, or would if costs were known."""
        self._searched.add((self._choice.objective, self._serving.available))
        self.others.restart()

    def decided(self, objective: Objective, over: tuple[str, ...], others_ratio: float) -> float:
        """Note that a search or a comparison of this run is about to keep its best plan: candidates may still have to
        be compared.

        `others_ratio`: the share of the cores that other programs used meanwhile; return it, or that of the comparison
        with candidates, whichever is larger.
        """
        self._decided.add((objective, over))
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
            for candidate in candidates(choice, over, "throughput")
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

    def drop_disturbed(self) -> None:
        """Drop the results for objectives whose plans were compared beside other programs, if these are gone now. They
        are compared again as soon as frames come while the others leave the cores.
        """
        again = [each for each, when in self._recalibrations.items() if when.look(self._outbox.now_s, self.others.last)]
        for objective in again:
            share = f"{self.others_ratio(objective):.0%} of the cores"
            self._reasons[objective] = f"other programs used {share} the last time"
            self._winners = {key: winner for key, winner in self._winners.items() if key[0] != objective}
            self._kept |= {key: False for key in self._kept if key[0] == objective}
            self._searched = {key for key in self._searched if key[0] != objective}
            if objective == "throughput":
                self._filled.clear()

    def others_ratio(self, objective: Objective) -> float:
        """The share of the cores that other programs used while the best plan was compared with others (`Winner`)."""
        known = self.winner(objective) or self._choice.best(self._serving.available, objective)
        return 0.0 if known is None else known.others_ratio

    def forget(self) -> None:
        """Drop all results, as the machine has changed."""
        self._winners.clear()
        self._filled.clear()
        self._searched.clear()
        self._decided.clear()
        self._kept = dict.fromkeys(self._kept, False)
        self._recalibrations = {objective: Recalibration() for objective in EVERY_OBJECTIVE}
        self._reasons.clear()
        self.pauses.forget()


def _is_cuttable(plan: Plan) -> bool:
    return not has_batches(plan) and all(stage.engine == DEFAULT_ENGINE for stage in plan.stages)
