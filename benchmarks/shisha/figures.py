"""The figures, each with the number of the paper's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.report.results import Row, number, only
from benchmarks.shisha.cases import Case
from benchmarks.shisha.searches import SHISHA, Runs, Seeds, kept

SIMULATED: Final = "simulated"
_GROUP_WIDTH: Final = 0.84
_MARKERS: Final = ("o-", "s-", "^-")


def convergence_figure(case: Case, by_search: Runs) -> Figure:
    """Figure 4: the best plan so far in each search's best run, and times and quality of median runs."""
    places = len(case.places)
    title = f"Figure 4: {case.network}, {places} places ({case.configuration})"
    figure, ((axes,),) = _new(1, 1, (12, 6), title)
    end_s = 2 * max(kept(runs).time_to_best_s for runs in by_search.values())
    for index, (search, runs) in enumerate(by_search.items()):
        gains = kept(runs).gains
        times_s = [at_s for at_s, _ in gains] + [end_s]
        heights = [fps / case.optimum_fps for _, fps in gains] + [gains[-1][1] / case.optimum_fps]
        own = search == SHISHA
        style = {"color": "black", "linewidth": 2.5, "zorder": 3} if own else {"color": f"C{index - 1}"}
        label = search if len(runs) == 1 else f"{search}, best of {len(runs)}"
        axes.step(times_s, heights, where="post", label=label, **style)
        axes.plot(times_s[-2], heights[-1], "o", markersize=6, **style)
        middle_s, middle_fps = median(run.time_to_best_s for run in runs), median(run.fps for run in runs)
        if len(runs) > 1:
            axes.plot(middle_s, middle_fps / case.optimum_fps, "D", fillstyle="none", markersize=8, **style)
    axes.axhline(1, color="0.3", linestyle=":", label="optimum, proven by exact\n(ES: too many plans)")
    axes.set_xscale("log")
    axes.set_xlabel(
        "virtual time, s (dot: solution; diamond: medians of all runs' solutions); PS without its database's wall time"
    )
    axes.set_ylabel("best throughput so far / optimum")
    axes.set_ylim(0, 1.05)
    axes.grid(color="0.92")
    figure.legend(fontsize=9, loc="outside right center", frameon=False)
    return figure


def optimality_figure(rows: Sequence[Row]) -> Figure:
    """Figure 5: solutions over the optimum, which Exhaustive Search finds."""
    own = [row for row in rows if row["runs"]]
    networks = list(dict.fromkeys(str(row["network"]) for row in own))
    machine = own[0]["machine"]
    figure, panels = _new(2, 1, (11, 8.5), f"Figure 5: four places ({machine}), against Exhaustive Search")
    for (axes,), column, label in (
        (panels[0], "over optimum", "best run / optimum"),
        (panels[1], "median over optimum", "median run / optimum"),
    ):
        sides = {
            search: [number(only(own, network=network, search=search), column) for network in networks]
            for search in dict.fromkeys(str(row["search"]) for row in own)
            if search != "ES"
        }
        _grouped(axes, sides, networks)
        axes.axhline(1, color="0.6", linestyle=":", linewidth=1, label="ES", zorder=0)
        axes.set_ylim(0, 1.2)
        axes.set_ylabel(label)
    panels[0][0].legend(ncols=8, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.15), frameon=False)
    return figure


def seeds_figure(seedings: Sequence[Seeds]) -> Figure:
    """Figure 6: seeds at the times of their own trials, solutions at the times when they were found."""
    figure, panels = _new(
        2, len(seedings) // 2, (12, 9), f"Figure 6: Shisha's seed and {len(seedings[0].drawn)} random ones"
    )
    for axes, seeding in zip(panels.flat, seedings, strict=True):
        for runs, colour, size, whose in (
            (seeding.drawn, "tab:blue", 18, "random"),
            ([seeding.own], "tab:red", 110, "Shisha"),
        ):
            for at, marker, what in ((0, "x", "seed"), (-1, "o", "solution")):
                points = [run.gains[at] for run in runs]
                axes.scatter(
                    [at_s for at_s, _ in points],
                    [fps / seeding.case.optimum_fps for _, fps in points],
                    s=size,
                    marker=marker,
                    color=colour,
                    alpha=0.6 if whose == "random" else 1,
                    label=f"{whose}: {what}",
                )
        axes.set_xscale("log")
        axes.set_ylim(0, 1.05)
        axes.set_title(f"{seeding.case.network}, {seeding.case.configuration}", fontsize=10)
        axes.set_xlabel("virtual time, s")
        axes.set_ylabel("throughput / optimum")
        axes.set_axisbelow(True)
        axes.grid(color="0.92")
    panels[0][0].legend(fontsize=9, loc="lower right")
    return figure


