"""Tuning's proposals that are on their way: what each was made for, and by which search."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

ATTEMPTS: Final = 3
"""To make a plan live, before it counts as one that cannot run."""


class Purpose(Enum):
    """What a plan was proposed for."""

    TRIAL = "to be measured"
    STAY = "the best of a search, to stay"
    PAUSE = "the best of a search that was paused"
    SERVE = "a plan of the daemon's own"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A proposal that is not settled yet."""

    purpose: Purpose
    run: int
    attempts: int
