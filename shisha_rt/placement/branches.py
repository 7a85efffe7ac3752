"""Branches of a problem's graph, and which are parallel (PartitionTuner, Section 3.2, Definitions 1 and 2).

A branch is a sequence of nodes in which each feeds only the next. Branches are parallel, and share a level, if they
have the same input node and the same output node; an edge from the input node to the output node is no branch. The
beginning and the end of the graph count as nodes.

The definitions leave out branches within branches. Here (ours) a level with the nodes before and after it is again a
piece of a branch, as in the series and parallel reductions of a two-terminal graph (Valdes, Tarjan, Lawler, "The
recognition of series parallel digraphs", 1979). Nodes that cannot be reduced are put in sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from shisha_rt.placement.problem import Problem

_DEEPEST: Final = 64
"""The deepest nesting of levels; branches of deeper levels are put in sequence."""


@dataclass(frozen=True, slots=True)
class Level:
    """Parallel branches, at least two, sorted by first node; `depth` is 1 if no branch has a level within."""

    branches: tuple[Items, ...]
    depth: int


Items = tuple[int | Level, ...]
"""Nodes and levels in an order in which they may run one after the other."""


def structure(problem: Problem) -> Items:
    """All nodes, with parallel branches in levels."""
    return _Reduction(problem).items()


def parallel_branches(problem: Problem) -> int:
    """Number of branches of the network that are parallel to another; of nested branches the innermost count."""
    return _parallel(structure(problem), _links(problem))


def nodes_of(items: Items) -> Iterator[int]:
    """Yield all nodes, one branch of a level after the other."""
    for item in items:
        if isinstance(item, Level):
            for branch in item.branches:
                yield from nodes_of(branch)
        else:
            yield item


def _parallel(items: Items, links: set[tuple[int, int]]) -> int:
    """Count parallel branches. A branch with levels of its own does not count; the branches of these levels do."""
    branches = [branch for item in items if isinstance(item, Level) for branch in item.branches]
    plain = [isinstance(branch[0], int) and all(pair in links for pair in pairwise(branch)) for branch in branches]
    return sum(is_plain or _parallel(branch, links) for branch, is_plain in zip(branches, plain, strict=True))


def _links(problem: Problem) -> set[tuple[int, int]]:
    """Pairs of adjacent nodes: the first feeds only the second, and only the first feeds the second."""
    only = {node: other for node, readers in enumerate(problem.readers) if len(readers) == 1 for other in readers}
    return {(node, other) for node, other in only.items() if len(problem.makers[other]) == 1}


class _Reduction:
    """Series-parallel reduction. `_edges` (nodes,): the nodes that each node feeds, with the branches that the edge
    replaces. The last two nodes are the beginning and the end.
    """

    def __init__(self, problem: Problem) -> None:
        count = len(problem.nodes)
        self._begin, self._end = count, count + 1
        makers, readers = problem.makers, problem.readers
        self._before = [set(linked or {self._begin}) for linked in makers]
        self._before += [set(), {n for n, linked in enumerate(readers) if not linked}]
        self._edges: list[dict[int, list[Items]]] = [
            {other: [] for other in sorted(linked) or [self._end]} for linked in readers
        ]
        self._edges += [{n: [] for n, linked in enumerate(makers) if not linked}, {}]
        self._placed: set[int] = set()

    def items(self) -> Items:
        """All items in order; nodes stay adjacent if the first feeds only the second, and only it feeds the second."""
        left = self._reduced()
        items: list[int | Level] = []
        for node in [*left, self._end]:
            if node not in self._placed:
                self._place(node, items)
        return tuple(items)

    def _place(self, node: int, items: list[int | Level]) -> None:
        """Append a node to `items`, after the branches leading to it that are not there yet."""
        for source in sorted(self._before[node], key=lambda source: (source != self._begin, source)):
            items += _joined(self._edges[source].pop(node, []))
        if node == self._end:
            return
        items.append(node)
        self._placed.add(node)
        if len(self._edges[node]) == 1:
            ((target, branch),) = self._edges[node].items()
            items += _joined(branch)
            self._edges[node][target] = []
            if target != self._end and len(self._before[target]) == 1:
                self._place(target, items)

    def _reduced(self) -> list[int]:
        """Remove nodes with one edge in and one out while there are any; return the other nodes."""
        waiting = deque(range(self._begin))
        gone: set[int] = set()
        while waiting:
            node = waiting.popleft()
            if node in gone or node >= self._begin or len(self._before[node]) != 1 or len(self._edges[node]) != 1:
                continue
            (source,), (target,) = self._before[node], self._edges[node]
            branch = *_joined(self._edges[source].pop(node)), node, *_joined(self._edges[node].pop(target))
            self._edges[source].setdefault(target, []).append(branch)
            self._before[target].discard(node)
            self._before[target].add(source)
            gone.add(node)
            waiting += source, target
        return [node for node in range(self._begin) if node not in gone]


def _joined(parallel: Sequence[Items]) -> Items:
    """The branches of one edge as items: none for a plain edge, a single branch as it is, several as a level."""
    if len(parallel) < 2:
        return parallel[0] if parallel else ()
    ordered = sorted(parallel, key=lambda branch: next(nodes_of(branch)))
    depth = 1 + max(item.depth if isinstance(item, Level) else 0 for branch in ordered for item in branch)
    if depth > _DEEPEST:
        return tuple(item for branch in ordered for item in branch)
    return (Level(tuple(ordered), depth),)
