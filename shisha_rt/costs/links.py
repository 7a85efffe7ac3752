"""What it takes to bring tensors to a place on another host, and back.

All tensors of a frame lie in its slot, on the daemon's host. A stage on another host has what it reads sent there, once
for each stage that reads it, and what others read of it sent back, once, whoever reads it. So a transfer depends on
both places, the maker's link back and the reader's link there, and each of the two ends is one place's own affair: what
a stage costs follows from its layers and its place.

A remote place receives, computes and sends at the same time, one frame after the other: it is ready for the next frame
after the longest of the three, and a frame by itself takes their sum. Places of a host share its link, as they would a
memory: no plan is faster than the bytes of a frame over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shisha_rt.costs.link_speed import LinkSpeed, OneWay

AS_INPUT = -1
"""Where the network's inputs are made."""


@dataclass(frozen=True, slots=True)
class CostTensor:
    """A tensor that layer `made` makes (or `AS_INPUT`) and layers `readers` (ascending, all later) read.

    The number of layers among the readers: it is an output of the network.
    """

    name: str
    size_bytes: int
    made: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostLink:
    """Between the daemon and a `host`: `there` is the way to it, `back` the other one."""

    host: str
    there: OneWay
    back: OneWay

    @property
    def speed(self) -> LinkSpeed:
        return LinkSpeed(self.there, self.back)


@dataclass(frozen=True, slots=True)
class Links:
    """`tensors`: what passes between the layers of a model; `far`: the hosts of places, and the ways there and back."""

    tensors: tuple[CostTensor, ...] = ()
    far: Mapping[str, HostLink] = field(default_factory=dict)
