"""Figures 2(b) and 8 to 13 of the DCG papers, and Table 2: single operators, schemes on networks, subgraphs.

Table 2 has the operators that the PIM can run, by the shapes of their operands. Gemm and MatMul are (p, q) x (q, r).
The second operand of an element-wise operator has the shape of the first, of a row of it (r), of a column (p), or is
one number.

Figure 13 has the costs of all assignments of 15 consecutive operators, and the ranks of ALS and `exact` among them. The
paper shows one such subgraph for each network; here all are considered, equal ones once. Inputs of a subgraph are in
every memory, and its outputs cost nothing to move. On three devices there are at most 3^15 assignments, 14 million, so
the cost of each one can be computed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.dcg.board import (
    ALS,
    CPU_S,
    FITTED_TO,
    MADE_FROM,
    MODELLED,
    OPT,
    PIM_FIRST,
    SCHEMES,
    SEQUENCES,
    TITLES,
    Case,
    place,
)
from benchmarks.report.results import Row
from shisha_rt.costs.device_costs import operator_cost_s, transfer_cost_s
from shisha_rt.machine.device import Device
from shisha_rt.model.dimensions import dimensions
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.papers.dcg.brute import every_cost_s
from shisha_rt.placement.check import Cost, cost
from shisha_rt.placement.problem import Assignment, Problem, ProblemTensor

# --- table 2: operands of the PIM's operators -------------------------------------------------------------------------


PIM: Final = 2

PAPER: Final[Mapping[str, tuple[str, str, str]]] = {
    "Gemm": ("-", "-", "768x768 768x2304 768x3072 3072x768"),
    "Gemm, B transposed": ("512x2 512x512", "768x2 768x768", "-"),
    "MatMul": ("512x512 512x2048 2048x512", "768x768 768x3072 3072x768", "-"),
    "(p, r) + (p, r)": ("512", "768", "3072"),
    "(p, r) + (r)": ("1 512 2048", "1 768 3072", "1 768"),
    "(p, r) + (1)": ("2048", "3072", "3072"),
    "(p, r) x (p, r)": ("2048", "3072", "3072"),
    "(p, r) x (r)": ("512", "768", "768"),
    "(p, r) x (1)": ("2048", "3072", "3072"),
    "(p, r) - (p)": ("512", "768", "768"),
}
"""By network: q x r, or r."""

_NOTES: Final[Mapping[str, str]] = {
    "Gemm, B transposed": "ours have one row, the first token's; the paper writes p",
    "(p, r) + (p, r)": "GPT-2: its residual additions, 768 wide, are not in the paper's table",
}

_SIGN: Final[Mapping[str, str]] = {"Add": "+", "Sub": "-", "Mul": "x"}


def operand_rows(cases: Sequence[Case]) -> Iterator[Row]:
    """`cases`: one for each network."""
    by_case = [_forms(case) for case in cases]
    for form in dict.fromkeys((*PAPER, *(form for forms in by_case for form in forms))):
        paper = PAPER.get(form, ("-", "-", "-"))
        row: dict[str, object] = {"operation": form}
        for title, sizes, forms in zip(TITLES.values(), paper, by_case, strict=True):
            row[f"{title}, paper"] = sizes
            row[f"{title}, ours"] = " ".join(forms.get(form, ["-"]))
        yield row | {"note": _NOTES.get(form, "")}


def _forms(case: Case) -> Mapping[str, list[str]]:
    """Form -> sizes, ascending."""
    sizes: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for operator, node in zip(case.graph.operators, case.problem.nodes, strict=True):
        if PIM in node.capable:
            sizes[form(case.graph, operator)].add(tuple(_size(case.graph, operator)))
    return {name: ["x".join(map(str, size)) for size in sorted(distinct)] for name, distinct in sizes.items()}


def form(graph: Graph, operator: Operator) -> str:
    if operator.op_type not in _SIGN:
        return operator.op_type + ", B transposed" * (operator.attributes.get("transB", 0) == 1)
    shapes = [graph.tensor(name).shape for name in operator.inputs]
    large, small = sorted(shapes, key=math.prod, reverse=True)
    if math.prod(small) == math.prod(large):
        second = "(p, r)"
    elif math.prod(small) == 1:
        second = "(1)" if large[-1] > 1 else "(r)"
    else:
        second = "(p)" if small[-1] == 1 else "(r)"
    return f"(p, r) {_SIGN[operator.op_type]} {second}"


def _size(graph: Graph, operator: Operator) -> Iterator[int]:
    if operator.op_type in _SIGN:
        yield graph.tensor(operator.outputs[0]).shape[-1]
    else:
        sizes = dimensions(graph, operator)
        yield from (sizes["inner"], sizes["columns"])


# --- figures 2(b) and 8: transfers and single operators ---------------------------------------------------------------


ELEMENTS: Final = tuple(2**power for power in range(10, 21))
WIDTH: Final = 512
STATED_ELEMENTS: Final = 2**15
"""64 KiB in elements of 2 bytes: the size for which the text of section 2.3 states a ratio."""


def transfer_rows(devices: Sequence[Device]) -> Iterator[Row]:
    """Figure 2(b)."""
    cpu, _, pim = devices
    for elements in ELEMENTS:
        tensor = Tensor("moved", (elements,), "FP32")
        to_pim_s, from_pim_s = transfer_cost_s(tensor, cpu, pim), transfer_cost_s(tensor, pim, cpu)
        yield {
            "elements": elements,
            "bytes moved": 2 * elements,
            "CPU to PIM ms": 1e3 * to_pim_s,
            "PIM to CPU ms": 1e3 * from_pim_s,
            "ratio": from_pim_s / to_pim_s,
            "costs": MADE_FROM,
        }


def operator_rows(devices: Sequence[Device]) -> Iterator[Row]:
    """Figure 8: (p x 512) + (p x 512), and (p x 512) x (512 x 512)."""
    for figure, op, second in (("8(a)", "Add", None), ("8(b)", "MatMul", (WIDTH, WIDTH))):
        for p in SEQUENCES:
            graph = _alone(op, (p, WIDTH), second or (p, WIDTH))
            cpu_s, cpu_p, pim = (operator_cost_s(graph, graph.operators[0], device) for device in devices)
            yield {
                "figure": figure,
                "operator": op,
                "p": p,
                "CPU_S ms": 1e3 * cpu_s,
                "CPU_P ms": 1e3 * cpu_p,
                "PIM ms": 1e3 * pim,
                "CPU_P over CPU_S": cpu_s / cpu_p,
                "PIM over CPU_S": cpu_s / pim,
                "PIM over CPU_P": cpu_p / pim,
                "costs": MADE_FROM,
            }


def _alone(op: str, first: tuple[int, ...], second: tuple[int, ...]) -> Graph:
    """An operator of two matrices; its result is (p, WIDTH), like its first operand."""
    shapes = {"a": first, "b": second, "y": first}
    tensors = {name: Tensor(name, shape, "FP32") for name, shape in shapes.items()}
    operator = Operator(op, op, "", ("a", "b"), ("y",), {})
    return Graph(op, (operator,), (tensors["a"], tensors["b"]), (tensors["y"],), tensors, {})


# --- figures 9 to 12: schemes on networks -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    case: Case
    scheme: str
    cost: Cost


def placed(cases: Sequence[Case]) -> list[Placed]:
    return [
        Placed(case, scheme, cost(case.problem, place(case.problem, scheme))) for case in cases for scheme in SCHEMES
    ]


def speedup_rows(results: Sequence[Placed]) -> Iterator[Row]:
    """Times in ms. `over CPU_S`: the speedup of Figure 9; the last two columns: gains of ALS and of the optimum."""
    total_s = {(placed.case.network, placed.case.sequence, placed.scheme): placed.cost.total_s for placed in results}
    for placed in results:
        others_s = [total_s[placed.case.network, placed.case.sequence, scheme] for scheme in (CPU_S, ALS, OPT)]
        yield {
            "network": placed.case.title,
            "p": placed.case.sequence,
            "scheme": placed.scheme,
            "computation ms": 1e3 * placed.cost.node_s,
            "transfer ms": 1e3 * placed.cost.transfer_s,
            "total ms": 1e3 * placed.cost.total_s,
            "over CPU_S": others_s[0] / placed.cost.total_s,
            "ALS over it": placed.cost.total_s / others_s[1],
            "optimum over it": placed.cost.total_s / others_s[2],
            "costs": FITTED_TO,
        }


def partition_rows(cases: Sequence[Case]) -> Iterator[Row]:
    """Operators with a choice of devices, by type and size: how many each scheme puts on each device."""
    schemes = (PIM_FIRST, ALS, OPT)
    for case in cases:
        assignments = [place(case.problem, scheme) for scheme in schemes]
        counts: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
        for index, operator in enumerate(case.graph.operators):
            if len(case.problem.nodes[index].capable) > 1:
                sizes = dimensions(case.graph, operator)
                size = f"{sizes['inner']}x{sizes['columns']}" if "inner" in sizes else f"{sizes['elements_out']}"
                used = tuple(assignment[index] for assignment in assignments)
                counts[form(case.graph, operator), size, used] += 1
        for (name, size, used), number in sorted(counts.items()):
            on = {scheme: case.problem.devices[d].upper() for scheme, d in zip(schemes, used, strict=True)}
            row = {"network": case.title, "p": case.sequence, "operator": name, "size": size, "number": number}
            yield {**row, **on, "costs": MODELLED}


# --- figure 13: subgraphs ---------------------------------------------------------------------------------------------


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

    def over_least(self, assignment: Assignment) -> float:
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
    rows = [
        (len(subgraph.cost_s), *map(subgraph.over_least, (subgraph.als, subgraph.exact)))
        for subgraph in subgraphs(case, step)
    ]
    sizes, als, exact = zip(*rows, strict=True)
    return {
        "network": case.title,
        "p": case.sequence,
        "different subgraphs": len(rows),
        "assignments, at most": max(sizes),
        "exact not the optimum": sum(abs(ratio - 1) > _ROUNDING for ratio in exact),
        "ALS not the optimum": sum(ratio > 1 + _ROUNDING for ratio in als),
        "worst ALS over optimum": max(als),
        "costs": MODELLED,
    }
