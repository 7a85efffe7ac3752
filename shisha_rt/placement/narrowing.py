"""Better assignments and lower bounds for problems whose cost network is too wide to be eliminated as it is.

A device is dropped for a node if a lower bound shows that no assignment with the node there is better than the best
known one. The first bound is the sum of the nodes' least costs, then comes the tighter relaxation of the cost network.
This repeats until the rest is narrow enough to be eliminated; its optimum is that of the whole problem. On the way,
elimination finds better assignments, too: the best of all that move any set of nodes to some of the devices and leave
the other nodes where they are (expansion moves: Boykov, Veksler, Zabih, 2001).

No external solver is used here, so bounds are proven, whatever solver found the assignment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.outcome import LeftSeconds, ShouldStop, within
from shisha_rt.placement.als import als
from shisha_rt.placement.check import cost, fastest_alone, feasible
from shisha_rt.placement.duet import duet
from shisha_rt.placement.elimination import Order, elimination_order, minimise
from shisha_rt.placement.network import CostNetwork, cost_network
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.relaxation import relaxed

PROVEN: Final = 1e-9
"""An assignment at most this far (relative) above a bound counts as the best; sums have far smaller rounding errors."""
_ROUNDED_DOWN: Final = 1 - 1e-12


@dataclass(frozen=True, slots=True)
class WidthLimits:
    """Limits of an elimination: `entries` of all joined tables limit its time, entries `held` at once its memory.

    An entry has 8 bytes.
    """

    entries: int = 1 << 30
    held: int = 1 << 25

    def order(self, network: CostNetwork) -> Order | None:
        """Greedy elimination order of a network; None if it exceeds the limits."""
        order = elimination_order(network.sizes, network.scopes, self.entries)
        return None if order is None or order.held > self.held else order


_OF_THE_TIME: Final = 0.6
"""A relaxation's share of the time left: its first sweeps gain most."""
_OF_A_MOVE: Final = WidthLimits(1 << 26, 1 << 23)
"""Limits of one expansion move; low, as there are many moves."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The best assignment so far, a lower bound of all assignments, and the rest of the problem.

    `left` is the problem without the devices (cost inf) that no better assignment puts a node on.
    """

    problem: Problem
    left: Problem
    assignment: tuple[int, ...]
    cost_s: float
    lower_bound_s: float

    @property
    def is_settled(self) -> bool:
        """Whether the assignment is the best."""
        return self.cost_s <= self.lower_bound_s * (1 + PROVEN)

    def with_assignment(self, assignment: Sequence[int]) -> Narrowed:
        """With the better of both assignments."""
        cost_s = cost(self.problem, assignment).total_s
        return replace(self, assignment=tuple(assignment), cost_s=cost_s) if cost_s < self.cost_s else self

    def with_bound(self, bound_s: float) -> Narrowed:
        """With the higher of both bounds, capped at `cost_s`, as rounding may put a bound above it."""
        return replace(self, lower_bound_s=min(max(bound_s, self.lower_bound_s), self.cost_s))

    def only(self, alive: Bools) -> Problem:
        """`left` with only the devices that are `alive` (nodes, devices) or in the assignment.

        A node may be left with devices that run it only in groups.
        """
        alive = alive.copy()
        alive[range(len(self.assignment)), self.assignment] = True
        nodes = [
            replace(
                node, cost_s=tuple([s if is_kept else math.inf for s, is_kept in zip(node.cost_s, row, strict=True)])
            )
            for node, row in zip(self.left.nodes, alive.tolist(), strict=True)
        ]
        groups = [group for group in self.left.groups if alive[list(group.nodes), group.device].all()]
        return replace(self.left, nodes=tuple(nodes), groups=tuple(groups))


def quick_assignment(problem: Problem, should_stop: ShouldStop) -> tuple[int, ...]:
    """The best of linear-time methods: nodes on their fastest devices, all possible nodes on one device, als, duet."""
    return min(_quick(problem, should_stop), key=lambda assignment: cost(problem, assignment).total_s)


