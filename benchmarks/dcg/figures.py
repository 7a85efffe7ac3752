"""The figures, each with the number of the paper's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.dcg.board import ALS, CPU_S, FITTED_TO, MADE_FROM, MODELLED, OPT, PIM_FIRST, SHOWN, TITLES, Case, place
from benchmarks.dcg.scaling import DRAWN
from benchmarks.dcg.subgraphs import NODES, Subgraph, sampled
from benchmarks.report.results import Row

MAX_POINTS: Final = 200_000
_GROUP_WIDTH: Final = 0.84
_COLOURS: Final = ("#9ecae1", "#fdae6b", "#74c476")
_LAYER: Final = "layer1/"

_Line = list[tuple[float, float]]


def operators_figure(transfers: Sequence[Row], operators: Sequence[Row]) -> Figure:
    figure, ((moved, adds, products),) = _new(1, 3, (15, 4.6), "Operators and transfers by themselves", MADE_FROM)
    for way, marker in (("CPU to PIM ms", "o-"), ("PIM to CPU ms", "s-")):
        moved.loglog([row["elements"] for row in transfers], [row[way] for row in transfers], marker, label=way[:-3])
    moved.set_xlabel("elements")
    moved.set_ylabel("ms")
    moved.set_title("Figure 2(b): transfer")
    moved.legend()
    for axes, op, title in (
        (adds, "Add", "Figure 8(a): (p x 512) + (p x 512)"),
        (products, "MatMul", "Figure 8(b): (p x 512) x (512 x 512)"),
    ):
        rows = [row for row in operators if row["operator"] == op]
        sides = {side: [_number(row[f"{side} over CPU_S"]) for row in rows] for side in ("CPU_P", "PIM")}
        _grouped(axes, sides, [f"p = {row['p']}" for row in rows])
        axes.axhline(1, color="0.5", linewidth=0.8)
        axes.set_ylabel("speedup over CPU_S")
        axes.set_title(title)
        axes.legend()
    return figure


def speedups_figure(rows: Sequence[Row]) -> Figure:
    figure, panels = _new(len(TITLES), 1, (13, 11), "Figure 9: speedup over CPU_S only", FITTED_TO)
    for (axes,), title in zip(panels, TITLES.values(), strict=True):
        own = [row for row in rows if row["network"] == title]
        schemes = [scheme for scheme in dict.fromkeys(str(row["scheme"]) for row in own) if scheme != CPU_S]
        sides = {scheme: [_number(row["over CPU_S"]) for row in own if row["scheme"] == scheme] for scheme in schemes}
        _grouped(axes, sides, [f"p = {p}" for p in dict.fromkeys(row["p"] for row in own)])
        axes.set_ylabel("speedup")
        axes.set_title(title)
    panels[0][0].legend(ncols=4, fontsize=9)
    return figure


def shares_figure(rows: Sequence[Row]) -> Figure:
    title = f"Figure 11: computation and transfer, p = {SHOWN}"
    figure, (panels,) = _new(1, len(TITLES), (15, 5.5), title, FITTED_TO)
    for axes, name in zip(panels, TITLES.values(), strict=True):
        own = [row for row in rows if (row["network"], row["p"]) == (name, SHOWN) and row["scheme"] != CPU_S]
        labels = [str(row["scheme"]) for row in own]
        bottom = [0.0] * len(own)
        for part, colour in (("computation", _COLOURS[0]), ("transfer", _COLOURS[1])):
            heights = [_number(row[f"{part} ms"]) for row in own]
            bars = axes.bar(labels, heights, bottom=bottom, label=part, color=colour)
            written = [f"{height:.0f}" if height else "" for height in heights]
            axes.bar_label(bars, written, label_type="center", fontsize=8)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.tick_params(axis="x", rotation=35, labelsize=8)
        for label in axes.get_xticklabels():
            label.set_ha("right")
        axes.set_ylabel("ms")
        axes.set_title(name)
        axes.set_ylim(0, 1.2 * max(bottom))
        axes.legend(fontsize=8, loc="upper right")
    return figure


def partitions_figure(cases: Sequence[Case]) -> Figure:
    """One layer of each network: operators in their devices' lanes, in red the tensors that move between memories."""
    schemes = (PIM_FIRST, ALS, OPT)
    title = f"Figures 10 and 12: second layer of each network, p = {SHOWN}; red: transfers"
    figure, panels = _new(len(cases) * len(schemes), 1, (16, 2.1 * len(cases) * len(schemes)), title)
    for number, case in enumerate(cases):
        for row, scheme in enumerate(schemes):
            (axes,) = panels[number * len(schemes) + row]
            _lanes(axes, case, place(case.problem, scheme))
            axes.set_title(f"{case.title}, {scheme}", fontsize=10, loc="left")
    return figure


