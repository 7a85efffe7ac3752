"""The cost of an assignment, computed independently of the solvers, to check every result of theirs.

The cost is a plain sum, as in the papers: operators run one at a time, and transfers overlap nothing. If a group turns
out not to be in use, `feasible` moves its nodes to where they run by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from shisha_rt.placement.problem import Assignment, Group, Problem


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds. `node_s` counts a group instead of its members if it is cheaper or a member cannot run by itself."""

    node_s: float
    transfer_s: float

    @property
    def total_s(self) -> float:
        return self.node_s + self.transfer_s


def cost(problem: Problem, assignment: Assignment) -> Cost:
    """An assignment's cost, inf if a device cannot run its node. Raises ValueError unless each node has a device."""
    if len(assignment) != len(problem.nodes):
        raise ValueError(f"{len(assignment)} devices for {len(problem.nodes)} nodes")
    used = groups_in_use(problem, assignment)
    grouped = {node for group in used for node in group.nodes}
    alone_s = [
        node.cost_s[device]
        for index, (node, device) in enumerate(zip(problem.nodes, assignment, strict=True))
        if index not in grouped
    ]
    if math.inf in alone_s:
        return Cost(math.inf, 0.0)
    # fsum rounds only once, whatever the order of the terms: equal costs are equal to the last bit.
    node_s = math.fsum([*alone_s, *(group.cost_s for group in used)])
    return Cost(node_s, math.fsum(_transfers_s(problem, assignment)))


def _transfers_s(problem: Problem, assignment: Assignment) -> Iterator[float]:
    for tensor in problem.tensors:
        source = assignment[tensor.producer]
        targets = [problem.memory_of[assignment[consumer]] for consumer in tensor.consumers]
        if problem.transfer_counting == "once":
            targets = sorted(set(targets))
        yield from (tensor.transfer_s[source][memory] for memory in targets if memory != problem.memory_of[source])


def groups_in_use(problem: Problem, assignment: Assignment) -> tuple[Group, ...]:
    """The disjoint groups that make the assignment cheapest, sorted by their nodes.

    First of all they cover as many as possible of the nodes that cannot run by themselves on their devices.
    """
    there = (group for group in problem.groups if all(assignment[node] == group.device for node in group.nodes))
    return best_groups(there, lambda node, device: problem.nodes[node].cost_s[device])


def best_groups(groups: Iterable[Group], alone_s: Callable[[int, int], float]) -> tuple[Group, ...]:
    """Return the disjoint groups that save most, of groups whose nodes are all on the groups' devices.

    `alone_s` maps a node and a device to the node's own seconds there.
    """
    gains = ((group, _gain(group, alone_s)) for group in groups)
    usable = [(group, gain) for group, gain in gains if gain > _NO_GAIN]
    usable.sort(key=lambda pair: pair[0].nodes)
    return _best_packing(usable)


_Gain = tuple[int, Fraction]
"""How many members run only in a group, and the seconds that the group saves over the other members' own; exact."""
_NO_GAIN: Final[_Gain] = (0, Fraction(0))
_Chosen = tuple[Group, "_Chosen"] | None
"""A linked list: the group taken last, and the groups taken before it."""


def _gain(group: Group, alone_s: Callable[[int, int], float]) -> _Gain:
    members_s = [alone_s(node, group.device) for node in group.nodes]
    able_s = [seconds for seconds in members_s if seconds < math.inf]
    return len(members_s) - len(able_s), sum(map(Fraction, able_s), Fraction(0)) - Fraction(group.cost_s)


def _best_packing(usable: Sequence[tuple[Group, _Gain]]) -> tuple[Group, ...]:
    """Disjoint groups of the largest gain, by dynamic programming: each group in turn is taken or left.

    The state is the nodes taken that later groups have, too. As groups are chains and sorted, states are few.
    """
    later: list[frozenset[int]] = [frozenset()]
    for group, _ in reversed(usable):
        later.append(later[-1] | frozenset(group.nodes))
    later.reverse()  # later[i]: all nodes of groups i, i + 1, ...

    best: dict[frozenset[int], tuple[_Gain, _Chosen]] = {frozenset(): (_NO_GAIN, None)}
    for index, (group, (covered, saved_s)) in enumerate(usable):
        members, relevant = frozenset(group.nodes), later[index + 1]
        following: dict[frozenset[int], tuple[_Gain, _Chosen]] = {}
        for taken, (gain, chosen) in best.items():
            choices = [(taken, gain, chosen)]
            if not taken & members:
                choices.append((taken | members, (gain[0] + covered, gain[1] + saved_s), (group, chosen)))
            for nodes, total, groups in choices:
                key = nodes & relevant
                if key not in following or total > following[key][0]:
                    following[key] = total, groups
        best = following
    (_, best_faults), *_ = best.values()
    used = []
    while best_faults is not None:
        last, best_faults = best_faults
        used.append(last)
    return tuple(reversed(used))


def fastest_alone(problem: Problem) -> tuple[int, ...]:
    """Assign each node to the device that runs it fastest by itself; of equally fast devices to the first."""
    return tuple([min(node.capable, key=node.cost_s.__getitem__) for node in problem.nodes])


def feasible(problem: Problem, assignment: Assignment, elsewhere: Assignment) -> tuple[int, ...]:
    """The assignment; nodes that can run there neither alone nor in a group move to their devices of `elsewhere`."""
    if cost(problem, assignment).total_s < math.inf:
        return tuple(assignment)
    stranded = {n for n, node in enumerate(problem.nodes) if node.cost_s[assignment[n]] == math.inf}
    taken: set[int] = set()
    for group in problem.groups:
        nodes = set(group.nodes)
        if nodes & stranded and not nodes & taken and all(assignment[node] == group.device for node in nodes):
            taken |= nodes
    stranded -= taken
    return tuple([elsewhere[n] if n in stranded else device for n, device in enumerate(assignment)])
