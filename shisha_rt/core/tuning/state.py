"""What planning asks of the lifecycle, what it proposes plans for, and what the tuner can be doing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from shisha_rt.core.lifecycle.events import PlanProposed
from shisha_rt.plan.plan import Plan


class Serving(Protocol):
    """What planning may ask of the lifecycle."""

    @property
    def live(self) -> tuple[int, Plan] | None:
        """The epoch that new frames take, and its plan."""
        ...

    @property
    def available(self) -> tuple[str, ...]:
        """The places that a plan may use."""
        ...

    @property
    def changing(self) -> bool:
        """Whether frames of another epoch than the live one are still under way."""
        ...

    @property
    def beside(self) -> int | None:
        """The epoch that is compared with the live one."""
        ...

    @property
    def proposals(self) -> Collection[PlanProposed]:
        """All that have not ended, whoever made them."""
        ...


class Searching(Protocol):
    """What placing may ask of tuning: not to be disturbed."""

    @property
    def searching(self) -> bool: ...


ATTEMPTS: Final = 3
"""To make a plan live, before it counts as one that cannot run."""


class Purpose(Enum):
    """What tuning proposes a plan for."""

    TRIAL = "to be measured"
    STAY = "the best of a search, to stay"
    PAUSE = "the best of a search that was paused"
    SERVE = "a plan of the daemon's own"
    SWITCH = "the best for another objective, as the load asks"
    COMPARE = "to be compared with the one that serves"


@dataclass(frozen=True, slots=True)
class Intent:
    """The ticket of tuning's proposals: what for, by which search, and the attempts left, this one included."""

    purpose: Purpose
    run: int
    attempts: int = 1


class Profiles(Enum):
    """What is known of what layers cost. Unless it is known at the start, it is measured while the daemon serves."""

    UNWANTED = "unwanted"
    COMING = "coming"
    KNOWN = "known"
    FAILED = "failed"


class State(Enum):
    """What the tuner is doing. `shisha_tuner_state` has these names, and `WAITING`.

    A search that begins with costs waits for them in PROFILING, and in NO_COSTS it waits for nothing any more. While
    candidates are tried, or are to be as soon as their load comes, it is COMPARING.
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
