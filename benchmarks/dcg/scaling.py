"""How the time of placement grows with the number of operators: transformer-like graphs with random costs."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.dcg.timing import Solver, solve_time_s
from benchmarks.report.results import Row
from shisha_rt.placement.als import als
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.problem import Node, Problem, ProblemTensor

DRAWN: Final = "costs drawn at random"
DEVICES: Final = ("cpu_s", "cpu_p", "pim")

_SOLVERS: Final[Mapping[str, Solver]] = {"ALS": als, "exact": exact_placement}

_BLOCK: Final = (
    ("query", (-1,)),
    ("key", (-1,)),
    ("value", (-1,)),
    ("scores", (0, 1)),
    ("softmax", (3,)),
    ("context", (2, 4)),
    ("output", (5,)),
    ("add", (6, -1)),
    ("wide", (7,)),
    ("gelu", (8,)),
    ("narrow", (9,)),
    ("add", (10, 7)),
)
"""The inputs of each operator of a block: numbers of operators in the block; -1: the last one of the block before."""
_NOT_ON_PIM: Final = frozenset({"scores", "softmax", "context", "gelu"})


def transformer_like(rng: random.Random, operators: int) -> Problem:
    """Blocks of attention and feed-forward with residuals, in sequence, until there are enough operators."""
    consumers: dict[int, list[int]] = {}
    nodes = []
    for index in range(operators):
        block, number = divmod(index, len(_BLOCK))
        op, reads = _BLOCK[number]
        costs_s = [rng.random(), rng.random(), math.inf if op in _NOT_ON_PIM else rng.random()]
        nodes.append(Node(f"{op}_{block}", op, tuple(costs_s)))
        for read in reads:
            producer = block * len(_BLOCK) + read
            if producer >= 0:
                consumers.setdefault(producer, []).append(index)
    tensors = []
    for producer, readers in consumers.items():
        to_pim_s, from_pim_s = rng.random(), rng.random()
        rows = ((0.0, to_pim_s), (0.0, to_pim_s), (from_pim_s, 0.0))
        tensors.append(ProblemTensor(f"tensor_{producer}", producer, tuple(readers), rows))
    return Problem(DEVICES, ("dram", "pim"), (0, 0, 1), tuple(nodes), tuple(tensors))


def scaling_rows(sizes: Sequence[int], repeats: int) -> list[Row]:
    """Medians of CPU time; `us per operator` is constant if the time is linear."""
    rows: list[Row] = []
    for operators in sizes:
        print(f"dcg: {operators} operators ...", flush=True)
        problem = transformer_like(random.Random(operators), operators)
        row: dict[str, object] = {"operators": operators, "tensors": len(problem.tensors)}
        for name, solver in _SOLVERS.items():
            taken_s = solve_time_s(repeats, solver, problem)
            row[f"{name} ms"] = 1e3 * taken_s
            row[f"{name} us per operator"] = 1e6 * taken_s / operators
        found = exact_placement(problem)
        row |= {"exact ended as": str(found.outcome), "width": int(found.statistics["width"])}
        rows.append(row | {"costs": DRAWN})
    return rows
