"""The figures, each with the number of the paper's figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.partitiontuner.cases import SUNK, TITLES
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.report.results import Row, Spread

_WIDTH: Final = 0.84
_MISSING: Final = math.nan


def times_figure(rows: Sequence[Row]) -> Figure:
    """Table 2 as bars, over the paper's CPU alone; `rows` are those of `tables.times`."""
    before_ms = {its.title: its.ms[0] for its in NETWORKS.values()}
    columns = ("paper ms", "predicted ms", "executed ms")
    shares = [
        {
            "network": row["network"],
            "form": row["form"],
            "scheme": row["scheme"],
            **{column: _height(row, column) / before_ms[str(row["network"])] for column in columns},
        }
        for row in rows
    ]
    title = "Table 2: times over that of the paper's CPU alone (board emulated)"
    return _by_scheme(shares, {column: column.removesuffix(" ms") for column in columns}, title)


def reductions_figure(rows: Sequence[Row]) -> Figure:
    """Figure 6; `rows` are those of `tables.figure_6`."""
    columns = {f"{what} %": f"{what}, %" for what in ("paper", "predicted", "executed")}
    return _by_scheme(rows, columns, "Figure 6: quicker than the CPU alone, percent (board emulated)")


def accuracy_figure(rows: Sequence[Row]) -> Figure:
    """Figure 7: distance of answers from those in floating point."""
    title = "Figure 7: int8 against floating point, frames of noise, no trained weights"
    return _by_scheme(rows, {"1 - cosine": "1 - cosine", "signal to noise dB": "signal to noise, dB"}, title)


def schedules_figure(rows: Sequence[Row]) -> Figure:
    """Random schedules: errors of predictions over their hand-overs."""
    figure, (axes,) = _new(1, "Random schedules on the emulated board: measured against predicted")
    hand_overs = [_number(row["hand-overs"]) for row in rows]
    for column, marker in (
        ("error % without hand-overs", "o"),
        ("error % as told", "s"),
        ("error % by those measured", "^"),
    ):
        errors = [_number(row[column]) for row in rows]
        axes.plot(hand_overs, errors, marker, markersize=5, label=column.removeprefix("error % "))
    axes.axhspan(-1, 1, color="tab:green", alpha=0.15, label="aim of the median: 1%")
    axes.set_xlabel("hand-overs that a frame waits for")
    axes.set_ylabel("measured over predicted, less 1, %")
    axes.legend(fontsize=8)
    return figure


def _by_scheme(rows: Sequence[Row], columns: Mapping[str, str], title: str) -> Figure:
    """A panel for each of `columns` (with its label) that has values; a bar for each scheme in each case."""
    known = [column for column in columns if any(not math.isnan(_height(row, column)) for row in rows)]
    figure, panels = _new(len(known), title)
    cases = list(dict.fromkeys(_named(row) for row in rows))
    schemes = [scheme for scheme in TITLES.values() if any(row["scheme"] == scheme for row in rows)]
    width = _WIDTH / len(schemes)
    for axes, column in zip(panels, known, strict=True):
        heights = {(_named(row), row["scheme"]): _height(row, column) for row in rows}
        for i, scheme in enumerate(schemes):
            at = [case + (i - (len(schemes) - 1) / 2) * width for case in range(len(cases))]
            bars = axes.bar(at, [heights.get((case, scheme), _MISSING) for case in cases], width, label=scheme)
            axes.bar_label(bars, fmt="%.3g", fontsize=7, rotation=90, padding=2)
        axes.set_xticks(range(len(cases)), cases)
        axes.set_ylabel(columns[column])
        axes.margins(y=0.2)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(schemes), loc="outside upper right", frameon=False)
    return figure


def _named(row: Row) -> str:
    return str(row["network"]) + (f"\n{SUNK}" if row["form"] == SUNK else "")


def _height(row: Row, column: str) -> float:
    value = row[column]
    if isinstance(value, Spread):
        return value.median
    return _MISSING if value is None else _number(value)


def _number(value: object) -> float:
    return float(str(value))


def _new(panels: int, title: str) -> tuple[Figure, Sequence[Axes]]:
    """A figure with space at the bottom, and its axes (panels,), one below the other."""
    figure = Figure(figsize=(14, 3.6 * panels + 1), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    figure.suptitle(title, x=0.01, ha="left")
    return figure, [row[0] for row in figure.subplots(panels, 1, squeeze=False)]
