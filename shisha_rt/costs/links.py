"""Transfers of tensors to places on other hosts, and back.

All tensors of a frame are in its slot, on the daemon's host. A tensor that a stage on another host reads is sent there,
once for each such stage; one that it makes for other stages is sent back, once. So a tensor between two other hosts
passes over the maker's link back and the reader's link there, each of which counts for its own stage: a stage's cost
follows from its layers and its place.

A remote place receives, computes and sends at the same time, one frame after the other: it is ready for the next frame
after the longest of the three, and a frame by itself takes their sum. Places of a host share its link, as they would a
memory: no plan is faster than the link can carry the bytes of a frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shisha_rt.costs.link_speed import LinkSpeed, OneWay
from shisha_rt.model.spans import Span

AS_INPUT = -1
"""`made` of the network's inputs."""


@dataclass(frozen=True, slots=True)
class CostTensor:
    """A tensor that layer `made` makes (or `AS_INPUT`) and layers `readers` (ascending, all later) read.

    If the number of layers is among the readers, the tensor is an output of the network.
    """

    name: str
    size_bytes: int
    made: int
    readers: tuple[int, ...]


def layer_needs(tensors: Sequence[CostTensor], layer_count: int) -> tuple[frozenset[int], ...]:
    """(layers,): the earlier layers of which each layer reads a tensor; empty if tensors are not known."""
    if not tensors:
        return ()
    needs: list[set[int]] = [set() for _ in range(layer_count)]
    for tensor in tensors:
        for reader in tensor.readers:
            if tensor.made != AS_INPUT and reader < layer_count:
                needs[reader].add(tensor.made)
    return tuple(map(frozenset, needs))


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link between the daemon and a `host`: `there` is the direction to the host, `back` that to the daemon."""

    host: str
    there: OneWay
    back: OneWay

    @property
    def speed(self) -> LinkSpeed:
        return LinkSpeed(self.there, self.back)


@dataclass(frozen=True, slots=True)
class Links:
    """`tensors`: those that pass between the layers of a model. `far`: the link of each place on another host."""

    tensors: tuple[CostTensor, ...] = ()
    far: Mapping[str, HostLink] = field(default_factory=dict)


Bytes = npt.NDArray[np.int64]


class StageTraffic(NamedTuple):
    """Bytes that a frame moves for a stage on another host."""

    there_bytes: int
    back_bytes: int


class Crossings:
    """Traffic of stages, from the tensors between layers; cached."""

    def __init__(self, tensors: Iterable[CostTensor]) -> None:
        self._tensors = tuple(tensors)
        self._known: dict[tuple[Span, ...], StageTraffic] = {}

    def of(self, work: tuple[Span, ...]) -> StageTraffic:
        if work not in self._known:
            self._known[work] = self._traffic({layer for first, last in work for layer in range(first, last + 1)})
        return self._known[work]

    def _traffic(self, layers: set[int]) -> StageTraffic:
        there_bytes = back_bytes = 0
        for tensor in self._tensors:
            if tensor.made in layers:
                back_bytes += 0 if layers.issuperset(tensor.readers) else tensor.size_bytes
            elif not layers.isdisjoint(tensor.readers):
                there_bytes += tensor.size_bytes
        return StageTraffic(there_bytes, back_bytes)

    def between(self, starts: Sequence[int]) -> tuple[Bytes, Bytes]:
        """(positions, positions) each: bytes there and back, of the run of layers between two positions.

        `starts` (positions,), ascending: the first layer behind each position; for the last, the number of layers.
        """
        there, back = (np.zeros((len(starts) + 1, len(starts) + 1), np.int64) for _ in range(2))
        group_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).tolist()
        outputs = len(starts) - 1
        for tensor in self._tensors:
            made = AS_INPUT if tensor.made == AS_INPUT else group_of[tensor.made]
            readers = sorted(
                {group_of[layer] if layer < len(group_of) else outputs for layer in tensor.readers} - {made}
            )
            # Sent: to runs that begin after the maker and up to the next reader, and end after that.
            begin = made + 1
            for reader in readers:
                if reader < outputs:
                    there[begin : reader + 1, reader + 1] += tensor.size_bytes
                begin = reader + 1
            # Returned: by runs that have the maker and not the last reader.
            if made != AS_INPUT and readers:
                back[: made + 1, made + 1] += tensor.size_bytes
                back[: made + 1, readers[-1] + 1] -= tensor.size_bytes
        return tuple(np.cumsum(stage_bytes, axis=1)[:-1, :-1] for stage_bytes in (there, back))  # type: ignore[return-value]
