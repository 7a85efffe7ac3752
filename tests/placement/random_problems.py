"""Random placement problems of known shapes, small or large, for every solver to be tried on.

All seconds are small multiples of 1/8, and some are 0: sums of them are exact whatever their order, so costs may be
compared with `==`, and ties are common.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from shisha_rt.placement.problem import TRANSFER_COUNTINGS, Group, Node, Problem, ProblemTensor, TransferCounting
from shisha_rt.placement.problem_file import chain_links

SHAPES: Final = ("chain", "tree", "skip", "fan_out", "series_parallel", "dense")

Edge = tuple[int, int]

_MAX_GROUP_NODES: Final = 4


def random_problem(
    rng: random.Random,
    shape: str,
    nodes: int,
    devices: int,
    *,
    groups: int = 0,
    incapable: float = 0.2,
    own_memories: bool = False,
    transfer_counting: TransferCounting | None = None,
) -> Problem:
    """A problem of one of SHAPES; which devices share a memory is drawn too, unless each has its own.

    At most `groups`; they may overlap, cost more than their members, or stand on a device that cannot run one of them;
    `incapable` is the probability that a device cannot run a node. Either way of counting transfers, unless given.
    """
    memory_of = _random_memories(rng, devices, own_memories)
    memories = max(memory_of) + 1
    problem = Problem(
        devices=tuple(f"device{i}" for i in range(devices)),
        memories=tuple(f"memory{i}" for i in range(memories)),
        memory_of=memory_of,
        nodes=tuple(
            Node(f"node{i}", ("Conv", "Relu")[i % 2], _random_costs(rng, devices, incapable)) for i in range(nodes)
        ),
        tensors=tuple(
            ProblemTensor(f"tensor{i}", producer, consumers, _random_transfers(rng, memory_of))
            for i, (producer, consumers) in enumerate(_random_tensors(rng, nodes, _edges(rng, shape, nodes)))
        ),
        transfer_counting=rng.choice(TRANSFER_COUNTINGS) if transfer_counting is None else transfer_counting,
    )
    return replace(problem, groups=_random_groups(rng, problem, groups))


def random_small_problem(rng: random.Random, shape: str) -> Problem:
    """One small enough for every assignment to be tried (at most 4,096): 2 to 4 devices, all else drawn too."""
    devices = rng.randint(2, 4)
    nodes = rng.randint(1, {2: 10, 3: 7, 4: 6}[devices])
    return random_problem(rng, shape, nodes, devices, groups=rng.choice((0, 0, 2, 6)))


def random_assignment(rng: random.Random, problem: Problem) -> tuple[int, ...]:
    """A device for each node that can run it."""
    return tuple(rng.choice(node.capable) for node in problem.nodes)


def _seconds(rng: random.Random) -> float:
    return rng.choice((0, 1, 2, 3, 4, 8, 16, 24)) / 8


def _random_memories(rng: random.Random, devices: int, own: bool) -> tuple[int, ...]:
    if own:
        return tuple(range(devices))
    memory_of = [0]
    while len(memory_of) < devices:
        memory_of.append(rng.randint(0, max(memory_of) + 1))
    return tuple(memory_of)


def _random_costs(rng: random.Random, devices: int, incapable: float) -> tuple[float, ...]:
    cost_s = [math.inf if rng.random() < incapable else _seconds(rng) for _ in range(devices)]
    cost_s[rng.randrange(devices)] = _seconds(rng)
    return tuple(cost_s)


def _random_transfers(rng: random.Random, memory_of: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    memories = range(max(memory_of) + 1)
    return tuple(tuple(0.0 if memory == own else _seconds(rng) for memory in memories) for own in memory_of)


def _edges(rng: random.Random, shape: str, nodes: int) -> list[Edge]:
    """Pairs of nodes, the first before the second; a pair may come twice in a series-parallel shape."""
    chain = list(pairwise(range(nodes)))
    match shape:
        case "chain":
            return chain
        case "tree":
            return _tree(rng, nodes)
        case "skip":
            far = [(i, j) for j in range(nodes) for i in range(max(0, j - 6), j - 1)]
            return chain + rng.sample(far, min(len(far), nodes // 3))
        case "fan_out":
            return _fan_out(rng, nodes)
        case "series_parallel":
            return _series_parallel(rng, nodes)
        case "dense":
            return [(i, j) for j in range(nodes) for i in range(j) if rng.random() < 0.6]
    raise ValueError(f"no shape {shape!r}, expected one of {SHAPES}")


def _tree(rng: random.Random, nodes: int) -> list[Edge]:
    """Growing from its root, or running together into it."""
    edges = [(rng.randrange(node), node) for node in range(1, nodes)]
    return edges if rng.random() < 0.5 else [(nodes - 1 - b, nodes - 1 - a) for a, b in edges]


def _fan_out(rng: random.Random, nodes: int) -> list[Edge]:
    """Hubs that several nodes read at once; the last of these reads all the others and is the next hub."""
    edges, hub = [], 0
    while hub < nodes - 1:
        end = min(nodes - 1, hub + rng.randint(2, 6))
        edges += [(hub, node) for node in range(hub + 1, end + 1)]
        edges += [(node, end) for node in range(hub + 1, end)]
        hub = end
    return edges


def _series_parallel(rng: random.Random, nodes: int) -> list[Edge]:
    """From one edge, by putting a node on an edge, or on a copy of it."""
    if nodes < 2:
        return []
    order, edges = [0, 1], [(0, 1)]
    for node in range(2, nodes):
        at = rng.randrange(len(edges))
        first, last = edges[at]
        if rng.random() < 0.5:
            del edges[at]
        edges += [(first, node), (node, last)]
        order.insert(order.index(first) + 1, node)
    position = {node: i for i, node in enumerate(order)}
    return [(position[first], position[last]) for first, last in edges]


def _random_tensors(rng: random.Random, nodes: int, edges: Sequence[Edge]) -> list[tuple[int, tuple[int, ...]]]:
    """(producer, consumers) of each: what a node makes is mostly one tensor for all that read it, else several."""
    tensors = []
    for node in range(nodes):
        read_by = sorted(last for first, last in edges if first == node)
        if rng.random() < 0.7:
            tensors.append((node, tuple(sorted(set(read_by)))))  # with no reader: an output of the network
        else:
            tensors += [(node, (consumer,)) for consumer in read_by]
    return tensors


def _random_groups(rng: random.Random, problem: Problem, count: int) -> tuple[Group, ...]:
    links = sorted(chain_links(problem))
    groups = [_random_group(rng, problem, links) for _ in range(count)]
    return tuple({(group.nodes, group.device): group for group in groups}.values())


def _random_group(rng: random.Random, problem: Problem, links: Sequence[Edge]) -> Group:
    nodes = [rng.choice(links)[0] if links else rng.randrange(len(problem.nodes))]
    for _ in range(rng.randint(0, _MAX_GROUP_NODES - 1)):
        following = [last for first, last in links if first == nodes[-1]]
        nodes += [rng.choice(following)] if following else []
    able = [d for d in range(len(problem.devices)) if all(problem.nodes[n].cost_s[d] < math.inf for n in nodes)]
    if not able or rng.random() < 0.3:
        return Group(tuple(nodes), rng.randrange(len(problem.devices)), _seconds(rng))
    device = rng.choice(able)
    alone_eighths = int(8 * sum(problem.nodes[n].cost_s[device] for n in nodes))
    return Group(tuple(nodes), device, rng.randint(0, alone_eighths + 2) / 8)
