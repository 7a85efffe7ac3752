"""The least makespan of any assignment and any order, by going through sets of nodes that are done, the smallest first.

Written apart from the search: it has no bounds, no order of starts, and appends whatever can come next.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict

from shisha_rt.papers.partitiontuner.unbarred import can_be_tried
from shisha_rt.placement.problem import Problem
from tests.placement.random_problems import SHAPES, random_problem

_Label = tuple[tuple[float, ...], tuple[tuple[int, int, float], ...], tuple[tuple[int, int, float], ...]]
"""When processors are free; (node, device, end) of all nodes; (tensor, memory, time) of what has come."""


def small_problem(seed: int) -> Problem:
    """On two processors with memories of their own: of up to 12 nodes each tenth, of up to 8 the others."""
    rng = random.Random(seed)
    while True:
        nodes, groups = rng.randint(2, 8 if seed % 10 else 12), rng.choice((0, 0, 3))
        shape = SHAPES[seed % len(SHAPES)]
        problem = random_problem(rng, shape, nodes, 2, groups=groups, own_memories=True, transfer_counting="once")
        if can_be_tried(problem):
            return problem


def least_of_any_order_s(problem: Problem) -> float:
    """Of problems that count moves `once`."""
    assert problem.transfer_counting == "once"
    processors = sorted({problem.processor_of(device) for device in range(len(problem.devices))})
    pieces: list[tuple[tuple[int, ...], int, float]]
    pieces = [((n,), d, s) for n, node in enumerate(problem.nodes) for d, s in enumerate(node.cost_s) if s < math.inf]
    pieces += [(group.nodes, group.device, group.cost_s) for group in problem.groups]
    by_done: dict[frozenset[int], list[_Label]] = defaultdict(list)
    by_done[frozenset()] = [((0.0,) * len(processors), (), ())]
    everything = frozenset(range(len(problem.nodes)))
    for size in range(len(everything)):
        for done in [subset for subset in by_done if len(subset) == size]:
            for label in _unbettered(problem, done, by_done.pop(done)):
                for nodes, device, cost_s in pieces:
                    reads = {problem.tensors[t].producer for node in nodes for t in problem.inputs[node]}
                    if not done.intersection(nodes) and reads <= done.union(nodes):
                        processor = processors.index(problem.processor_of(device))
                        by_done[done.union(nodes)].append(_with(problem, label, nodes, device, cost_s, processor))
    return min(max(free_s) for free_s, _, _ in by_done[everything])


def _with(
    problem: Problem, label: _Label, nodes: tuple[int, ...], device: int, cost_s: float, processor: int
) -> _Label:
    free_s, ended, came = label
    where = {node: (on, end_s) for node, on, end_s in ended}
    memory, there = problem.memory_of[device], {(tensor, memory): at_s for tensor, memory, at_s in came}
    start_s, moving_s, moved = free_s[processor], 0.0, set()
    for index in {t for node in nodes for t in problem.inputs[node]}:
        tensor = problem.tensors[index]
        if tensor.producer in nodes:
            continue
        source, made_s = where[tensor.producer]
        start_s = max(start_s, made_s, there.get((index, memory), 0.0))
        if problem.memory_of[source] != memory and (index, memory) not in there:
            moving_s += tensor.transfer_s[source][memory]
            moved.add(index)
    end_s = start_s + moving_s + cost_s
    free = tuple(end_s if number == processor else other_s for number, other_s in enumerate(free_s))
    now_there = there | {(index, memory): start_s + moving_s for index in moved}
    return (
        free,
        tuple(sorted([*ended, *((node, device, end_s) for node in nodes)])),
        tuple(sorted((tensor, where_to, at_s) for (tensor, where_to), at_s in now_there.items())),
    )


def _unbettered(problem: Problem, done: frozenset[int], labels: list[_Label]) -> list[_Label]:
    """Those that no other with the same nodes on the same devices is as early as in everything that still matters."""
    read = {t.producer for t in problem.tensors if t.producer in done and not done.issuperset(t.consumers)}
    alike: dict[object, list[tuple[tuple[float, ...], _Label]]] = defaultdict(list)
    for free_s, ended, came in labels:
        still = [(node, on, end_s) for node, on, end_s in ended if node in read]
        come = [(t, memory, at_s) for t, memory, at_s in came if problem.tensors[t].producer in read]
        key = tuple((node, on) for node, on, _ in still), tuple((t, memory) for t, memory, _ in come)
        times = (*free_s, *(end_s for _, _, end_s in still), *(at_s for _, _, at_s in come))
        alike[key].append((times, (free_s, tuple(ended), came)))
    kept: list[_Label] = []
    for entries in alike.values():
        best: list[tuple[float, ...]] = []
        for times, label in sorted(entries, key=lambda entry: sum(entry[0])):
            if not any(all(a <= b for a, b in zip(other, times, strict=True)) for other in best):
                best.append(times)
                kept.append(label)
    return kept
