"""A schedule of any network, fork–join blocks or not: by lists, and then without what does not pay.

Nodes are taken by the longest way from them to the end, each to the place where it ends first, a hand-over later if
what it reads was made elsewhere (HEFT: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling
for heterogeneous computing", 2002; without its insertion). What a place runs in a row is one stage, up to where another
place waits for it, or it for another.

Every stage costs a hand-over that lists do not see. So pieces go back to the place that is the quickest for all, one
after the other, the smallest first, while the plan is predicted to take no longer for it; and then stages go on past
nodes that are waited for elsewhere, where that can wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shisha_rt.outcome import LeftSeconds, forever
from shisha_rt.papers.partitiontuner.partition_plan import foretold, partition_stage
from shisha_rt.papers.partitiontuner.processors import INPUT, ProcessorCosts
from shisha_rt.plan.plan import Plan


def listed(costs: ProcessorCosts, left_s: LeftSeconds = forever) -> tuple[Plan, tuple[int, ...]] | None:
    """A plan, each stage after those that make what it reads; None where no place by itself can run every node."""
    whole_s = [math.fsum(row[place] for row in costs.time_s) for place in range(len(costs.places))]
    home = whole_s.index(min(whole_s))
    if whole_s[home] == math.inf:
        return None
    links = _Links(costs)
    best = _by_lists(costs, links, home)
    best_plan = _plan(costs, links, best)
    best_s = foretold(costs, best_plan).latency_s
    gained = True
    while gained:
        gained = False
        for piece in sorted(
            _pieces(links, best, home), key=lambda nodes: math.fsum(costs.time_s[n][home] for n in nodes)
        ):
            if left_s() <= 0:
                return best_plan, best
            moved = tuple(home if node in piece else place for node, place in enumerate(best))
            plan = _plan(costs, links, moved)
            seconds = foretold(costs, plan).latency_s
            if seconds <= best_s:
                best, best_plan, best_s, gained = moved, plan, seconds, True
    passed = frozenset[int]()
    for node in range(len(costs.spans)):
        if left_s() <= 0:
            break
        if all(best[n] == best[node] for n in links.after[node]):
            continue
        plan = _plan(costs, links, best, passed | {node})
        seconds = foretold(costs, plan).latency_s
        if seconds <= best_s and len(plan.stages) < len(best_plan.stages):
            passed, best_plan, best_s = passed | {node}, plan, seconds
    return best_plan, best


class _Links:
    """(nodes,): of which others each reads what they make, and which read what it makes."""

    def __init__(self, costs: ProcessorCosts) -> None:
        self.before: list[set[int]] = [set() for _ in costs.spans]
        self.after: list[set[int]] = [set() for _ in costs.spans]
        for tensor in costs.passed:
            if tensor.maker != INPUT:
                self.after[tensor.maker].update(tensor.readers)
                for reader in tensor.readers:
                    self.before[reader].add(tensor.maker)


def _by_lists(costs: ProcessorCosts, links: _Links, home: int) -> tuple[int, ...]:
    """List scheduling: each node on the place where it ends first; of equal places at home."""
    places = sorted(range(len(costs.places)), key=lambda place: place != home)
    chosen, ends_s, free_s = [home] * len(costs.spans), [0.0] * len(costs.spans), [0.0] * len(places)

    def end_s(node: int, place: int) -> float:
        ready_s = (ends_s[n] + (0.0 if chosen[n] == place else costs.handover_s) for n in links.before[node])
        return max(free_s[place], *ready_s, 0.0) + costs.time_s[node][place]

    for node in _in_order(costs, links):
        place = min(places, key=lambda place: end_s(node, place))
        ends_s[node] = free_s[place] = end_s(node, place)
        chosen[node] = place
    return tuple(chosen)


def _in_order(costs: ProcessorCosts, links: _Links) -> list[int]:
    """Order nodes by the longest way to the end, every node at its least; no node before one that it reads from."""
    left_s = [min(row) for row in costs.time_s]
    for node in reversed(range(len(left_s))):
        left_s[node] += max((left_s[n] for n in links.after[node]), default=0.0)
    return sorted(range(len(left_s)), key=lambda node: (-left_s[node], node))


def _pieces(links: _Links, chosen: tuple[int, ...], home: int) -> Iterator[frozenset[int]]:
    """Nodes away from home, those together that are connected there."""
    left = {node for node, place in enumerate(chosen) if place != home}
    while left:
        piece, edge = set[int](), [min(left)]
        while edge:
            node = edge.pop()
            if node in left:
                left.remove(node)
                piece.add(node)
                edge += links.before[node] | links.after[node]
        yield frozenset(piece)


def _plan(costs: ProcessorCosts, links: _Links, chosen: tuple[int, ...], passed: frozenset[int] = frozenset()) -> Plan:
    """Make a plan of the lists: a stage ends where its last node is waited for elsewhere, or its next one waits.

    Not behind those `passed`. No stage is in a circle with another for that: a node that needs what came of its own
    stage elsewhere is in a later one.
    """
    stages: list[list[int]] = []
    after: list[set[int]] = []
    ancestors: list[set[int]] = []
    stage_of: dict[int, int] = {}
    open_at: dict[int, int] = {}
    for node in _in_order(costs, links):
        place = chosen[node]
        needs = {stage_of[n] for n in links.before[node]}
        at = open_at.get(place)
        if at is None or not needs <= ancestors[at] | {at}:
            at = open_at[place] = len(stages)
            stages.append([])
            after.append(needs)
            ancestors.append(needs.union(*(ancestors[need] for need in needs)))
        stages[at].append(node)
        stage_of[node] = at
        if node not in passed and any(chosen[n] != place for n in links.after[node]):
            del open_at[place]
    return Plan(
        tuple(
            partition_stage(costs, nodes, chosen[nodes[0]], tuple(sorted(waits)))
            for nodes, waits in zip(stages, after, strict=True)
        )
    )