def _quick(problem: Problem, should_stop: ShouldStop) -> Iterator[tuple[int, ...]]:
    fastest = fastest_alone(problem)
    yield fastest
    for device in range(len(problem.devices)):
        together = [
            device if device in devices else other for devices, other in zip(problem.devices_of, fastest, strict=True)
        ]
        yield feasible(problem, together, fastest)
    assignment = als(problem, should_stop).assignment
    if assignment is not None:
        yield assignment
    reassigned = None if should_stop() else duet(problem, 100.0).assignment
    if reassigned is not None:
        yield reassigned


def least_node_s(problem: Problem) -> Floats:
    """(nodes, devices): least seconds of a node, by itself or as its share of a group; inf where it cannot run.

    A group that saves time is shared in proportion to the members' own costs. If it saves none, members that cannot run
    by themselves share equally what it costs beyond the other members' own costs. So the nodes of any assignment cost
    at least the sum of these.
    """
    alone_s = np.array([node.cost_s for node in problem.nodes])
    least_s = alone_s.copy()
    for group in problem.groups:
        members = list(group.nodes)
        own_s = alone_s[members, group.device]
        able = own_s < math.inf
        able_s = math.fsum(own_s[able])
        if group.cost_s < able_s:
            share_s = np.where(able, own_s, 0.0) * (group.cost_s / able_s)
        elif able.all():
            continue
        else:
            share_s = np.where(able, own_s, (group.cost_s - able_s) / np.count_nonzero(~able))
        least_s[members, group.device] = np.minimum(least_s[members, group.device], share_s)
    return least_s


def bounded(problem: Problem, assignment: Assignment) -> Narrowed:
    """Narrow by the bound that costs nothing: the sum of all nodes' costs on their cheapest devices."""
    cost_s = cost(problem, assignment).total_s
    least_s = least_node_s(problem)
    floor_s = least_s.min(axis=1)
    bound_s = math.fsum(floor_s) * _ROUNDED_DOWN
    narrow = Narrowed(problem, problem, tuple(assignment), cost_s, min(bound_s, cost_s))
    return replace(narrow, left=narrow.only(least_s - floor_s[:, None] <= cost_s - bound_s))


def narrowed(narrow: Narrowed, limits: WidthLimits, left_s: LeftSeconds) -> Narrowed:
    """Narrow the choices as far as possible within the limits."""
    should_stop = within(left_s)
    while not narrow.is_settled and not should_stop():
        before = narrow
        network = cost_network(narrow.left)
        order = limits.order(network)
        if order is not None:
            least = minimise(network.sizes, network.factors, order, should_stop)
            if least is None:
                break
            return narrow.with_assignment(network.devices(least.values)).with_bound(least.total)
        relaxation = relaxed(
            network.sizes, network.factors, network.sequence, narrow.cost_s, within(left_s, _OF_THE_TIME)
        )
        narrow = narrow.with_bound(relaxation.least).with_assignment(network.devices(relaxation.values))
        narrow = _moved(narrow, should_stop)
        alive = np.zeros((len(narrow.left.nodes), len(narrow.left.devices)), bool)
        for node, (states, least_of_states) in enumerate(zip(network.states, relaxation.least_with, strict=False)):
            alive[node, states.device[least_of_states <= narrow.cost_s]] = True
        narrow = replace(narrow, left=narrow.only(alive))
        if narrow.left == before.left:
            break
    return narrow


def _moved(narrow: Narrowed, should_stop: ShouldStop) -> Narrowed:
    """Make expansion moves until none is a gain, to as many devices at once as `_OF_A_MOVE` permits."""
    devices = len(narrow.left.devices)
    count, first, idle = max(1, devices // 2), 0, 0
    while count and idle < devices and not should_stop():
        alive = np.zeros((len(narrow.left.nodes), devices), bool)
        alive[:, [(first + i) % devices for i in range(count)]] = True
        network = cost_network(narrow.only(alive))
        order = _OF_A_MOVE.order(network)
        if order is None:
            count //= 2
            continue
        least = minimise(network.sizes, network.factors, order, should_stop)
        if least is None:
            break
        before, narrow = narrow, narrow.with_assignment(network.devices(least.values))
        step = max(1, count // 2)
        first, idle = first + step, 0 if narrow.cost_s < before.cost_s else idle + step
    return narrow
