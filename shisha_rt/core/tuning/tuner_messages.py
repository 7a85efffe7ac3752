"""Messages between the daemon and its tuner's process. A run is one search; a new run replaces the one before."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.process.codec import Codec


class StoredCosts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Costs of each layer on each place. `text`: a COSTS.json. The first message to each tuner process, if costs are
    known; also sent whenever they have been measured, which ends a search that runs.

    `needs` (layers,): the earlier layers from which each reads a tensor; empty if not known.
    """

    text: bytes
    needs: tuple[frozenset[int], ...] = ()


class StoredProcessors(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Costs from which schemes of partitions make plans. The first message to each tuner process, if a scheme is used.

    `packed`: MessagePack of a `ProcessorCosts`, which the daemon passes on unread.
    """

    packed: bytes


class PlaceNow(msgspec.Struct, frozen=True, array_like=True):
    """A place that can be used. `slower`: factor by which its layers now take longer than in the stored costs."""

    name: str
    rank: int
    slower: float


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Search from `start` with `strategy`. `order`: the places in the order in which Algorithm 2 walks.

    `replicate`: plans may have copies and teams. `latency_s`: the longest unloaded latency of a plan for energy.
    """

    run: int
    strategy: str
    start: Plan
    places: tuple[PlaceNow, ...]
    order: tuple[str, ...]
    legal_cuts: tuple[int, ...] | None
    alpha: int
    balance: str
    replicate: bool = False
    objective: Objective = "throughput"
    latency_s: float = math.inf


class Measured(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measurement of the last plan tried; infinite times if it could not go live."""

    run: int
    measurement: Measurement


class Break(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stop the run."""

    run: int


ToTuner: TypeAlias = StoredCosts | StoredProcessors | Begin | Measured | Break


class Try(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measure a plan. `lower_bound_s`: no plan takes fewer seconds, as far as the search knows; None: unknown."""

    run: int
    plan: Plan
    reason: str
    lower_bound_s: float | None = None


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The search has ended with this plan."""

    run: int
    plan: Plan
    reason: str
    lower_bound_s: float | None = None


FromTuner: TypeAlias = Try | Finished

TO_TUNER: Final[Codec[ToTuner]] = Codec(ToTuner)
FROM_TUNER: Final[Codec[FromTuner]] = Codec(FromTuner)
