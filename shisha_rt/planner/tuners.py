"""The strategies that tune by trials, behind one call, `tuner_of`, with a strategy's name and a `SearchTask`.

They share the problem (`Costs`), the `Goal` and the check (`verify.py`) with planners without trials, as `exact`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from shisha_rt.costs.costs import Costs
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.loop import Tuner
from shisha_rt.planner.seed import Ranked
from shisha_rt.planner.strategies import DEFAULT_ALPHA, DEFAULT_BALANCE, Balance
from shisha_rt.planner.tune import shisha
from shisha_rt.studies import study


@dataclass(frozen=True, slots=True, eq=False)
class SearchTask:
    """A search from `start`, a plan that passes `verify.py`. Each strategy reads only the fields it needs.

    `costs` of layers: used by all but Shisha's walk; `needs` (layers,): see `guided`. `legal_cuts`, `order`, `alpha`
    and `balance`: see `shisha`. `rng` and `trial_time_s` (a limit): used by Shisha's rivals, which try plans of at most
    as many stages as `start`.
    """

    start: Plan
    places: Sequence[Ranked]
    goal: Goal = field(default_factory=Goal)
    costs: Costs | None = None
    needs: tuple[frozenset[int], ...] = ()
    legal_cuts: Collection[int] | None = None
    order: Sequence[str] | None = None
    alpha: int = DEFAULT_ALPHA
    balance: Balance = DEFAULT_BALANCE
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    trial_time_s: float | None = None

    @property
    def known_costs(self) -> Costs:
        """The costs. Raises ValueError where there are none."""
        if self.costs is None:
            raise ValueError("a search that goes by costs: expected what layers cost")
        return self.costs


def tuner_of(strategy: str, task: SearchTask) -> Tuner[Any]:
    """The tuner of a strategy (one of `LIVE` or `RIVALS`). Raises BadInput for options that do not fit."""
    if strategy == "guided":
        return guided(task.known_costs, task.start, task.goal, needs=task.needs)
    if strategy == "shisha":
        return shisha(
            task.start,
            task.places,
            alpha=task.alpha,
            balance=task.balance,
            legal_cuts=task.legal_cuts,
            order=task.order,
        )
    rival: Tuner[Any] = study("rival_tuner")(strategy, task)
    return rival
