"""Layers to split, at random, and every way to do so: the oracle of what chooses shares."""

from __future__ import annotations

import random
from collections.abc import Iterator

from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, Legs, SplitDevice, SplitLayer, SplitProblem
from shisha_rt.planner.strategies import Execution, SplitObjective, SplitVariable


def random_posynomial(rng: random.Random, least: float, most: float) -> Posynomial:
    """One to three terms, some falling: nothing that chooses integers may lean on how they grow."""
    return Posynomial(
        tuple(
            Monomial(
                rng.uniform(least, most),
                {name: rng.choice((-0.5, 0, 0.5, 1, 1, 1.3)) for name in ("H", "C", "N") if rng.random() < 0.7},
            )
            for _ in range(rng.randint(1, 3))
        )
    )


def random_device(rng: random.Random, name: str, *, one_for_all: bool = False) -> SplitDevice:
    """Some run multiples of channels or filters alone, or these by another formula than the rest."""
    limited = rng.random() < 0.5
    channels, filters = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 4))
    multiples = [Formula(random_posynomial(rng, 0.1, 10), None, channels, filters)] if rng.random() < 0.4 else []
    others = rng.choice(((1,), (1, 2), (None,), (1, 2, None), () if multiples else (1,)))
    return SplitDevice(
        name,
        (*multiples, *(Formula(random_posynomial(rng, 0.1, 10), number) for number in others)),
        Legs(random_posynomial(rng, 0.1, 10)) if rng.random() < 0.6 else None,
        rng.uniform(1, 10),
        rng.uniform(1, 10),
        {"room": Posynomial((Monomial(1.0, {"C": 1.0, "N": 1.0}),))} if limited else {},
        {"room": rng.uniform(50, 1500)} if limited else {},
        one_for_all,
    )


def random_layer(rng: random.Random, name: str, most: int, variable: SplitVariable, block: int) -> SplitLayer:
    sizes = {"H": rng.randint(1, 40), "W": 7, "C": rng.randint(1, 40), "k": 3, "N": rng.randint(1, 40), "s": 1}
    return SplitLayer(name, {**sizes, variable: rng.randint(1, most)}, variable, block)


def random_split_problem(rng: random.Random, most: int = 64, layers: int = 1) -> SplitProblem:
    """Up to 4 devices; `most`: of what is shared."""
    objective: SplitObjective = rng.choice(("latency", "energy"))
    execution: Execution = rng.choice(("sequence", "parallel"))
    variable: SplitVariable = rng.choice(("C", "N", "H"))
    return SplitProblem(
        tuple(random_layer(rng, f"layer{i}", most, variable, rng.choice((1, 3, 8, 16))) for i in range(layers)),
        tuple(random_device(rng, f"device{d}") for d in range(rng.randint(1, 4))),
        objective,
        execution,
    )


def block_shares(devices: int, units: int, block: int) -> Iterator[tuple[int, ...]]:
    """Every way to share units in whole blocks, what is left over with any one device."""
    blocks, left_over = divmod(units, block)
    for share in _compositions(devices, blocks):
        if not left_over:
            yield tuple(block * n for n in share)
        for d in range(devices if left_over else 0):
            yield tuple(block * n + left_over * (i == d) for i, n in enumerate(share))


def _compositions(parts: int, total: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(parts - 1, total - first):
            yield (first, *rest)
