"""Pictures in files: plans, with a panel for each and a bar for each stage on its places; and comparisons.

A stage's bar shows what the stage adds to the time between two frames; the dotted line is that time, set by the slowest
pool. For a stage with copies, the time of one copy is drawn behind the bar in a lighter colour.

Needs matplotlib (the extra `plot`), which is imported only when a figure is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from shisha_rt.errors import Error, Failure
from shisha_rt.extras import pip_install
from shisha_rt.plan.form import plan_of
from shisha_rt.show.picture import after_in_words, cut, stage_in_words, teams_in_words
from shisha_rt.show.stages import Stages, period_s, rate_seen, time_in_words, unused_places
from shisha_rt.whole_file import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SLOWEST: Final = "#d1495b"
_OTHERS: Final = "#6c9ec4"
_FAINT: Final = "0.45"
_LIGHT: Final = 0.3
_WIDEST_NAME: Final = 28
_WIDTH: Final = 9.0
_ROW_HEIGHT: Final = 0.45
_PANEL_HEIGHT: Final = 0.9  # without its rows
_ROOM: Final = 1.45  # width of the axes / longest bar, as text stands behind the bars
_OURS, _COMPARED = "#0f766e", "#9aa5b1"
_ROOM_FOR_NUMBERS: Final = 1.25


class NoFigure(Failure):
    """No figure can be written; what it was to show has been printed."""

    def __init__(self, why: str, kind: str = Error.EXTRA_MISSING) -> None:
        super().__init__(why, kind, printed=True)


@contextmanager
def asked_for_by_png() -> Iterator[None]:
    """Begin the message of a NoFigure raised within with the option that asked for the figure."""
    try:
        yield
    except NoFigure as error:
        raise NoFigure(f"--png: {error}", error.kind) from None


def save_pipelines(path: Path, title: str, panels: Sequence[tuple[str, Stages]], places: Mapping[str, str]) -> None:
    """Write a PNG. `panels`: for each plan a title, and its stages as in answers of `plan_get`, all of them with times.
    `places`: for every place of the machine, the text below its name.

    Raises NoFigure without matplotlib, or if the file cannot be written.
    """
    rows_of = [len(stages) + len(unused_places(plan_of(stages), places)) for _, stages in panels]
    height = sum(_PANEL_HEIGHT + _ROW_HEIGHT * count for count in rows_of) + 0.6
    figure = new_figure(_WIDTH, height, layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    longest_s = max(float(stage["service_s"]) for _, stages in panels for stage in stages)
    rows = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=rows_of)
    for axes, (name, stages) in zip(rows[:, 0], panels, strict=True):
        _draw(axes, name, stages, places)
        axes.set_xlim(0, _ROOM * longest_s * 1e3)
    has_copies = any(len(stage.teams) > 1 for _, stages in panels for stage in plan_of(stages).stages)
    lighter = " (lighter: what one of its copies takes)" if has_copies else ""
    rows[-1, 0].set_xlabel(f"what a stage takes for a frame, ms{lighter}")
    write_figure(figure, path)


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = None) -> Figure:
    """A figure of so many inches. Raises NoFigure without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoFigure(f"matplotlib is missing: {pip_install('plot')}") from None
    return Figure(figsize=(width, height), layout=layout)


def write_figure(figure: Figure, path: Path, dpi: float = 150) -> None:
    """Write a PNG, whatever the file is called. Raises NoFigure if that fails."""
    try:
        with whole_file(path) as file:
            figure.savefig(file, format="png", dpi=dpi)
    except OSError as error:
        raise NoFigure(f"{path}: {error.strerror}", Error.UNWRITABLE_FILE) from None


def _draw(axes: Axes, title: str, stages: Stages, places: Mapping[str, str]) -> None:
    """Draw stages from top to bottom in the plan's order, then the places without a stage."""
    plan, rate = plan_of(stages), rate_seen(stages)
    assert rate is not None  # all stages are timed
    unused = unused_places(plan, places)
    rows = len(plan.stages) + len(unused)
    labels = []
    for row, (stage, timed) in enumerate(zip(plan.stages, stages, strict=True)):
        service_s, is_slowest = float(timed["service_s"]), row == rate.slowest_stage
        own_s = period_s(stage, service_s) or 0.0
        color = _SLOWEST if is_slowest else _OTHERS
        axes.barh(row, 1e3 * service_s, color=color, alpha=_LIGHT, height=0.66)
        axes.barh(row, 1e3 * own_s, color=color, height=0.66)
        text = f"{time_in_words(service_s, len(stage.teams))}, {stage_in_words(stage)}"
        if not plan.is_chain:
            text = f"{row}: {text}, {after_in_words(stage.after)}"
        axes.annotate(
            f"{text}: the slowest" if is_slowest else text,
            (1e3 * service_s, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if is_slowest else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # above the dotted line
        )
        notes = dict.fromkeys(places[name] for name in stage.places)  # copies may be on different kinds of places
        labels.append(f"{cut(teams_in_words(stage.teams), _WIDEST_NAME)}\n{cut(', '.join(notes), _WIDEST_NAME)}")
    axes.axvline(1e3 * rate.bottleneck_s, color=_SLOWEST, linewidth=1, linestyle=":")
    for row, name in enumerate(unused, len(plan.stages)):
        axes.text(0, row, " no stage", va="center", fontsize=9, color=_FAINT)
        labels.append(f"{name}\n{places[name]}")
    axes.set_yticks(range(rows), labels, fontsize=8)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=10)
    _lighten(axes)


def _lighten(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def save_comparison(path: Path, title: str, bars: Sequence[tuple[str, float, float]]) -> None:
    """Write a PNG of (name, frames a second, seconds), of which the first is the daemon. Raises NoFigure."""
    figure = new_figure(9.0, 1.2 + 0.4 * len(bars), layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, sharey=True)
    names = [name for name, _, _ in bars]
    colors = [_OURS, *[_COMPARED] * (len(bars) - 1)]
    for axes, label, values in (
        (left, "frames a second", [rate_fps for _, rate_fps, _ in bars]),
        (right, "one frame by itself, ms", [1e3 * latency_s for _, _, latency_s in bars]),
    ):
        drawn = axes.barh(range(len(bars)), values, color=colors, height=0.66)
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], padding=4, fontsize=9)
        axes.set_xlim(0, _ROOM_FOR_NUMBERS * max(values))
        axes.set_xlabel(label)
        _lighten(axes)
    left.set_yticks(range(len(bars)), names)
    left.invert_yaxis()
    write_figure(figure, path)
