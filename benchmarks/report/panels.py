"""Grafana's dashboard drawn without Grafana: each panel at its position, from the results of its own queries.

It draws the kinds of panels that the dashboard has in a simple form: lines and areas, single values, states over time,
a table. It shows the queries' results, not Grafana's appearance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.rigs.prometheus import Series

_COLUMN_IN, _ROW_IN = 0.54, 0.27
_COLUMNS: Final = 24
_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")
_HEAD_ROWS: Final = 2
_PALETTE: Final = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#e02f44", "#1f60c4", "#b877d9", "#705da0", "#37872d", "#fade2a",
)  # fmt: skip
_COLOURS: Final = {
    "green": "#73bf69", "blue": "#5794f2", "super-light-blue": "#c0d8ff", "orange": "#ff9830", "red": "#f2495c",
    "dark-red": "#c4162a", "yellow": "#fade2a", "super-light-yellow": "#fff899", "purple": "#b877d9",
    "light-purple": "#ca95e5", "text": "#8e8e94",
}  # fmt: skip
_BACK, _CARD, _EDGE, _TEXT, _FAINT = "#f4f5f5", "#ffffff", "#dfe0e3", "#24292e", "#6e7079"

Line = tuple[str, list[tuple[float, float]]]
"""A series: its name, and points (time, finite value)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a panel's queries: `queries` in order, each with its legend and its series."""

    queries: Sequence[tuple[str, Sequence[Series]]]

    @property
    def lines(self) -> list[Line]:
        """The series with a value; of a single query in the order of their names."""
        named = []
        for legend, series in self.queries:
            for curve in series:
                points = [(at, value) for at, value in curve.points if math.isfinite(value)]
                if points:
                    named.append((_name(legend, curve.labels), points))
        return sorted(named) if len(self.queries) == 1 else named


@dataclass(frozen=True, slots=True)
class Marks:
    """Times at which an annotation's query had a result: a line of one colour where each stretch of time begins."""

    colour: str
    times_s: Sequence[float] = field(default_factory=list)