def _lanes(axes: Axes, case: Case, assignment: Sequence[int]) -> None:
    problem = case.problem
    shown = [index for index, node in enumerate(problem.nodes) if node.name.startswith(_LAYER)]
    x_of = {index: x for x, index in enumerate(shown)}
    moved: list[_Line] = []
    still: list[_Line] = []
    for tensor in problem.tensors:
        for consumer in tensor.consumers:
            if tensor.producer in x_of and consumer in x_of:
                ends: _Line = [(x_of[node], assignment[node]) for node in (tensor.producer, consumer)]
                memories = {problem.memory_of[assignment[node]] for node in (tensor.producer, consumer)}
                (moved if len(memories) > 1 else still).append(ends)
    axes.add_collection(LineCollection(still, colors="0.75", linewidths=0.8, zorder=1))
    axes.add_collection(LineCollection(moved, colors="#c0392b", linewidths=1.2, zorder=2))
    lanes = [assignment[index] for index in shown]
    colours = [_COLOURS[device] for device in lanes]
    axes.scatter(range(len(shown)), lanes, c=colours, s=60, marker="s", edgecolors="0.3", linewidths=0.5, zorder=3)
    axes.set_yticks(range(len(problem.devices)), [name.upper() for name in problem.devices])
    axes.set_ylim(len(problem.devices) - 0.5, -0.5)
    axes.set_xlim(-1, len(shown))
    axes.set_xticks(range(len(shown)), [problem.nodes[index].op for index in shown], rotation=90, fontsize=7)


def subgraphs_figure(drawn: Sequence[Subgraph]) -> Figure:
    """Two subgraphs of each network: all assignments as points, and those that the solvers chose."""
    title = f"Figure 13: every assignment of {NODES} consecutive operators, p = {SHOWN}"
    figure, panels = _new(len(drawn) // 2, 2, (15, 3.8 * len(drawn) // 2), title)
    rng = np.random.default_rng(0)
    for index, one in enumerate(drawn):
        axes = panels[index // 2][index % 2]
        numbers, is_all = sampled(one, MAX_POINTS, rng)
        axes.plot(numbers, 1e3 * one.cost_s[numbers], ".", markersize=1.5, color="#4a78a8", alpha=0.5)
        best = int(one.cost_s.argmin())
        marks: Mapping[str, tuple[int, str, dict[str, Any]]] = {
            "optimum": (best, "*", {"markersize": 17, "color": "gold", "markeredgecolor": "black"}),
            "exact": (one.index_of(one.exact), "o", {"markersize": 20, "fillstyle": "none", "color": "black"}),
            "ALS": (one.index_of(one.als), "^", {"markersize": 9, "color": "tab:red", "markeredgecolor": "black"}),
        }
        for label, (number, marker, style) in marks.items():
            axes.plot([number], [1e3 * one.cost_s[number]], marker, label=label, linestyle="none", **style)
        which = "most assignments" if index % 2 == 0 else f"ALS at its worst, {one.als_ratio:.3f} times the optimum"
        drawn_of = f"{len(numbers):,} of {len(one.cost_s):,} drawn" if not is_all else f"{len(numbers):,} assignments"
        axes.set_title(f"{one.case.title}, operators from {one.first} on ({which}): {drawn_of}", fontsize=9)
        axes.set_xlabel("assignment")
        axes.set_ylabel("ms")
        axes.set_ylim(bottom=-0.03 * 1e3 * float(one.cost_s.max()))
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=3, loc="outside upper right", frameon=False)
    return figure


def scaling_figure(rows: Sequence[Row]) -> Figure:
    figure, ((axes,),) = _new(1, 1, (8, 5.5), "Time to place, transformer-like graphs", DRAWN)
    operators = [int(str(row["operators"])) for row in rows]
    for name, marker in (("ALS", "o-"), ("exact", "s-")):
        times_ms = [_number(row[f"{name} ms"]) for row in rows]
        axes.loglog(operators, times_ms, marker, label=name)
        # Through the middle: a time proportional to the number of operators.
        middle = len(rows) // 2
        linear = [times_ms[middle] * count / operators[middle] for count in operators]
        axes.loglog(operators, linear, ":", color="0.5", label="linear" if name == "ALS" else None)
    axes.axhline(1000, color="tab:green", linewidth=0.8, linestyle="--", label="1 s: aim of ALS at 100,000")
    axes.set_xlabel("operators")
    axes.set_ylabel("CPU ms, median")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    return figure


def _grouped(axes: Axes, sides: Mapping[str, Sequence[float]], groups: Sequence[str]) -> None:
    width = _GROUP_WIDTH / len(sides)
    for i, (side, heights) in enumerate(sides.items()):
        at = [group + (i - (len(sides) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(at, heights, width, label=side)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, rotation=90, padding=3)
    axes.set_xticks(range(len(groups)), groups)
    axes.margins(y=0.2)


def _new(rows: int, columns: int, size: tuple[float, float], title: str, costs: str = MODELLED) -> tuple[Figure, Any]:
    """A figure with space at the bottom, and its axes (rows, columns)."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    figure.suptitle(f"{title} ({costs})")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _number(value: object) -> float:
    return float(str(value))
