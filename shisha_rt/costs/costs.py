"""Seconds of each layer on each place, and from these the seconds and bytes of a stage.

Additive: a stage takes the sum of its layers' times and its entry cost, whatever runs beside it. On a place of another
host this sum is the time of computing alone; `links.py` adds the transfers there and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.links import CostTensor, Crossings, HostLink, Links
from shisha_rt.costs.room import held_bytes
from shisha_rt.costs.split_costs import SplitCosts

HANDOVER_S: Final = 300e-6
"""Hand-over between stages until it is measured: 0.2 to 0.4 ms on two slow cores (`benchmarks partitiontuner`)."""


@dataclass(frozen=True, slots=True)
class CostLayer:
    """`weight_bytes` is held while the layer's stage lives, `live_bytes` while the layer runs."""

    name: str
    weight: float
    weight_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class CostPlace:
    """`rank` 1 is the fastest class; `memory_bytes` None: no limit. `host`: another host that has the place, if any.

    `power_w`: watts while it computes, beyond what it draws idle; None: not known.
    """

    name: str
    rank: int
    memory_bytes: int | None
    host: str | None = None
    power_w: float | None = None

    @property
    def room_bytes(self) -> float:
        return math.inf if self.memory_bytes is None else self.memory_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CostTeam:
    """Places that compute together, the first as lead. `time_s` (layers,): seconds, nan where they cannot run it."""

    places: tuple[str, ...]
    time_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CostBatch:
    """Batches of `frames`. `time_s` (layers, places): seconds for each frame, nan where a batch cannot run."""

    frames: int
    time_s: Floats


@dataclass(frozen=True, eq=False)
class Costs:
    """`time_s` is (layers, places) seconds, nan where a place cannot run a layer.

    `transfer_s` is (layers - 1,) seconds: entry i is paid by the stage that starts at layer i+1, and is nan where
    layers i and i+1 cannot be separated. `teams`: known times of several places together (`team_costs.py`). `mixed`:
    whether a stage may have copies on unlike places: not if their devices differ. `splits`: how layers may be split,
    and times of shards. `tensors`: those that pass between layers; `links`: those to other hosts (`links.py`). A host
    without a link costs nothing to reach. `batches`: known times of batches, the smallest first.
    """

    layers: tuple[CostLayer, ...]
    places: tuple[CostPlace, ...]
    time_s: Floats
    transfer_s: Floats
    teams: tuple[CostTeam, ...] = ()
    mixed: bool = True
    splits: SplitCosts = field(default_factory=SplitCosts)
    tensors: tuple[CostTensor, ...] = ()
    links: tuple[HostLink, ...] = ()
    batches: tuple[CostBatch, ...] = ()

    @property
    def legal_cuts(self) -> frozenset[int]:
        return frozenset(int(cut) for cut in np.flatnonzero(~np.isnan(self.transfer_s)))

    def place_index(self, name: str) -> int:
        return self._index[name]

    @property
    def far(self) -> frozenset[str]:
        return frozenset(place.name for place in self.places if place.host)

    @cached_property
    def power_w(self) -> Mapping[str, float]:
        """Watts of each place while it computes; empty unless known for all places."""
        known = {place.name: place.power_w for place in self.places if place.power_w is not None}
        return known if len(known) == len(self.places) else {}

    @cached_property
    def link_of(self) -> Mapping[str, HostLink]:
        """Link of each place whose host has one, by the place's name."""
        by_host = {link.host: link for link in self.links}
        return {place.name: by_host[place.host] for place in self.places if place.host in by_host}

    def weight_bytes(self, first: int, last: int) -> int:
        return sum(layer.weight_bytes for layer in self.layers[first : last + 1])

    def live_bytes(self, first: int, last: int) -> int:
        """Most bytes that are live while one of layers `first` to `last` (inclusive) runs."""
        return max(layer.live_bytes for layer in self.layers[first : last + 1])

    def batch_of(self, frames: int) -> CostBatch | None:
        """The times to use for batches of `frames`: of the largest known batch up to that; None: those of one frame."""
        return next((batch for batch in reversed(self.batches) if batch.frames <= frames), None)

    def with_times(self, time_s: Floats) -> Costs:
        """The costs with other times of single frames; times of batches change by the same ratios."""
        changed = np.divide(time_s, self.time_s, out=np.where(np.isnan(time_s), np.nan, 1.0), where=self.time_s > 0)
        batches = (CostBatch(batch.frames, batch.time_s * changed) for batch in self.batches)
        return replace(self, time_s=time_s, batches=tuple(batches))

    @cached_property
    def entry_s(self) -> Floats:
        """(layers,): seconds that a run of layers pays to begin there, for the cut before; nan if that is not legal."""
        return np.concatenate([[0.0], self.transfer_s])

    @cached_property
    def crossings(self) -> Crossings:
        return Crossings(self.tensors)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {place.name: index for index, place in enumerate(self.places)}


def with_links(costs: Costs, links: Links) -> Costs:
    """The costs with the tensors of `links`, each remote place on its host; a host's link is its first place's."""
    far = [(place, links.far.get(place.name)) for place in costs.places]
    by_host: dict[str, HostLink] = {}
    for _, link in far:
        if link is not None:
            by_host.setdefault(link.host, link)
    return replace(
        costs,
        places=tuple(place if link is None else replace(place, host=link.host) for place, link in far),
        tensors=links.tensors,
        links=tuple(by_host.values()),
    )


def stage_service_s(costs: Costs, first: int, last: int, place: int) -> float:
    """Seconds that layers `first` to `last` (inclusive) take on a place (its index), entry transfer included.

    nan where the place cannot run one of them, or the entry cut is not legal.
    """
    # fsum: independent of the order of summing, so that equal stages have equal times to the last bit.
    return math.fsum([float(costs.entry_s[first]), *costs.time_s[first : last + 1, place].tolist()])


def stage_bytes(costs: Costs, first: int, last: int, frames: int = 1) -> int:
    """The memory that a stage of layers `first` to `last` (inclusive) needs for batches of `frames`."""
    layers = costs.layers[first : last + 1]
    return held_bytes((layer.weight_bytes for layer in layers), (frames * layer.live_bytes for layer in layers))


def why_infeasible(costs: Costs, first: int, last: int, place: int) -> str | None:
    """Why a place (its index) cannot run layers `first` to `last` (inclusive); None if it can."""
    target = costs.places[place]
    cannot = np.flatnonzero(np.isnan(costs.time_s[first : last + 1, place]))
    if cannot.size:
        layer = first + int(cannot[0])
        return f"{target.name} cannot run layer {layer} ({costs.layers[layer].name})"
    need_bytes = stage_bytes(costs, first, last)
    if need_bytes > target.room_bytes:
        return f"layers {first}-{last} need {need_bytes} bytes, and {target.name} has {target.memory_bytes}"
    return None


def why_no_other_order(costs: Costs, needs: Sequence[frozenset[int]]) -> str | None:
    """Why the costs of layers in another order than the file's are not known; None: they are."""
    if len(needs) != len(costs.layers):
        return "it is not known which layer reads what (`tensors`)"
    if np.any(costs.transfer_s > 0):
        return "`transfer_s` says what cuts cost in the file's order only"
    return None