def draw(
    board: Mapping[str, Any], results: Mapping[int, Found], marks: Sequence[Marks], span_s: tuple[float, float]
) -> Figure:
    """Draw a dashboard. `results`: results by the panel's id. `span_s`: (start, end) of the time axes."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) + _HEAD_ROWS
    figure = Figure(figsize=(_COLUMNS * _COLUMN_IN, rows * _ROW_IN), facecolor=_BACK)
    figure.text(0.008, 1 - 1.1 / rows, board["title"], fontsize=13, weight="bold", color=_TEXT, va="center")
    drawers: Mapping[str, Callable[[Axes, Mapping[str, Any], Found], None]] = {
        "timeseries": _timeseries,
        "stat": _stat,
        "state-timeline": _timeline,
        "table": _table,
    }
    for panel in board["panels"]:
        at = panel["gridPos"]
        top = 1 - (at["y"] + _HEAD_ROWS) / rows
        left, width, height = at["x"] / _COLUMNS, at["w"] / _COLUMNS, at["h"] / rows
        if panel["type"] == "row":
            figure.text(left + 0.008, top - height / 2, panel["title"], fontsize=10, color=_TEXT, va="center")
            continue
        gap_x, gap_y = 0.0022, 0.12 / rows
        card = (left + gap_x, top - height + gap_y), width - 2 * gap_x, height - 2 * gap_y
        figure.add_artist(
            Rectangle(*card, transform=figure.transFigure, facecolor=_CARD, edgecolor=_EDGE, linewidth=0.8, zorder=-1)
        )
        figure.text(
            left + 0.007, top - 0.75 / rows, panel["title"], fontsize=8, weight="bold", color=_TEXT, va="center"
        )
        drawn = drawers[panel["type"]]
        below = {"timeseries": 2.1, "state-timeline": 0.9}.get(panel["type"], 0.3) / rows
        beside = {"timeseries": 0.036, "state-timeline": 0.06}.get(panel["type"], 0.006)
        axes = figure.add_axes(
            (left + beside, top - height + below, width - beside - 0.008, height - below - 1.4 / rows), facecolor=_CARD
        )
        drawn(axes, panel, results[panel["id"]])
        if panel["type"] in ("timeseries", "state-timeline"):
            _time_axis(axes, span_s)
        if panel["type"] == "timeseries":
            for mark in marks:
                axes.vlines(mark.times_s, 0, 1, _COLOURS[mark.colour], lw=0.5, ls=(0, (3, 2)), transform=_across(axes))
    return figure


def stretches(times_s: Sequence[float], step_s: float) -> list[float]:
    """The first of each run of times that are at most a step apart, which Grafana marks as one."""
    return [at for at, before in zip(times_s, [-math.inf, *times_s], strict=False) if at - before > 1.5 * step_s]


def _name(legend: str, labels: Mapping[str, str]) -> str:
    """The legend with its labels filled in; one that the series lacks is left out, as Grafana does."""
    return _LABEL.sub(lambda match: labels.get(match[1], ""), legend).strip()


def _across(axes: Axes) -> Any:
    return axes.get_xaxis_transform()


def _time_axis(axes: Axes, span_s: tuple[float, float]) -> None:
    axes.set_xlim(*span_s)
    seconds = int(span_s[1] - span_s[0])
    step_s = next((step for step in (10, 20, 30, 60, 120, 300) if seconds / step <= 7), 600)
    after_s = range(0, seconds + 1, step_s)
    axes.set_xticks([span_s[0] + at for at in after_s], [f"{at // 60}:{at % 60:02}" for at in after_s])
    axes.tick_params(labelsize=6.5, colors=_FAINT, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _timeseries(axes: Axes, panel: Mapping[str, Any], result: Found) -> None:
    about = panel["fieldConfig"]["defaults"]
    custom = about["custom"]
    unit, lines = about["unit"], result.lines
    stepped = custom["lineInterpolation"] == "stepAfter"
    axes.grid(axis="both", color="#ececef", lw=0.6)
    if not lines:
        _nothing(axes)
        return
    colours = [_colour(panel, i, name) for i, (name, _) in enumerate(lines)]
    if custom["stacking"]["mode"] == "normal":
        times_s = sorted({at for _, points in lines for at, _ in points})
        heights = [[dict(points).get(at, 0.0) for at in times_s] for _, points in lines]
        names = [name for name, _ in lines]
        axes.stackplot(
            times_s, heights, labels=names, colors=colours, alpha=0.75, step="post" if stepped else None, lw=0
        )
    else:
        for (name, points), colour in zip(lines, colours, strict=True):
            times_s, values = _with_gaps(points)
            dashed = _override(panel, name, "custom.lineStyle") is not None
            style = "steps-post" if stepped else "default"
            axes.plot(times_s, values, color=colour, lw=1.3, ls="--" if dashed else "-", drawstyle=style, label=name)
            if len(lines) == 1 and custom["fillOpacity"]:
                axes.fill_between(times_s, values, step="post" if stepped else None, color=colour, alpha=0.12, lw=0)
    if about.get("min") == 0:
        top = max(value for _, points in lines for _, value in points)
        axes.set_ylim(0, None if top else 1)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=about.get("decimals") == 0))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, unit, short=True)))
    wide = panel["gridPos"]["w"] / _COLUMNS
    columns = 6 if wide >= 0.5 else 3
    handles, names = axes.get_legend_handles_labels()
    shown = len(names) if len(names) <= 2 * columns else 2 * columns - 1
    if shown < len(names):  # Grafana scrolls
        handles, names = [*handles[:shown], handles[-1]], [*names[:shown], f"and {len(names) - shown} more"]
    axes.legend(
        handles, names, loc="upper left", bbox_to_anchor=(-0.033 / axes.get_position().width, -0.1), ncols=columns,
        fontsize=6.3, frameon=False, labelcolor=_FAINT, handlelength=1.1, columnspacing=1.0, borderaxespad=0,
        handletextpad=0.5, labelspacing=0.25,
    )  # fmt: skip


def _with_gaps(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Points of a series, with gaps where it was missing for a while, so that the line is interrupted."""
    times_s: list[float] = []
    values: list[float] = []
    for at, value in points:
        if times_s and at - times_s[-1] > 3:
            times_s.append(times_s[-1] + 1)
            values.append(math.nan)
        times_s.append(at)
        values.append(value)
    return times_s, values


def _stat(axes: Axes, panel: Mapping[str, Any], result: Found) -> None:
    axes.set_axis_off()
    about = panel["fieldConfig"]["defaults"]
    if not result.lines:
        _nothing(axes)
        return
    ((_, points),) = result.lines
    last = points[-1][1]
    text, colour = _mapped(panel, last) or (said(last, about["unit"], about.get("decimals")), _threshold(about, last))
    if panel["options"]["graphMode"] == "area":
        times_s, values = _with_gaps(points)
        axes.fill_between(times_s, values, color=colour, alpha=0.18, lw=0)
        axes.set_ylim(0, 2.2 * max(max(v for _, v in points), 1e-9))
        axes.set_xlim(times_s[0], times_s[-1])
    axes.text(
        0.5,
        0.56,
        text,
        fontsize=15 if len(text) < 10 else 10.5,
        weight="bold",
        color=colour,
        ha="center",
        va="center",
        transform=axes.transAxes,
    )


