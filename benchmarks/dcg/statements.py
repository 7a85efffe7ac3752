"""Statements of the papers beside our figures: `claims.md`, and the rows of `tables`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from benchmarks.dcg.board import ALS, CPU_P_FIRST, CPU_S, DUET, OPT, PIM_FIRST, SEQUENCES, SHOWN, TITLES
from benchmarks.dcg.figures import STATED_ELEMENTS, Placed
from benchmarks.dcg.tables import Quantity
from benchmarks.report.page import Claims, Repeats, Statement
from benchmarks.report.results import Row, number

SAME: Final = 0.05
NEAR: Final = 0.15
_CLAIMS: Final = Claims.beside(__file__, "ours", "ours, optimum")

Figures = Sequence[float]


def judged(paper: Figures, ours: Figures) -> Repeats:
    """Figures are compared as ratios, and the worst ratio counts."""
    off = max(abs(figure / other - 1) for figure, other in zip(ours, paper, strict=True))
    return "yes" if off <= SAME else "nearly" if off <= NEAR else "no"


def stated(
    key: str,
    paper: Figures,
    als: Figures,
    optimum: Figures | None,
    written: Callable[[Figures], str],
    **fields: object,
) -> Statement:
    """`als`: our figure with the paper's own algorithm; `optimum`: with `exact`; None: irrelevant."""
    ours = written(als), "" if optimum is None else written(optimum)
    return _CLAIMS.stated(key, ours, judged(paper, als), paper=written(paper), **fields)


def _list(figures: Figures) -> str:
    return ", ".join(f"{figure:.4g}" for figure in figures)


def _span(figures: Figures) -> str:
    return " to ".join(f"{figure:.2f}" for figure in figures)


def _changes(figures: Figures) -> str:
    """Figures as changes: they are fractions that remain; 1: all of it."""
    return ", ".join(f"{100 * (figure - 1):+.0f}%" for figure in figures)


# --- tables -------------------------------------------------------------------------------------------------------


def table_statements(quantities: Sequence[Quantity]) -> list[Statement]:
    """Statements of the papers' tables, except times."""
    return [
        Statement(
            f"Table {quantity.where}",
            f"{quantity.name}: {', '.join(TITLES.values())}",
            _list(paper),
            {"ours": _list(ours), "ours, optimum": ""},
            quantity.kind,
            judged(paper, ours),
            quantity.note,
        )
        for quantity in quantities
        if quantity.where and not quantity.name.endswith("ms")
        for paper, ours in [(_numbers(quantity.paper), _numbers(quantity.ours))]
    ]


def _numbers(values: Sequence[object]) -> Figures:
    return [float(str(value)) for value in values]


# --- operators one by one -----------------------------------------------------------------------------------------


def operator_statements(transfers: Sequence[Row], operators: Sequence[Row]) -> list[Statement]:
    (ratio,) = (number(row, "ratio") for row in transfers if row["elements"] == STATED_ELEMENTS)
    adds, products = ([row for row in operators if row["operator"] == op] for op in ("Add", "MatMul"))
    return [
        stated("transfers", [1.83], [ratio], None, _span),
        stated("additions, PIM over CPU_S", [2.1, 3.4], _ends(adds, "PIM over CPU_S"), None, _span),
        stated("additions, PIM over CPU_P", [2.2, 2.8], _ends(adds, "PIM over CPU_P"), None, _span),
        stated("additions, CPU_P over CPU_S", [1.0], _ends(adds[:2], "CPU_P over CPU_S")[1:], None, _span),
        stated("products, PIM over CPU_S", [5.6, 10.4], _ends(products, "PIM over CPU_S"), None, _span),
        stated("products, PIM over CPU_P", [1.5, 3.1], _ends(products, "PIM over CPU_P"), None, _span),
        stated("products, CPU_P over CPU_S", [4.0], [number(products[-1], "CPU_P over CPU_S")], None, _span),
    ]


def _ends(rows: Sequence[Row], column: str) -> Figures:
    figures = [number(row, column) for row in rows]
    return [min(figures), max(figures)]


# --- whole networks -----------------------------------------------------------------------------------------------

Setting = tuple[str, int]
"""A network and p."""
SETTINGS: Final[Sequence[Setting]] = tuple((network, p) for network in TITLES for p in SEQUENCES)