def heuristics_figure(rows: Sequence[Row]) -> Figure:
    """Figure 7."""
    networks = list(dict.fromkeys(str(row["network"]) for row in rows))
    figure, panels = _new(len(networks), 1, (13, 3.6 * len(networks)), "Figure 7: heuristics on the paper's machines")
    for (axes,), network in zip(panels, networks, strict=True):
        _by_machine(axes, rows, network, "over optimum")
        axes.set_ylim(0, 1.2)
        axes.set_ylabel("throughput / optimum")
        axes.set_title(network, fontsize=10)
    panels[0][0].legend(ncols=6, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.3), frameon=False)
    return figure


def heuristics_time_figure(rows: Sequence[Row]) -> Figure:
    """Figure 8: virtual time to the solution over the smaller of the two."""
    networks = list(dict.fromkeys(str(row["network"]) for row in rows))
    figure, panels = _new(len(networks), 1, (10, 3.4 * len(networks)), "Figure 8: convergence time, H1 and H3")
    both = [row for row in rows if row["heuristic"] in ("H1", "H3")]
    for (axes,), network in zip(panels, networks, strict=True):
        _by_machine(axes, both, network, "virtual s to best", over_least=True)
        axes.margins(y=0.15)
        axes.set_ylabel("time / the smaller")
        axes.set_title(network, fontsize=10)
    panels[0][0].legend(ncols=2, fontsize=9, loc="upper right")
    return figure


def alpha_figure(rows: Sequence[Row]) -> Figure:
    """Figure 9."""
    groups = list(dict.fromkeys((str(row["network"]), str(row["machine"])) for row in rows))
    figure, panels = _new(2, len(groups) // 2, (12, 8), "Figure 9: alpha, with slow places 3, 6 and 12 times slower")
    for axes, (network, machine) in zip(panels.flat, groups, strict=True):
        own = [row for row in rows if (row["network"], row["machine"]) == (network, machine)]
        for marker, slowdown in zip(_MARKERS, dict.fromkeys(row["times slower"] for row in own), strict=True):
            line = [row for row in own if row["times slower"] == slowdown]
            heights = [number(row, "over alpha = 100") for row in line]
            axes.plot([row["alpha"] for row in line], heights, marker, label=f"{slowdown} times", alpha=0.8)
        axes.set_xscale("log")
        ticks = [1, 2, 3, 5, 10, 20, 50, 100]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.08)
        axes.set_xlabel("alpha")
        axes.set_ylabel("throughput / that of alpha = 100")
        axes.set_title(f"{network}, {machine}", fontsize=10)
        axes.grid(color="0.92")
    panels[0][0].legend(fontsize=9, loc="lower right")
    return figure


def _by_machine(axes: Axes, rows: Sequence[Row], network: str, column: str, *, over_least: bool = False) -> None:
    own = [row for row in rows if row["network"] == network]
    machines = list(dict.fromkeys(str(row["machine"]) for row in own))
    sides: dict[str, list[float]] = {}
    for heuristic in dict.fromkeys(str(row["heuristic"]) for row in own):
        sides[heuristic] = [number(only(own, machine=machine, heuristic=heuristic), column) for machine in machines]
    if over_least:
        least = [min(group) for group in zip(*sides.values(), strict=True)]
        sides = {name: [h / low for h, low in zip(heights, least, strict=True)] for name, heights in sides.items()}
    _grouped(axes, sides, machines)


def _grouped(axes: Axes, sides: Mapping[str, Sequence[float]], groups: Sequence[str]) -> None:
    width = _GROUP_WIDTH / len(sides)
    for i, (side, heights) in enumerate(sides.items()):
        at = [group + (i - (len(sides) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(at, heights, width, label=side)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, rotation=90, padding=3)
    axes.set_xticks(range(len(groups)), groups)


def _new(rows: int, columns: int, size: tuple[float, float], title: str) -> tuple[Figure, Any]:
    """A figure with space at the bottom, and its axes (rows, columns)."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    figure.suptitle(f"{title} ({SIMULATED})")
    return figure, figure.subplots(rows, columns, squeeze=False)
