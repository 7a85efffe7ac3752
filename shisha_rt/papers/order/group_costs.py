"""Costs of groups of layers: times, memory and tensors, from which the cost of a stage of any groups follows.

The time of a stage from one downset to a larger one is a difference of sums; its traffic to another host and back
follows from the tensors that are computed and read within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.costs.room import held_within
from shisha_rt.papers.order.downsets import Downset
from shisha_rt.planner.chains import place_seconds, way_s
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, stage_costs


@dataclass(frozen=True, slots=True, eq=False)
class GroupTraffic:
    """Tensors that groups pass on; empty if no place is on another host. `size_bytes` (tensors,).

    `made` and `read` (groups, tensors): 1 if the group computes or reads the tensor, else 0; `is_input` and `is_output`
    (tensors,): 1 for inputs and outputs of the network, else 0.
    """

    size_bytes: Floats
    made: Floats
    read: Floats
    is_input: Floats
    is_output: Floats


@dataclass(frozen=True, slots=True, eq=False)
class GroupCosts:
    """`time_s` (groups, kinds): seconds, inf if places of a kind cannot run the group.

    `weight_bytes`, `live_bytes` (groups,). `links` (kinds,): None for this host.
    """

    model: StageCosts
    time_s: Floats
    weight_bytes: Floats
    live_bytes: Floats
    links: tuple[HostLink | None, ...]
    traffic: GroupTraffic

    @property
    def places(self) -> list[list[str]]:
        """(kinds,): names, as listed."""
        return [[self.model.costs.places[at].name for at in kind.places] for kind in self.model.kinds]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(len(kind.places) for kind in self.model.kinds)

    @property
    def room_bytes(self) -> Floats:
        """(kinds,): inf without a limit."""
        return np.array([self.model.costs.places[kind.places[0]].room_bytes for kind in self.model.kinds])

    @property
    def shares_links(self) -> bool:
        """Whether several places are on one link."""
        hosts = [link.host for link in self.model.costs.link_of.values()]
        return len(set(hosts)) < len(hosts)


def group_costs(costs: Costs) -> GroupCosts:
    """Costs of runs of layers that no cut divides, from the costs of their layers."""
    model = stage_costs(costs)
    starts = model.starts[:-1]
    links = tuple(costs.link_of.get(kind.name) for kind in model.kinds)
    return GroupCosts(
        model,
        place_seconds(model, Goal(run_s=0)),
        np.add.reduceat([float(layer.weight_bytes) for layer in costs.layers], starts),
        np.maximum.reduceat([float(layer.live_bytes) for layer in costs.layers], starts),
        links,
        _traffic(costs.tensors if any(links) else (), model),
    )


def _traffic(tensors: Sequence[CostTensor], model: StageCosts) -> GroupTraffic:
    group_of = np.repeat(np.arange(model.groups), np.diff(model.starts)).tolist()
    made, read = np.zeros((model.groups, len(tensors))), np.zeros((model.groups, len(tensors)))
    for at, tensor in enumerate(tensors):
        by = AS_INPUT if tensor.made == AS_INPUT else group_of[tensor.made]
        if by != AS_INPUT:
            made[by, at] = 1
        for reader in tensor.readers:
            if reader < len(group_of) and group_of[reader] != by:
                read[group_of[reader], at] = 1
    return GroupTraffic(
        np.array([float(tensor.size_bytes) for tensor in tensors]),
        made,
        read,
        np.array([float(tensor.made == AS_INPUT) for tensor in tensors]),
        np.array([float(len(group_of) in tensor.readers) for tensor in tensors]),
    )


class Downsets:
    """Times of stages between any two of the downsets, of which smaller ones come first and the whole last."""

    def __init__(self, costs: GroupCosts, downsets: Sequence[Downset]) -> None:
        groups = len(costs.time_s)
        member = np.array([[downset >> group & 1 for group in range(groups)] for downset in downsets], np.float64)
        able = np.isfinite(costs.time_s)
        self._costs = costs
        self._member = member
        self._done_s = member @ np.where(able, costs.time_s, 0.0)
        self._unable = member @ (~able).astype(np.float64)
        self._room_bytes = costs.room_bytes
        self._linked = any(costs.links)
        traffic = costs.traffic
        self._made = member @ traffic.made
        self._read = member @ traffic.read
        self._has_readers_left = self._read < traffic.read.sum(axis=0) + traffic.is_output

    @property
    def largest_s(self) -> float:
        """The largest sum of times."""
        return float(self._done_s.max(initial=0.0))

    def behind(self, begin: int) -> Ints:
        """Positions of the downsets that properly contain this one."""
        rest = self._member[begin + 1 :]
        return np.asarray(begin + 1 + np.flatnonzero((rest >= self._member[begin]).all(axis=1)))

    def seconds(self, begin: int, ends: Ints) -> Floats:
        """(ends, kinds): seconds of a stage from `begin` to each end on places of each kind; inf if it cannot run."""
        costs, traffic = self._costs, self._costs.traffic
        time_s = self._done_s[ends] - self._done_s[begin]
        able = self._unable[ends] == self._unable[begin]
        if np.isfinite(self._room_bytes).any():
            inside = self._member[ends] - self._member[begin]
            able &= held_within(inside, costs.weight_bytes, costs.live_bytes)[:, None] <= self._room_bytes
        if self._linked:
            reads = (self._read[ends] > self._read[begin]) * np.minimum(1, self._made[begin] + traffic.is_input)
            there_bytes = reads @ traffic.size_bytes
            makes = (self._made[ends] - self._made[begin]) * self._has_readers_left[ends]
            back_bytes = makes @ traffic.size_bytes
            for kind, link in enumerate(costs.links):
                if link is not None:
                    np.maximum(time_s[:, kind], way_s(link.there, there_bytes), out=time_s[:, kind])
                    np.maximum(time_s[:, kind], way_s(link.back, back_bytes), out=time_s[:, kind])
        return np.where(able, time_s, np.inf)
