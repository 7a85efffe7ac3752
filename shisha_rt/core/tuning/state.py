"""States of tuning, purposes of its proposals, and what tuning and placing may ask of the lifecycle."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from shisha_rt.core.lifecycle.events import PlanProposed
from shisha_rt.plan.plan import Plan


class Serving(Protocol):
    """What planning may ask of the lifecycle; `Lifecycle` says what each of them is."""

    @property
    def live(self) -> tuple[int, Plan] | None: ...
    @property
    def available(self) -> tuple[str, ...]: ...
    @property
    def changing(self) -> bool: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def beside(self) -> tuple[int, Plan] | None: ...
    @property
    def proposals(self) -> Collection[PlanProposed]: ...


ATTEMPTS: Final = 3
"""How often the daemon tries to make a plan live before the plan counts as one that cannot run."""


class Purpose(Enum):
    """Why tuning proposes a plan."""

    TRIAL = "to be measured"
    STAY = "the best of a search, to stay"
    PAUSE = "the best of a search that was paused"
    SERVE = "a plan of the daemon's own"
    SWITCH = "the best for another objective, as the load asks"
    COMPARE = "to be compared with the one that serves"
    AHEAD = "to be loaded beside the one that serves, as the load may ask for it"


@dataclass(frozen=True, slots=True)
class Intent:
    """The ticket of tuning's proposals: the purpose, the number of the search, and the attempts left, with this one."""

    purpose: Purpose
    run: int
    attempts: int = 1


class Profiles(Enum):
    """Whether costs of layers are known. Costs not known at the start are measured while the daemon serves."""

    UNWANTED = "unwanted"
    COMING = "coming"
    KNOWN = "known"
    FAILED = "failed"


class State(Enum):
    """What the tuner is doing. The metric `shisha_tuner_state` has these values, and `WAITING`.

    PROFILING: a search waits for the costs that it needs. NO_COSTS: costs cannot be measured, so no search begins.
    COMPARING: candidates are compared, or will be as soon as there is load.
    """

    OFF = "off"
    PROFILING = "profiling"
    NO_COSTS = "no_costs"
    PAUSED = "paused"
    TUNING = "tuning"
    SETTLING = "settling"
    WATCHING = "watching"
    COMPARING = "comparing"


WAITING: Final = "waiting"
