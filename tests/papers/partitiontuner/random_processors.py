"""Random networks of operators on places that are a processor each; a group may run where its members cannot."""

from __future__ import annotations

import math
import random

from shisha_rt.costs.operator_costs import GroupCost
from shisha_rt.papers.partitiontuner.processors import INPUT, Passed, ProcessorCosts

Edge = tuple[int, int]


def fork_join(rng: random.Random, blocks: int) -> list[Edge]:
    """Blocks of branches one after the other, each branch a short chain, with a node before and after each block."""
    edges: list[Edge] = []
    last, count = 0, 1
    for _ in range(blocks):
        ends = []
        for _ in range(rng.randint(1, 4)):
            at = last
            for _ in range(rng.randint(1, 3)):
                edges.append((at, count))
                at, count = count, count + 1
            ends.append(at)
        edges += [(end, count) for end in ends]
        last, count = count, count + 1
    return edges


def tangled(rng: random.Random, nodes: int) -> list[Edge]:
    """Each node reads one or two of the few before it."""
    return [
        (node - back, node)
        for node in range(1, nodes)
        for back in rng.sample(range(1, min(node, 4) + 1), rng.randint(1, min(2, node)))
    ]


def random_processors(
    rng: random.Random, edges: list[Edge], places: int = 2, *, moving: bool = True, handover_s: float = 0.0
) -> ProcessorCosts:
    """Seconds are multiples of 1/8. The first place runs everything; each tensor is read by all that the edges say."""
    count = 1 + max(reader for _, reader in edges)
    read_by = {node: sorted({reader for maker, reader in edges if maker == node}) for node in range(count)}

    def seconds() -> float:
        return rng.randint(1, 24) / 8

    def ways() -> tuple[float, ...]:
        return tuple(rng.randint(0, 4) / 8 if moving and place else 0.0 for place in range(places))

    time_s = [[seconds() if not place or rng.random() < 0.7 else math.inf for place in range(places)] for _ in read_by]
    groups = [
        GroupCost((maker, readers[0]), place, seconds())
        for maker, readers in read_by.items()
        if readers == [maker + 1] and sum(reader == readers[0] for _, reader in edges) == 1 and rng.random() < 0.5
        for place in rng.sample(range(places), 1)
        if time_s[maker][place] < math.inf
    ]
    return ProcessorCosts(
        places=tuple(f"p{place}" for place in range(places)),
        spans=tuple((node, node) for node in range(count)),
        names=tuple(f"n{node}" for node in range(count)),
        ops=tuple(rng.choice(("Conv", "Relu", "Add")) for _ in range(count)),
        time_s=tuple(map(tuple, time_s)),
        groups=tuple(groups),
        passed=(
            Passed("x", INPUT, (0,), False, ways(), ways()),
            *(Passed(f"t{node}", node, tuple(read), not read, ways(), ways()) for node, read in read_by.items()),
        ),
        handover_s=handover_s,
    )