def _timeline(axes: Axes, panel: Mapping[str, Any], result: Found) -> None:
    lines = result.lines
    for row, (_, points) in enumerate(lines):
        runs: list[list[float]] = []
        for at, value in points:
            if runs and runs[-1][2] == value and at - runs[-1][1] < 3:
                runs[-1][1] = at
            else:
                if runs and at - runs[-1][1] < 3:
                    runs[-1][1] = at
                runs.append([at, at, value])
        for start, end, value in runs:
            shown = _mapped(panel, value) or (
                said(value, panel["fieldConfig"]["defaults"]["unit"], 0),
                _PALETTE[int(value) % len(_PALETTE)],
            )
            axes.broken_barh([(start, end - start)], (row - 0.4, 0.8), facecolors=shown[1], alpha=0.8)
            if end - start > 0.11 * len(shown[0]) * (points[-1][0] - points[0][0]) / panel["gridPos"]["w"]:
                axes.text(start + 0.3, row, shown[0], fontsize=6.3, va="center", color=_TEXT, clip_on=True)
    axes.set_yticks(range(len(lines)), [name for name, _ in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)


def _table(axes: Axes, panel: Mapping[str, Any], result: Found) -> None:
    axes.set_axis_off()
    renamed = panel["transformations"][1]["options"]["renameByName"]
    names = [renamed["instance"], *(renamed[f"Value #{target['refId']}"] for target in panel["targets"])]
    rows: dict[str, list[str]] = {}
    for number, (name, (_, series)) in enumerate(zip(names[1:], result.queries, strict=True)):
        unit = _override(panel, name, "unit") or panel["fieldConfig"]["defaults"]["unit"]
        for curve in series:
            row = rows.setdefault(curve.labels["instance"], ["-"] * (len(names) - 1))
            row[number] = said(curve.points[0][1], unit)
    for line, cells in enumerate([names, *([name, *row] for name, row in rows.items())]):
        for column, text in enumerate(cells):
            axes.text(
                0.005 + column / len(names), 0.85 - 0.33 * line, text, fontsize=7.5, color=_TEXT if line else _FAINT,
                weight="normal" if line else "bold", transform=axes.transAxes, va="center",
            )  # fmt: skip


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "No data", color=_FAINT, fontsize=8, ha="center", va="center", transform=axes.transAxes)
    axes.set_yticks([])


def _colour(panel: Mapping[str, Any], number: int, name: str) -> str:
    chosen = _override(panel, name, "color")
    return _PALETTE[number % len(_PALETTE)] if chosen is None else _COLOURS[chosen["fixedColor"]]


def _matches(matcher: Mapping[str, str], name: str) -> bool:
    """Whether an override is for the series of this name: by its name, or by a `/regular expression/`."""
    if matcher["id"] == "byRegexp":
        return re.search(matcher["options"].strip("/"), name) is not None
    return matcher == {"id": "byName", "options": name}


def _override(panel: Mapping[str, Any], name: str, what: str) -> Any:
    for override in panel["fieldConfig"]["overrides"]:
        if _matches(override["matcher"], name):
            for setting in override["properties"]:
                if setting["id"] == what:
                    return setting["value"]
    return None


def _mapped(panel: Mapping[str, Any], value: float) -> tuple[str, str] | None:
    """Text and colour of a value that the panel maps to a text."""
    for mapping in panel["fieldConfig"]["defaults"].get("mappings", ()):
        about = mapping["options"].get(f"{value:g}")
        if about is not None:
            return about["text"], _COLOURS[about["color"]]
    return None


def _threshold(about: Mapping[str, Any], value: float) -> str:
    steps = about["thresholds"]["steps"]
    return _COLOURS[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def said(value: float, unit: str, decimals: int | None = None, *, short: bool = False) -> str:
    """A value as text, in Grafana's unit; `short`: the form for axes."""
    if not math.isfinite(value):
        return "-"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{100 * value:.{decimals or 0}f}%" if decimals is not None else f"{100 * value:.3g}%"
    if unit == "bytes":
        return f"{value / 2**20:.3g} MiB"
    kind, _, word = unit.partition(":")
    number = f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"
    if kind == "prefix":
        return word + number
    if kind == "suffix" and not short:
        return f"{number} {word}"
    return f"{number} req/s" if unit == "reqps" and not short else number
