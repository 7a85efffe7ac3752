"""Table 2: the operators that the PIM can run, by the shapes of their operands.

Gemm and MatMul are (p, q) x (q, r). The second operand of an element-wise operator has the shape of the first, of a row
of it (r), of a column (p), or is one number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from benchmarks.dcg.board import TITLES, Case
from benchmarks.report.results import Row
from shisha_rt.model.dimensions import dimensions
from shisha_rt.model.graph import Graph, Operator

PIM: Final = 2

PAPER: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
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
)
"""By network: q x r, or r."""

_NOTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Gemm, B transposed": "ours have one row, the first token's; the paper writes p",
        "(p, r) + (p, r)": "GPT-2: its residual additions, 768 wide, are not in the paper's table",
    }
)

_SIGN: Final[Mapping[str, str]] = MappingProxyType({"Add": "+", "Sub": "-", "Mul": "x"})


def operand_rows(cases: Sequence[Case]) -> list[Row]:
    """`cases`: one for each network."""
    found = [_forms(case) for case in cases]
    rows: list[Row] = []
    for form in dict.fromkeys((*PAPER, *(form for forms in found for form in forms))):
        paper = PAPER.get(form, ("-", "-", "-"))
        row: dict[str, object] = {"operation": form}
        for title, sizes, forms in zip(TITLES.values(), paper, found, strict=True):
            row[f"{title}, paper"] = sizes
            row[f"{title}, ours"] = " ".join(forms.get(form, ["-"]))
        rows.append(row | {"note": _NOTES.get(form, "")})
    return rows


def _forms(case: Case) -> Mapping[str, list[str]]:
    """Form -> sizes, ascending."""
    sizes: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for operator, node in zip(case.graph.operators, case.problem.nodes, strict=True):
        if PIM in node.capable:
            sizes[form(case.graph, operator)].add(tuple(_size(case.graph, operator)))
    return {name: ["x".join(map(str, one)) for one in sorted(found)] for name, found in sizes.items()}


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