class _Costs:
    def __init__(self, results: Sequence[Placed]) -> None:
        self._cost = {(placed.case.network, placed.case.sequence, placed.scheme): placed.cost for placed in results}

    def total_s(self, setting: Setting, scheme: str) -> float:
        return self._cost[*setting, scheme].total_s

    def gains(self, rival: str) -> tuple[Figures, Figures]:
        """The least and the largest gain of ALS, and of the optimum, over a rival in any setting."""
        als, optimum = (
            [self.total_s(setting, rival) / self.total_s(setting, scheme) for setting in SETTINGS]
            for scheme in (ALS, OPT)
        )
        return [min(als), max(als)], [min(optimum), max(optimum)]

    def left(self, network: str) -> tuple[Figures, Figures]:
        """Computation and transfer of ALS, and of the optimum, as fractions of those with the PIM's order."""
        before, als, optimum = (self._cost[network, SHOWN, scheme] for scheme in (PIM_FIRST, ALS, OPT))
        return (
            [als.node_s / before.node_s, als.transfer_s / before.transfer_s],
            [optimum.node_s / before.node_s, optimum.transfer_s / before.transfer_s],
        )

    def is_best(self, setting: Setting, scheme: str, others: Sequence[str]) -> bool:
        return all(self.total_s(setting, scheme) <= self.total_s(setting, other) for other in others)

    def falls_with_p(self, setting: Setting) -> bool:
        network, p = setting
        before, after = (self.total_s((network, q), CPU_S) / self.total_s((network, q), ALS) for q in (p, 2 * p))
        return after < before


def figure_9_statements(results: Sequence[Placed]) -> list[Statement]:
    """All networks at all p."""
    costs = _Costs(results)
    shorter = [setting for setting in SETTINGS if setting[1] < SEQUENCES[-1]]
    encoders = [setting for setting in SETTINGS if setting[0] != "gpt2"]
    duets = tuple(DUET.values())
    orders = CPU_P_FIRST, PIM_FIRST
    better = sum(costs.is_best(setting, DUET[0], orders) for setting in SETTINGS)

    def counted(key: str, holds: Sequence[bool]) -> Statement:
        """A statement that something holds in all settings."""
        return stated(key, [len(holds)], [sum(holds)], None, _list, count=len(holds))

    return [
        stated("over CPU_P first", [1.1, 2.1], *costs.gains(CPU_P_FIRST), _span),
        stated("over PIM first", [1.1, 3.0], *costs.gains(PIM_FIRST), _span),
        stated("over DUET", [1.09, 1.23], *costs.gains(DUET[50]), _span),
        counted("falls with p", [costs.falls_with_p(setting) for setting in shorter]),
        counted("CPU_P first is better", [costs.is_best(setting, CPU_P_FIRST, [PIM_FIRST]) for setting in encoders]),
        stated(
            "DUET is better",
            [1],
            [int(better > len(SETTINGS) / 2)],
            None,
            lambda figures: "yes" if all(figures) else "no",
            better=better,
            count=len(SETTINGS),
        ),
        counted(
            "DUET gains", [all(costs.is_best(s, more, [less]) for less, more in pairwise(duets)) for s in SETTINGS]
        ),
        counted("ALS is best", [costs.is_best(s, ALS, [CPU_S, *orders, *duets]) for s in SETTINGS]),
    ]


def figure_11_statements(results: Sequence[Placed]) -> list[Statement]:
    costs = _Costs(results)
    return [
        stated(
            f"left, {network}",
            paper,
            *costs.left(network),
            _changes,
            where=f"{TITLES[network]}, p = {SHOWN}, over {PIM_FIRST}",
        )
        for network, paper in _LEFT.items()
    ]


_LEFT: Final[Mapping[str, Figures]] = {
    "bert": [1 - 0.54, 1 - 0.27],
    "roberta": [1 - 0.34, 1 - 0.20],
    "gpt2": [1.0, 1 - 0.64],
}
"""Figure 11: computation and transfer that remain."""


# --- partitions and subgraphs -------------------------------------------------------------------------------------


def partition_statements(partitions: Sequence[Row]) -> Iterator[Statement]:
    """Figures 10 and 12: of the operators that the PIM's order runs there, which ones stay and which ones leave it."""
    encoders, decoder = ("BERT", "RoBERTa"), ("GPT-2",)
    for key, networks, operators, stay, paper in (
        ("Gemm leave", encoders, "Gemm", False, 1.0),
        ("MatMul stay", encoders, "MatMul", True, 1.0),
        ("element-wise leave", encoders, "(p, r)", False, 1.0),
        ("Gemm leave, decoder", decoder, "Gemm", False, 0.5),
        ("element-wise leave, decoder", decoder, "(p, r)", False, 1.0),
    ):
        on_pim = [
            row
            for row in partitions
            if row["network"] in networks and str(row["operator"]).startswith(operators) and row[PIM_FIRST] == "PIM"
        ]
        count = _number(on_pim)
        als, optimum = (
            _number([row for row in on_pim if (row[scheme] == "PIM") == stay]) / count for scheme in (ALS, OPT)
        )
        yield stated(key, [paper], [als], [optimum], _share, count=count)


def _number(rows: Sequence[Row]) -> int:
    return sum(int(str(row["number"])) for row in rows)


def _share(figures: Figures) -> str:
    return ", ".join(f"{figure:.0%}" for figure in figures)


def subgraph_statement(rows: Sequence[Row]) -> Statement:
    checked, missed, wrong = (
        sum(int(str(row[column])) for row in rows)
        for column in ("different subgraphs", "ALS not the optimum", "exact not the optimum")
    )
    return stated("subgraphs", [checked], [checked - missed], [checked - wrong], _list, count=checked)
