"""Figures 9 and 11: every scheme on every network at every p; Figures 10 and 12: which operators change device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.dcg.board import ALS, CPU_S, FITTED_TO, MODELLED, OPT, PIM_FIRST, SCHEMES, Case, place
from benchmarks.dcg.operands import form
from benchmarks.report.results import Row
from shisha_rt.model.dimensions import dimensions
from shisha_rt.placement.check import Cost, cost


@dataclass(frozen=True, slots=True)
class Placed:
    """Cost of a scheme on a network at sequence length p."""

    case: Case
    scheme: str
    cost: Cost


def placed(cases: Sequence[Case]) -> list[Placed]:
    return [
        Placed(case, scheme, cost(case.problem, place(case.problem, scheme))) for case in cases for scheme in SCHEMES
    ]


def speedup_rows(results: Sequence[Placed]) -> list[Row]:
    """Times in ms. `over CPU_S`: the speedup of Figure 9; the last two columns: gains of ALS and of the optimum."""
    total_s = {(one.case.network, one.case.sequence, one.scheme): one.cost.total_s for one in results}
    rows: list[Row] = []
    for one in results:
        others_s = [total_s[one.case.network, one.case.sequence, scheme] for scheme in (CPU_S, ALS, OPT)]
        rows.append(
            {
                "network": one.case.title,
                "p": one.case.sequence,
                "scheme": one.scheme,
                "computation ms": 1e3 * one.cost.node_s,
                "transfer ms": 1e3 * one.cost.transfer_s,
                "total ms": 1e3 * one.cost.total_s,
                "over CPU_S": others_s[0] / one.cost.total_s,
                "ALS over it": one.cost.total_s / others_s[1],
                "optimum over it": one.cost.total_s / others_s[2],
                "costs": FITTED_TO,
            }
        )
    return rows


def partition_rows(cases: Sequence[Case]) -> list[Row]:
    """Operators with a choice of devices, by type and size: how many each scheme puts on each device."""
    schemes = (PIM_FIRST, ALS, OPT)
    rows: list[Row] = []
    for case in cases:
        assignments = [place(case.problem, scheme) for scheme in schemes]
        found: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
        for index, operator in enumerate(case.graph.operators):
            if len(case.problem.nodes[index].capable) > 1:
                sizes = dimensions(case.graph, operator)
                size = f"{sizes['inner']}x{sizes['columns']}" if "inner" in sizes else f"{sizes['elements_out']}"
                used = tuple(assignment[index] for assignment in assignments)
                found[form(case.graph, operator), size, used] += 1
        for (name, size, used), number in sorted(found.items()):
            on = {scheme: case.problem.devices[d].upper() for scheme, d in zip(schemes, used, strict=True)}
            row = {"network": case.title, "p": case.sequence, "operator": name, "size": size, "number": number}
            rows.append({**row, **on, "costs": MODELLED})
    return rows
