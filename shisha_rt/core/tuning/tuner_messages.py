"""Every message between the daemon and its tuner's process. A run is one search; a new one replaces the last."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.process.codec import Codec


class StoredCosts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is known of each layer on each place before anything has run: a COSTS.json. Sent once, at the start.

    `needs` (layers,): the earlier layers from which each reads a tensor; empty: it is not known.
    """

    text: bytes
    needs: tuple[frozenset[int], ...] = ()


class StoredProcessors(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What schemes of partitions go by, before anything has run. Sent once, at the start.

    `packed`: MessagePack of a `ProcessorCosts`, which a daemon hands on unread.
    """

    packed: bytes


class PlaceNow(msgspec.Struct, frozen=True, array_like=True):
    """A place that can be used; `slower` is by how much more than in the stored costs its layers take now."""

    name: str
    rank: int
    slower: float


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Search from `start` as `strategy` does; `order`: the places of the walk's positions.

    `replicate`: plans may have copies and teams. `latency_s`: in a plan for energy a frame by itself takes no longer.
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
    """What the last plan tried did; infinite times if it could not be made live."""

    run: int
    measurement: Measurement


class Break(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Give the run up."""

    run: int


ToTuner: TypeAlias = StoredCosts | StoredProcessors | Begin | Measured | Break


class Try(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measure a plan. `lower_bound_s`: no plan can be faster, as far as the search knows; None: it does not know."""

    run: int
    plan: Plan
    reason: str
    lower_bound_s: float | None = None


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The plan to keep."""

    run: int
    plan: Plan
    reason: str
    outcome: str
    lower_bound_s: float | None = None


FromTuner: TypeAlias = Try | Finished

TO_TUNER: Final[Codec[ToTuner]] = Codec(ToTuner)
FROM_TUNER: Final[Codec[FromTuner]] = Codec(FromTuner)
