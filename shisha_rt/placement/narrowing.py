"""What is proven of an assignment, and better ones, where the cost network is too wide to be eliminated as it is.

Devices are dropped that no better assignment than the best one known puts a node on: what every node costs at least
bounds all others; then the relaxation of the cost network does, tighter. Until what is left is narrow enough, and its
optimum that of the whole. On the way, better assignments are found by moving any nodes to some of the devices, all the
others staying where they are: the best of all such moves at once (expansion moves: Boykov, Veksler, Zabih, 2001), by
the same elimination.

Nothing here asks a solver that is not the project's own, so a bound is one, whoever found the assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.outcome import LeftSeconds, ShouldStop, within
from shisha_rt.placement.alone import fastest_alone, feasible
from shisha_rt.placement.als import als
from shisha_rt.placement.check import cost
from shisha_rt.placement.duet import duet
from shisha_rt.placement.elimination import Order, elimination_order, minimise
from shisha_rt.placement.network import CostNetwork, cost_network
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.relaxation import relaxed
from shisha_rt.placement.solution import PlacementSolution

PROVEN: Final = 1e-9
"""Relative: an assignment no further above a bound is the best. What sums of costs lose by rounding is far less."""
_ROUNDED_DOWN: Final = 1 - 1e-12


@dataclass(frozen=True, slots=True)
class WidthLimits:
    """Limits of an elimination.

    `entries` of all joined tables, which take time, and those `held` at once, of 8 bytes each.
    """

    entries: int = 1 << 30
    held: int = 1 << 25

    def order(self, network: CostNetwork) -> Order | None:
        """Elimination order of a network; None where every order goes beyond the limits."""
        order = elimination_order(network.sizes, network.scopes, self.entries)
        return None if order is None or order.held > self.held else order


_OF_THE_TIME: Final = 0.6
"""For a relaxation, of what is left: its first sweeps gain most."""
_OF_A_MOVE: Final = WidthLimits(1 << 26, 1 << 23)
"""There are many."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The best assignment so far, a bound of all of them, and where there may still be a better one.

    `left` is the problem without devices (inf) that no better assignment puts a node on.
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
        """The better one."""
        cost_s = cost(self.problem, assignment).total_s
        return replace(self, assignment=tuple(assignment), cost_s=cost_s) if cost_s < self.cost_s else self

    def with_bound(self, bound_s: float) -> Narrowed:
        """The higher one, but for what rounding puts it above the assignment."""
        return replace(self, lower_bound_s=min(max(bound_s, self.lower_bound_s), self.cost_s))

    def only(self, alive: Bools) -> Problem:
        """What is left on devices that are `alive` (nodes, devices), and on those of the assignment.

        A node may then have no device left but within groups.
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
    """The best of what takes linear time: nodes on their fastest devices, all on one device, duet, als."""
    return min(_quick(problem, should_stop), key=lambda assignment: cost(problem, assignment).total_s)


def _quick(problem: Problem, should_stop: ShouldStop) -> Iterator[tuple[int, ...]]:
    fastest = fastest_alone(problem)
    yield fastest
    for device in range(len(problem.devices)):
        together = [
            device if device in devices else other for devices, other in zip(problem.devices_of, fastest, strict=True)
        ]
        yield feasible(problem, together, fastest)
    solvers: Sequence[Callable[[], PlacementSolution]] = (
        lambda: als(problem, should_stop),
        lambda: duet(problem, 100.0),
    )
    for solver in solvers:
        assignment = None if should_stop() else solver().assignment
        if assignment is not None:
            yield assignment


def least_node_s(problem: Problem) -> Floats:
    """(nodes, devices): seconds of a node, or its share of a group's; inf where it cannot run.

    Shares are as the members' costs; those that cannot run by themselves share what a group costs more than the others
    do. So what the nodes of an assignment cost is at least the sum.
    """
    alone_s = np.array([node.cost_s for node in problem.nodes])
    least_s = alone_s.copy()
    for group in problem.groups:
        members = list(group.nodes)
        its_s = alone_s[members, group.device]
        able = its_s < math.inf
        able_s = math.fsum(its_s[able])
        if group.cost_s < able_s:
            share_s = np.where(able, its_s, 0.0) * (group.cost_s / able_s)
        elif able.all():
            continue
        else:
            share_s = np.where(able, its_s, (group.cost_s - able_s) / np.count_nonzero(~able))
        least_s[members, group.device] = np.minimum(least_s[members, group.device], share_s)
    return least_s


def bounded(problem: Problem, assignment: Assignment) -> Narrowed:
    """What costs nothing to know: no node costs less than on its cheapest device."""
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
    """Move nodes until no move to any of the devices is a gain.

    Moves go to as many devices at once as are narrow enough.
    """
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
