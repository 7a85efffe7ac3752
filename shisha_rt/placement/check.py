"""What an assignment really costs, computed apart from every solver: every result passes it.

The cost is a sum in sequence, as the papers have it: operators run one at a time, and a transfer overlaps nothing.
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
    """Seconds. `node_s` has groups in place of their members, where they are cheaper or cannot run by themselves."""

    node_s: float
    transfer_s: float

    @property
    def total_s(self) -> float:
        return self.node_s + self.transfer_s


def cost(problem: Problem, assignment: Assignment) -> Cost:
    """The cost of an assignment; inf for one that puts a node on a device that can run it neither alone nor in a group.

    Raises ValueError unless there is one device for each node.
    """
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
    # Exact but for the last rounding: equal costs are equal to the last bit, however they were added up.
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
    """Disjoint groups that make the assignment cost least, sorted by their nodes.

    Above all they have the most of those nodes in them that cannot run by themselves where they are.
    """
    there = (group for group in problem.groups if all(assignment[node] == group.device for node in group.nodes))
    return best_groups(there, lambda node, device: problem.nodes[node].cost_s[device])


def best_groups(groups: Iterable[Group], alone_s: Callable[[int, int], float]) -> tuple[Group, ...]:
    """Return the disjoint groups that save most, of groups that may all be in use; `alone_s` takes node and device."""
    gains = ((group, _gain(group, alone_s)) for group in groups)
    usable = [(group, gain) for group, gain in gains if gain > _NO_GAIN]
    usable.sort(key=lambda pair: pair[0].nodes)
    return _best_packing(usable)


_Gain = tuple[int, Fraction]
"""The nodes that run only in a group, and the seconds saved over the others by themselves; sums are exact."""
_NO_GAIN: Final[_Gain] = (0, Fraction(0))
_Chosen = tuple[Group, "_Chosen"] | None
"""The group taken last, and those before it."""


def _gain(group: Group, alone_s: Callable[[int, int], float]) -> _Gain:
    members_s = [alone_s(node, group.device) for node in group.nodes]
    able_s = [seconds for seconds in members_s if seconds < math.inf]
    return len(members_s) - len(able_s), sum(map(Fraction, able_s), Fraction(0)) - Fraction(group.cost_s)


def _best_packing(usable: Sequence[tuple[Group, _Gain]]) -> tuple[Group, ...]:
    """Disjoint groups of the largest gain, by taking or leaving one after the other.

    What is taken matters only as far as groups still to come have it too; as groups are chains and sorted, that is
    little, and the cases are few.
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
