"""Sides of a comparison as a PNG: bars of frames a second, and of the time of one frame by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shisha_rt.show.figure import new_figure, write_figure

_OURS, _OTHERS = "#0f766e", "#9aa5b1"
_ROOM: Final = 1.25  # width of the axes / longest bar, as numbers stand behind the bars


def save_comparison(path: Path, title: str, bars: Sequence[tuple[str, float, float]]) -> None:
    """Write a PNG of (name, frames a second, seconds), of which the first is the daemon. Raises NoFigure."""
    figure = new_figure(9.0, 1.2 + 0.4 * len(bars), layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, sharey=True)
    names = [name for name, _, _ in bars]
    colors = [_OURS, *[_OTHERS] * (len(bars) - 1)]
    for axes, label, values in (
        (left, "frames a second", [rate_fps for _, rate_fps, _ in bars]),
        (right, "one frame by itself, ms", [1e3 * latency_s for _, _, latency_s in bars]),
    ):
        drawn = axes.barh(range(len(bars)), values, color=colors, height=0.66)
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], padding=4, fontsize=9)
        axes.set_xlim(0, _ROOM * max(values))
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    left.set_yticks(range(len(bars)), names)
    left.invert_yaxis()
    write_figure(figure, path)
