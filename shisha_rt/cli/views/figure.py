"""Pipelines as a picture in a file: a panel for each, with a bar for each stage on its place.

Needs matplotlib, which is the extra `plot`; nothing else of the package does, so it is imported when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shisha_rt.cli.status import milliseconds
from shisha_rt.cli.views.picture import span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SLOWEST: Final = "#d1495b"
_OTHERS: Final = "#6c9ec4"
_FAINT: Final = "0.45"
_WIDTH: Final = 9.0
_ROW_HEIGHT: Final = 0.45
_PANEL_HEIGHT: Final = 0.9  # beside its rows
_ROOM: Final = 1.45  # of the longest bar, for what is written behind it


class NoFigure(Exception):
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pipeline. `stages` as `plan_get` has them, all of them timed."""

    title: str
    stages: Sequence[Mapping[str, Any]]


def save_pipelines(path: Path, title: str, panels: Sequence[Panel], places: Mapping[str, str]) -> None:
    """Write a PNG. `places`: every place of the machine, with what is to be said of it below its name.

    Raises NoFigure without matplotlib, or where the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoFigure("matplotlib is missing: pip install 'shisha-rt[plot]'") from None
    height = len(panels) * (_PANEL_HEIGHT + _ROW_HEIGHT * len(places)) + 0.6
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    longest_s = max(float(stage["service_s"]) for panel in panels for stage in panel.stages)
    rows = figure.subplots(len(panels), 1, squeeze=False, sharex=True)
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _draw(axes, panel, places)
        axes.set_xlim(0, _ROOM * longest_s * 1e3)
    rows[-1, 0].set_xlabel("what a stage takes for a frame, ms")
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as error:
        raise NoFigure(f"{path}: {error.strerror}") from None


def _draw(axes: Axes, panel: Panel, places: Mapping[str, str]) -> None:
    """Stages from top to bottom as frames pass them, then the places without one."""
    used = [str(stage["places"][0]) for stage in panel.stages]
    names = [*used, *(name for name in places if name not in used)]
    times_s = [float(stage["service_s"]) for stage in panel.stages]
    slowest = times_s.index(max(times_s))
    colors = [_SLOWEST if row == slowest else _OTHERS for row in range(len(times_s))]
    axes.barh(range(len(times_s)), [1e3 * time_s for time_s in times_s], color=colors, height=0.66)
    axes.axvline(1e3 * times_s[slowest], color=_SLOWEST, linewidth=1, linestyle=":")
    for row, (stage, time_s) in enumerate(zip(panel.stages, times_s, strict=True)):
        is_slowest = row == slowest
        text = f"{milliseconds(time_s)}, {span(stage['first'], stage['last'])}{': the slowest' if is_slowest else ''}"
        axes.annotate(
            text,
            (1e3 * time_s, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if is_slowest else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # above the dotted line
        )
    for row in range(len(times_s), len(names)):
        axes.text(0, row, " no stage", va="center", fontsize=9, color=_FAINT)
    axes.set_yticks(range(len(names)), [f"{name}\n{places[name]}" for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
