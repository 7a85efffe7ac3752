"""The tables and figures of the DCG papers, repeated by models: `python -m benchmarks dcg`, `--quick` for fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from benchmarks.dcg.board import FITTED_TO, MADE_FROM, MODELLED, SEQUENCES, SHOWN, TITLES, board_devices, cases
from benchmarks.dcg.figures import (
    operand_rows,
    operator_rows,
    partition_rows,
    placed,
    speedup_rows,
    subgraph_row,
    transfer_rows,
)
from benchmarks.dcg.statements import (
    figure_9_statements,
    figure_11_statements,
    operator_statements,
    partition_statements,
    subgraph_statement,
    table_statements,
)
from benchmarks.dcg.tables import DRAWN, quantities, scaling_rows
from benchmarks.report.page import words
from benchmarks.report.report import Report
from benchmarks.report.results import Row

COSTS: Final = {"scaling": DRAWN, "transfers": MADE_FROM, "operators": MADE_FROM, "speedups": FITTED_TO}
"""The source of costs of a table, if it is not `MODELLED`."""
FULL: Final = 9, (100, 300, 1000, 3000, 10_000, 30_000, 100_000), 1
"""Repeats; numbers of operators of the graphs for the growth of times; step between subgraphs considered."""
QUICK: Final = 3, (100, 1000, 10_000), 10


def dcg(
    quick: Annotated[bool, typer.Option("--quick", help="Graphs up to 10,000 operators, and fewer subgraphs.")] = False,
) -> None:
    """The DCG papers' tables and figures beside ours; costs are modelled, the algorithms' own times measured."""
    repeats, sizes, step = QUICK if quick else FULL
    report = Report("dcg", quick=quick)
    # First, while the garbage collector has few other objects to traverse.
    scaling = list(scaling_rows(sizes, min(5, repeats)))

    devices = board_devices()
    networks = list(cases(tuple(TITLES), SEQUENCES))
    at_shown = [case for case in networks if case.sequence == SHOWN]

    counted = quantities(at_shown, repeats)
    transfers, operators = list(transfer_rows(devices)), list(operator_rows(devices))
    results = placed(networks)
    speedups, partitions = list(speedup_rows(results)), list(partition_rows(at_shown))
    subgraphs = [subgraph_row(case, step) for case in at_shown]
    statements = [
        *table_statements(counted),
        *operator_statements(transfers, operators),
        *figure_9_statements(results),
        *figure_11_statements(results),
        *partition_statements(partitions),
        subgraph_statement(subgraphs),
    ]

    tables: dict[str, tuple[str, Sequence[Row]]] = {
        "tables": (f"Tables 1 and 3, p = {SHOWN}", [quantity.row() for quantity in counted]),
        "table_2": ("Table 2: q x r, or r, of the operators that the PIM takes", list(operand_rows(at_shown))),
        "scaling": ("CPU time to place, medians", scaling),
        "transfers": ("Figure 2(b)", transfers),
        "operators": ("Figure 8", operators),
        "speedups": ("Figures 9 and 11", speedups),
        "partitions": (f"Figures 10 and 12, p = {SHOWN}: operators with a choice", partitions),
        "subgraphs": (f"Figure 13, p = {SHOWN}", subgraphs),
        "statements": ("The papers' statements and ours", [statement.row() for statement in statements]),
    }
    for name, (title, rows) in tables.items():
        costs = COSTS.get(name, MODELLED)
        if name not in ("transfers", "speedups", "partitions"):
            report.show(f"{title} ({costs})", rows)
        report.save(rows, f"dcg_{name}", costs=costs)
    shown = {title: rows for name, (title, rows) in tables.items() if name in _ON_PAGE}
    report.save_page(words(__file__)[0], dict(reversed(shown.items())))


_ON_PAGE: Final = ("tables", "subgraphs", "statements")
