"""What an assignment really costs, computed apart from every solver: every result passes it.

The cost is a sum in sequence, as the papers have it: operators run one at a time, and a transfer overlaps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shisha_rt.placement.problem import Assignment, Group, Problem


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds. `node_s` has groups in place of their members, where that is cheaper."""

    node_s: float
    transfer_s: float

    @property
    def total_s(self) -> float:
        return self.node_s + self.transfer_s


def cost(problem: Problem, assignment: Assignment) -> Cost:
    """The cost of an assignment; inf for one that puts a node on a device that cannot run it.

    Raises ValueError unless there is one device for each node.
    """
    if len(assignment) != len(problem.nodes):
        raise ValueError(f"{len(assignment)} devices for {len(problem.nodes)} nodes")
    # Sums are exact but for their last rounding: equal costs are equal to the last bit, however they were added up,
    # and a group may stand in for members that cost many decades more.
    alone_s = [node.cost_s[device] for node, device in zip(problem.nodes, assignment, strict=True)]
    if math.inf in alone_s:
        return Cost(math.inf, 0.0)
    saved_s = _saved_s(problem, assignment)
    node_s = float(sum(map(Fraction, alone_s)) - saved_s) if saved_s else math.fsum(alone_s)
    return Cost(node_s, math.fsum(_transfers_s(problem, assignment)))


def _transfers_s(problem: Problem, assignment: Assignment) -> Iterator[float]:
    for tensor in problem.tensors:
        source = assignment[tensor.producer]
        targets = [problem.memory_of[assignment[consumer]] for consumer in tensor.consumers]
        if problem.transfer_counting == "once":
            targets = sorted(set(targets))
        yield from (tensor.transfer_s[source][memory] for memory in targets if memory != problem.memory_of[source])


def _saved_s(problem: Problem, assignment: Assignment) -> Fraction:
    """The most that disjoint groups save over their members alone."""
    usable = [
        (group, saved_s)
        for group in problem.groups
        if all(assignment[node] == group.device for node in group.nodes)
        and (
            saved_s := sum(Fraction(problem.nodes[n].cost_s[group.device]) for n in group.nodes)
            - Fraction(group.cost_s)
        )
        > 0
    ]
    usable.sort(key=lambda pair: pair[0].nodes)
    return _best_packing_s(usable)


def _best_packing_s(usable: Sequence[tuple[Group, Fraction]]) -> Fraction:
    """The largest sum of disjoint groups, by taking or leaving one after the other.

    What is taken matters only as far as groups still to come have it too; as groups are chains and sorted, that is
    little, and the cases are few.
    """
    later: list[frozenset[int]] = [frozenset()]
    for group, _ in reversed(usable):
        later.append(later[-1] | frozenset(group.nodes))
    later.reverse()  # later[i]: all nodes of groups i, i + 1, ...

    best: dict[frozenset[int], Fraction] = {frozenset(): Fraction(0)}
    for index, (group, saved_s) in enumerate(usable):
        members, relevant = frozenset(group.nodes), later[index + 1]
        following: dict[frozenset[int], Fraction] = {}
        for taken, sum_s in best.items():
            choices = [(taken, sum_s)]
            if not taken & members:
                choices.append((taken | members, sum_s + saved_s))
            for nodes, total_s in choices:
                key = nodes & relevant
                following[key] = max(following.get(key, Fraction(0)), total_s)
        best = following
    return max(best.values())
