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

from collections.abc import Mapping
from dataclasses import dataclass, field

from shisha_rt.costs.link_speed import LinkSpeed, OneWay

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
