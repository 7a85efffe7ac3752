"""The figures of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.rigs.resources import Sample

_GROUP_WIDTH: Final = 0.8


def transport_figure(ratios: Mapping[str, Mapping[str, float]], prototypes: Mapping[str, float]) -> Figure:
    """`ratios`: model -> side -> time per frame over the slowest stage alone. `prototypes`: model -> the same."""
    figure, axes = _new(width=9)
    sides = list(next(iter(ratios.values())))
    width = _GROUP_WIDTH / len(sides)
    for i, side in enumerate(sides):
        at = [model + (i - (len(sides) - 1) / 2) * width for model in range(len(ratios))]
        bars = axes.bar(at, [of_side[side] for of_side in ratios.values()], width, label=side)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, rotation=90, padding=3)
    for model, name in enumerate(ratios):
        if name in prototypes:
            span = (model - _GROUP_WIDTH / 2, model + _GROUP_WIDTH / 2)
            label = "prototype, generated" if model == 0 else None
            axes.hlines(prototypes[name], *span, color="black", linestyle=":", label=label)
    axes.axhline(1, color="0.5", linewidth=0.8)
    axes.set_xticks(range(len(ratios)), list(ratios))
    axes.set_ylim(0, 1.25 * max(max(of_side.values()) for of_side in ratios.values()))
    axes.set_ylabel("time per frame / slowest stage alone")
    axes.set_title("Two-stage pipeline over its own slowest stage")
    axes.legend(ncols=3, fontsize=8)
    return figure


def gaps_figure(runs: Mapping[str, tuple[Sequence[float], Sequence[tuple[float, float, str]]]]) -> Figure:
    """`runs`: model -> (times of answers in s, changes as (asked, live, what)). One panel for each model."""
    figure, panels = _new(width=10, rows=len(runs))
    for axes, (model, (answered_s, changes)) in zip(panels, runs.items(), strict=True):
        origin = answered_s[0]
        gaps_ms = [1e3 * (after - before) for before, after in pairwise(answered_s)]
        axes.plot([at - origin for at in answered_s[1:]], gaps_ms, ".", markersize=2, color="tab:blue")
        kinds = list(dict.fromkeys(what for _, _, what in changes))
        seen: set[str] = set()
        for asked_s, live_s, what in changes:
            color = f"C{1 + kinds.index(what)}"
            label = None if what in seen else what
            seen.add(what)
            axes.axvspan(asked_s - origin, live_s - origin, color=color, alpha=0.5, label=label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("gap before an answer, ms")
        axes.set_title(model)
        axes.legend(title="changes: asked for until live", fontsize=8, title_fontsize=8, loc="upper right")
    panels[-1].set_xlabel("time, s")
    return figure


def errors_figure(panels: Mapping[str, tuple[float, Mapping[str, float]]]) -> Figure:
    """`panels`: title -> (aim, name of a measurement -> its error), in percent."""
    figure, all_axes = _new(width=9, rows=len(panels))
    for axes, (title, (aim, errors)) in zip(all_axes, panels.items(), strict=True):
        bars = axes.bar(list(errors), list(errors.values()))
        axes.bar_label(bars, fmt="%+.2f", fontsize=7, padding=2)
        axes.axhspan(-aim, aim, color="tab:green", alpha=0.15, label=f"aim: within {aim:g}%")
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.margins(y=0.15)
        axes.tick_params(axis="x", labelsize=7, rotation=30)
        axes.set_ylabel("error, %")
        axes.set_title(title)
        axes.legend(fontsize=8)
    return figure


def online_tuning_figure(
    tunings: Sequence[Mapping[str, object]],
    predictions: Sequence[Mapping[str, object]],
    aim_tuned: float,
    aim_error: float,
) -> Figure:
    """Throughputs over that of the best of all, by model and machine; and predicted against measured bottlenecks."""
    figure, (bars_axes, scatter_axes) = _new(width=11, rows=2)
    sides = ("seed", "tuned", "best in order", "best of all")
    labels = [f"{row['machine']}\n{row['model']}" for row in tunings]
    width = _GROUP_WIDTH / len(sides)
    for i, side in enumerate(sides):
        at = [place + (i - (len(sides) - 1) / 2) * width for place in range(len(tunings))]
        heights = [_number(row[f"{side} fps"]) / _number(row["best of all fps"]) for row in tunings]
        bars = bars_axes.bar(at, heights, width, label=side)
        bars_axes.bar_label(bars, fmt="%.2f", fontsize=7, rotation=90, padding=3)
    bars_axes.set_xticks(range(len(labels)), labels, fontsize=7)
    bars_axes.set_ylim(0, 1.3)
    bars_axes.set_ylabel("frames per second / best of all")
    aim = f"aim: tuned at least {aim_tuned:g} of best in order"
    bars_axes.set_title(f"Live tuning on emulated places (best in order: with the seed's assignment; {aim})")
    bars_axes.legend(ncols=4, fontsize=8)
    for timing in dict.fromkeys(row["timing"] for row in predictions):
        own = [row for row in predictions if row["timing"] == timing]
        predicted_ms = [_number(row["predicted ms"]) for row in own]
        scatter_axes.plot(predicted_ms, [_number(row["error %"]) for row in own], "o", markersize=4, label=timing)
    scatter_axes.axhspan(-100 * aim_error, 100 * aim_error, color="tab:green", alpha=0.15, label="aim")
    scatter_axes.set_xscale("log")
    scatter_axes.set_xlabel("slowest stage by stored costs, ms")
    scatter_axes.set_ylabel("measured against it, %")
    scatter_axes.set_title("Random plans: predicted against measured")
    scatter_axes.legend(fontsize=8)
    return figure


def long_run_figure(
    recoveries: Sequence[Mapping[str, object]], running_in: Sequence[Sample], counted: Sequence[Sample]
) -> Figure:
    """Throughputs under each change over that of the best plan; and private memory over the long run, 0 its start."""
    samples = [*running_in, *counted]
    figure, (bars_axes, memory_axes) = _new(width=10, rows=2)
    sides = ("before", "tuned", "best")
    width = _GROUP_WIDTH / len(sides)
    for i, side in enumerate(sides):
        at = [place + (i - (len(sides) - 1) / 2) * width for place in range(len(recoveries))]
        heights = [_number(row[f"{side} fps"]) / _number(row["best fps"]) for row in recoveries]
        bars = bars_axes.bar(at, heights, width, label=f"plan {side}" if side == "before" else side)
        bars_axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=3)
    bars_axes.axhspan(0.95, 1.05, color="tab:green", alpha=0.15, label="within 5%")
    bars_axes.set_xticks(range(len(recoveries)), [str(row["what"]) for row in recoveries], fontsize=8)
    bars_axes.set_ylabel("frames per second / best")
    bars_axes.set_title("After each change of the (emulated) machine; best: with that assignment")
    bars_axes.legend(ncols=4, fontsize=8, loc="lower right")
    for what in dict.fromkeys(one.what for one in samples):
        own = [one for one in samples if one.what == what]
        minutes = [(one.at_s - counted[0].at_s) / 60 for one in own]
        memory_axes.plot(minutes, [one.anon_bytes / 2**20 for one in own], label=what)
    memory_axes.set_ylim(bottom=0)
    memory_axes.axvline(0, color="0.5", linewidth=0.8)
    memory_axes.set_xlabel("minutes of random changes; before 0: running in")
    memory_axes.set_ylabel("private memory, MiB")
    memory_axes.legend(fontsize=8)
    return figure


def planner_figure(by_layers: Sequence[Mapping[str, object]], by_places: Sequence[Mapping[str, object]]) -> Figure:
    """CPU time and peak memory of the exact planner, for each number of kinds of places, on logarithmic axes."""
    figure, panels = _new(width=9, rows=4)
    for grown, rows, both in (("layers", by_layers, panels[:2]), ("places", by_places, panels[2:])):
        fixed = "64 places" if grown == "layers" else "1,000 layers"
        for axes, what, label in zip(
            both, ("with latency s", "peak MiB"), ("CPU time, s", "peak memory, MiB"), strict=True
        ):
            for kinds in dict.fromkeys(row["kinds"] for row in rows):
                own = [row for row in rows if row["kinds"] == kinds]
                axes.loglog([row[grown] for row in own], [row[what] for row in own], "o-", label=f"{kinds}")
            grown_to = sorted({_number(row[grown]) for row in rows})
            axes.set_xticks(grown_to, [f"{number:.0f}" for number in grown_to])
            axes.set_xticks([], minor=True)
            axes.set_xlabel(grown)
            axes.set_ylabel(label)
            axes.set_title(f"Exact planner, {fixed}")
            axes.grid(which="major", color="0.9")
            axes.legend(title="kinds of places", fontsize=8, title_fontsize=8)
    return figure


def guided_figure(
    reached: Mapping[str, Sequence[float]],
    best_so_far: Mapping[str, Sequence[float]],
    by_machine: Mapping[str, Sequence[float]],
) -> Figure:
    """After 1, 2, ... trials: the runs within 1% of the optimum, and the best bottleneck over it; by tuner, machine."""
    figure, panels = _new(width=9, rows=3)
    for axes, lines, label in (
        (panels[0], reached, "runs within 1% of the optimum, %"),
        (panels[1], best_so_far, "best bottleneck so far / optimum, median"),
        (panels[2], by_machine, "runs within 1% of the optimum, %"),
    ):
        for name, heights in lines.items():
            axes.plot(range(1, len(heights) + 1), heights, ".-", markersize=4, label=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("trials")
        axes.set_ylabel(label)
        axes.grid(color="0.9")
        axes.legend(fontsize=8)
    panels[0].set_title("Tuning on wrong costs: all machines and networks (simulated)")
    panels[2].set_title("guided, by machine (simulated)")
    for axes in (panels[0], panels[2]):
        axes.set_ylim(0, 100)
    return figure


def _number(value: object) -> float:
    return float(str(value))


def _new(width: float, rows: int | None = None) -> tuple[Figure, Any]:
    """A figure with space at the bottom, and its axes, or a list of axes if `rows` is given."""
    layout = ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97))
    figure = Figure(figsize=(width, 4.5 * (rows or 1)), layout=layout)
    grid = figure.subplots(rows or 1, 1, squeeze=False)
    panels: list[Axes] = [row[0] for row in grid]
    return figure, panels if rows else panels[0]
