"""Figure 13: the costs of all assignments of 15 consecutive operators, and the ranks of ALS and `exact` among them.

The paper shows one such subgraph for each network; here all are considered, equal ones once. Inputs of a subgraph are
in every memory, and its outputs cost nothing to move. On three devices there are at most 3^15 assignments, 14 million,
so the cost of each one can be computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.dcg.board import ALS, MODELLED, OPT, Case, place
from benchmarks.report.results import Row
from shisha_rt.papers.dcg.brute import every_cost_s
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Assignment, Problem, ProblemTensor

NODES: Final = 15
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Subgraph:
    """`cost_s` (assignments,): seconds, in the order of `brute`; `als` and `exact`: assignments of these solvers."""

    case: Case
    first: int
    problem: Problem
    cost_s: NDArray[np.float64]
    als: Assignment
    exact: Assignment

    @property
    def als_ratio(self) -> float:
        return self._ratio(self.als)

    @property
    def exact_ratio(self) -> float:
        return self._ratio(self.exact)

    def _ratio(self, assignment: Assignment) -> float:
        return cost(self.problem, assignment).total_s / float(self.cost_s.min())


def subgraphs(case: Case, step: int = 1) -> Iterator[Subgraph]:
    """Yield subgraphs from every `step`-th operator on; of subgraphs with equal costs only the first."""
    seen = set()
    for first in range(0, len(case.problem.nodes) - NODES + 1, step):
        problem = window(case.problem, first)
        alike = (
            tuple(node.cost_s for node in problem.nodes),
            tuple((tensor.producer, tensor.consumers, tensor.transfer_s) for tensor in problem.tensors),
        )
        if alike in seen:
            continue
        seen.add(alike)
        yield Subgraph(case, first, problem, every_cost_s(problem), place(problem, ALS), place(problem, OPT))


def window(problem: Problem, first: int, count: int = NODES) -> Problem:
    """The problem of `count` nodes from `first` on, without the others."""
    inside = range(first, first + count)
    tensors = [
        ProblemTensor(tensor.name, tensor.producer - first, consumers, tensor.transfer_s)
        for tensor in problem.tensors
        if tensor.producer in inside and (consumers := tuple(c - first for c in tensor.consumers if c in inside))
    ]
    return Problem(
        problem.devices,
        problem.memories,
        problem.memory_of,
        problem.nodes[first : first + count],
        tuple(tensors),
        transfer_counting=problem.transfer_counting,
    )


def subgraph_row(case: Case, step: int) -> Row:
    """A summary of a network's subgraphs."""
    found = [(len(one.cost_s), one.als_ratio, one.exact_ratio) for one in subgraphs(case, step)]
    sizes, als, exact = zip(*found, strict=True)
    return {
        "network": case.title,
        "p": case.sequence,
        "different subgraphs": len(found),
        "assignments, at most": max(sizes),
        "exact not the optimum": sum(abs(ratio - 1) > _ROUNDING for ratio in exact),
        "ALS not the optimum": sum(ratio > 1 + _ROUNDING for ratio in als),
        "worst ALS over optimum": max(als),
        "costs": MODELLED,
    }
