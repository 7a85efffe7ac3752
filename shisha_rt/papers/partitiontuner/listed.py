"""List scheduling of any network, of fork–join blocks or not, followed by a local search that removes stages.

Nodes are taken in the order of their longest paths to the end, each on the place where it ends first; a node starts a
hand-over later if an input was computed elsewhere (HEFT: Topcuoglu, Hariri, Wu, "Performance-effective and
low-complexity task scheduling for heterogeneous computing", 2002; without its insertion). Consecutive nodes of a place
are one stage, up to a node that another place waits for, or that waits for another place.

Every stage costs a hand-over that list scheduling ignores. So connected pieces move back to the place that is the
fastest for the whole network (home), the smallest first, as long as the predicted latency does not grow. Then stages
are joined past nodes that other places wait for, on the same condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shisha_rt.outcome import LeftSeconds, forever
from shisha_rt.papers.partitiontuner.partition_plan import foretold, partition_stage
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.placement.problem import Problem
from shisha_rt.plan.plan import Plan


def listed(costs: ProcessorCosts, left_s: LeftSeconds = forever) -> tuple[Plan, tuple[int, ...]] | None:
    """Return a plan, whose stages wait for those that compute their inputs, and the place of each node (nodes,).

    None if no place can run every node. `left_s`: the search stops when no time is left.
    """
    whole_s = [math.fsum(row[place] for row in costs.time_s) for place in range(len(costs.places))]
    home = whole_s.index(min(whole_s))
    if whole_s[home] == math.inf:
        return None
    links = apart_problem(costs)
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
        if all(best[n] == best[node] for n in links.readers[node]):
            continue
        plan = _plan(costs, links, best, passed | {node})
        seconds = foretold(costs, plan).latency_s
        if seconds <= best_s and len(plan.stages) < len(best_plan.stages):
            passed, best_plan, best_s = passed | {node}, plan, seconds
    return best_plan, best


def _by_lists(costs: ProcessorCosts, links: Problem, home: int) -> tuple[int, ...]:
    """List scheduling: each node on the place where it ends first; ties: home."""
    places = sorted(range(len(costs.places)), key=lambda place: place != home)
    chosen, ends_s, free_s = [home] * len(costs.spans), [0.0] * len(costs.spans), [0.0] * len(places)

    def end_s(node: int, place: int) -> float:
        ready_s = (ends_s[n] + (0.0 if chosen[n] == place else costs.handover_s) for n in links.makers[node])
        return max(free_s[place], *ready_s, 0.0) + costs.time_s[node][place]

    for node in _in_order(costs, links):
        place = min(places, key=lambda place: end_s(node, place))
        ends_s[node] = free_s[place] = end_s(node, place)
        chosen[node] = place
    return tuple(chosen)


def _in_order(costs: ProcessorCosts, links: Problem) -> list[int]:
    """Nodes by their longest paths to the end, with each node's least time; no node before one that it reads from."""
    left_s = [min(row) for row in costs.time_s]
    for node in reversed(range(len(left_s))):
        left_s[node] += max((left_s[n] for n in links.readers[node]), default=0.0)
    return sorted(range(len(left_s)), key=lambda node: (-left_s[node], node))


def _pieces(links: Problem, chosen: tuple[int, ...], home: int) -> Iterator[frozenset[int]]:
    """Yield the connected pieces of nodes away from home."""
    left = {node for node, place in enumerate(chosen) if place != home}
    while left:
        piece, edge = set[int](), [min(left)]
        while edge:
            node = edge.pop()
            if node in left:
                left.remove(node)
                piece.add(node)
                edge += links.makers[node] | links.readers[node]
        yield frozenset(piece)


def _plan(costs: ProcessorCosts, links: Problem, chosen: tuple[int, ...], passed: frozenset[int] = frozenset()) -> Plan:
    """Plan of a list schedule: a stage ends after a node that another place waits for, unless it is among `passed`, and
    before a node that waits for a stage that this one does not wait for.

    So stages never wait for each other in a circle: a node that depends on its own stage by way of another place begins
    a new stage.
    """
    stages: list[list[int]] = []
    after: list[set[int]] = []
    ancestors: list[set[int]] = []
    stage_of: dict[int, int] = {}
    open_at: dict[int, int] = {}
    for node in _in_order(costs, links):
        place = chosen[node]
        needs = {stage_of[n] for n in links.makers[node]}
        at = open_at.get(place)
        if at is None or not needs <= ancestors[at] | {at}:
            at = open_at[place] = len(stages)
            stages.append([])
            after.append(needs)
            ancestors.append(needs.union(*(ancestors[need] for need in needs)))
        stages[at].append(node)
        stage_of[node] = at
        if node not in passed and any(chosen[n] != place for n in links.readers[node]):
            del open_at[place]
    return Plan(
        tuple(
            partition_stage(costs, nodes, chosen[nodes[0]], tuple(sorted(waits)))
            for nodes, waits in zip(stages, after, strict=True)
        )
    )
