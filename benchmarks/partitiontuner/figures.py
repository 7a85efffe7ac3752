"""The figures, each under the number of the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.partitiontuner.cases import TITLES
from benchmarks.partitiontuner.tables import Results, of_form
from benchmarks.report.results import Row

_WIDTH: Final = 0.84


def times_figure(results: Results, form: str) -> Figure:
    """Table 2 as bars: the paper's times, ours predicted and ours executed, over the paper's CPU alone."""
    figure, ((axes,),) = _new(1, f"Table 2: times over the paper's CPU alone ({form}; emulated board)")
    own = of_form(results, form)
    networks = list(dict.fromkeys(one.network for one in own))
    titles = [next(one.planned.case.published.title for one in own if one.network == name) for name in networks]
    heights: dict[str, list[float]] = {}
    for scheme, title in TITLES.items():
        for what in ("paper", "predicted", "executed"):
            bars = []
            for network in networks:
                one = next((its for its in own if (its.network, its.scheme) == (network, scheme)), None)
                ms = (
                    None
                    if one is None
                    else {
                        "paper": one.planned.paper_ms,
                        "predicted": one.predicted_ms,
                        "executed": one.executed_ms,
                    }[what]
                )
                bars.append(float("nan") if one is None or ms is None else ms / one.planned.case.published.ms[0])
            if any(bar == bar for bar in bars):  # not all of them are missing
                heights[f"{title}, {what}"] = bars
    _grouped(axes, heights, titles)
    axes.axhline(1, color="0.5", linewidth=0.8)
    axes.set_ylabel("time / paper's CPU alone")
    axes.legend(ncols=5, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 1.25), frameon=False)
    return figure


def reductions_figure(rows: Sequence[Row]) -> Figure:
    """Figure 6: a panel for the paper's numbers, and one for each of ours."""
    all_columns = ("paper %", "predicted %", "executed %")
    columns = [column for column in all_columns if any(row[column] is not None for row in rows)]
    figure, panels = _new(len(columns), "Figure 6: quicker than the CPU alone, percent")
    networks = list(dict.fromkeys(_named(row) for row in rows))
    for (axes,), column in zip(panels, columns, strict=True):
        sides = {
            title: [
                _height(next((r for r in rows if (_named(r), r["scheme"]) == (network, title)), None), column)
                for network in networks
            ]
            for title in dict.fromkeys(str(row["scheme"]) for row in rows)
        }
        _grouped(axes, {side: bars for side, bars in sides.items() if any(bar == bar for bar in bars)}, networks)
        axes.set_ylim(0, 110)
        axes.set_ylabel(column.replace(" %", ", %"))
    panels[0][0].legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.25), frameon=False)
    return figure


def accuracy_figure(rows: Sequence[Row]) -> Figure:
    """Figure 7: how far answers are from those in floating point."""
    figure, panels = _new(2, "Figure 7: int8 against floating point, frames of noise, no trained weights")
    networks = list(dict.fromkeys(str(row["network"]) for row in rows))
    for (axes,), column, label in (
        (panels[0], "1 - cosine", "1 - cosine"),
        (panels[1], "signal to noise dB", "signal to noise, dB"),
    ):
        sides = {
            title: [
                _height(next((r for r in rows if (r["network"], r["scheme"]) == (network, title)), None), column)
                for network in networks
            ]
            for title in dict.fromkeys(str(row["scheme"]) for row in rows)
        }
        _grouped(axes, sides, networks, "%.3g")
        axes.set_ylabel(label)
    panels[0][0].legend(ncols=4, fontsize=8)
    return figure


def schedules_figure(rows: Sequence[Row]) -> Figure:
    """Random schedules: errors of predictions over their hand-overs."""
    figure, ((axes,),) = _new(1, "Random schedules on the emulated board: measured against predicted")
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


def _named(row: Row) -> str:
    return str(row["network"]) + ("\nRelu sunk" if row["form"] == "Relu sunk" else "")


def _height(row: Row | None, column: str) -> float:
    return float("nan") if row is None or row[column] is None else _number(row[column])


def _number(value: object) -> float:
    return float(str(value))


def _grouped(axes: Axes, sides: Mapping[str, Sequence[float]], groups: Sequence[str], fmt: str = "%.3g") -> None:
    width = _WIDTH / max(1, len(sides))
    for i, (side, heights) in enumerate(sides.items()):
        at = [group + (i - (len(sides) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(at, heights, width, label=side)
        axes.bar_label(bars, fmt=fmt, fontsize=5 if len(sides) > 6 else 6, rotation=90, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.margins(y=0.2)


def _new(panels: int, title: str) -> tuple[Figure, Sequence[Sequence[Axes]]]:
    """A figure with room at its foot, and its axes (panels, 1)."""
    figure = Figure(figsize=(14, 4.2 * panels + 1), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    figure.suptitle(title)
    return figure, figure.subplots(panels, 1, squeeze=False).tolist()
