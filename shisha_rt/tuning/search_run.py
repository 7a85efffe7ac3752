"""One search for a better plan, as the daemon knows it: where, how, and how far it has come."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.tuning import tuner_messages as tm


class SearchedPlace(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def speed(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How plans are searched; of Algorithm 2 alone, alpha and how it chooses who takes a layer."""

    strategy: str
    alpha: int
    balance: str


@dataclass(slots=True)
class Run:
    """One search, which began under `epoch`. `trials` counts plans measured; `best` is the best of them so far.

    `lower_bound_s`: no plan is faster as far as the search knows.
    """

    number: int
    epoch: int = 0
    trials: int = 0
    trying: tm.Try | None = None
    best: tuple[Plan, Measurement] | None = None
    lower_bound_s: float | None = None
    began_s: float = field(default_factory=time.monotonic)
