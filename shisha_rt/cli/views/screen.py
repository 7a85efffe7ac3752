"""The picture of `top`: places with their stages as bars, the tuner's last trials, and what else happened.

It is a rich renderable that fits the width and the height that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shisha_rt.cli.status import placement_lines, stage_boxes
from shisha_rt.cli.views.picture import Box
from shisha_rt.cli.views.story import Event, clock, in_words, rate, verdict

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_LATELY: Final = 4
_MOST_TRIALS: Final = 12
_FEWEST_TRIALS: Final = 3
_WIDEST_BAR: Final = 60
_WIDEST_NAME: Final = 16
_WIDEST_WHY: Final = 52
_WIDE: Final = 110  # columns from which there is room for the plans of trials
_PARTS_OF_A_BLOCK: Final = " ▏▎▍▌▋▊▉"
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_STYLE_OF_VERDICT: Final = {"first": "", "better": "green", "not_better": "dim", "cannot_run": "red"}
_TOLD_BY_TRIALS: Final = ("trial", "plan_preparing", "plan_live", "worker_started", "placement_solved")
"""Kinds that would only fill the list of events while the tuner works."""


class Screen:
    """What is known of one daemon. `update` it with each look."""

    def __init__(self) -> None:
        self._status: Mapping[str, Any] = {}
        self._trials: deque[Event] = deque(maxlen=200)
        self._lately: deque[Event] = deque(maxlen=_LATELY)
        self._served: tuple[float, int] | None = None
        self._now_fps: float | None = None

    def update(self, status: Mapping[str, Any], news: Sequence[Event]) -> None:
        """A `status` and the events since the last one."""
        for event in news:
            if event["kind"] == "tuning_began":
                self._trials.clear()
            if event["kind"] == "trial":
                self._trials.append(event)
            elif event["kind"] not in _TOLD_BY_TRIALS:
                self._lately.append(event)
        served = status["uptime_s"], status["frames"]["answered"].get("OK", 0)
        if self._served is not None and served[0] > self._served[0]:
            self._now_fps = (served[1] - self._served[1]) / (served[0] - self._served[0])
        self._served, self._status = served, status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        head = self._head()
        places = _places(self._status, options.max_width)
        rows = len(self._status["places"]) + 1
        yield from head
        yield Text()
        yield places
        if any(place["emulated"] for place in self._status["places"]):
            yield _line("* emulated: it computes for real, then waits as a slower place would", "dim")
            rows += 1
        for line in placement_lines(self._status["plan"]["stages"]):
            yield _line(line, "dim")
            rows += 1
        yield Text()
        if self._trials:
            room = console.height - len(head) - rows - 4 - len(self._lately) - 1
            yield from self._tuning(min(_MOST_TRIALS, max(_FEWEST_TRIALS, room)), options.max_width)
            yield Text()
        for event in self._lately:
            yield _line(f"{clock(event)}  ", "dim").append(in_words(event), "not dim")
        if self._status["fault"]:
            yield _line(f"fault: {self._status['fault']}", "red")

    def _head(self) -> list[Text]:

        s = self._status
        model, machine, frames = s["model"], s["machine"], s["frames"]
        first = [model["name"], s["state"]]
        if s["plan"]["epoch"] is not None:
            first.append(f"epoch {s['plan']['epoch']}")
        if s["preparing"] is not None:
            first.append(f"preparing epoch {s['preparing']}")
        first.append(f"machine {machine['name']}{' (emulated)' if machine['emulated'] else ''}")
        flow = [] if self._now_fps is None else [f"{self._now_fps:.4g} frames/s"]
        fps = s["throughput_fps"]
        flow.append("not timed yet" if fps is None else f"up to {fps:.4g} frames/s")
        failed = sum(count for outcome, count in frames["answered"].items() if outcome != "OK")
        flow.append(f"{frames['answered'].get('OK', 0)} answered")
        if failed:
            flow.append(f"{failed} failed")
        if frames["replayed"]:
            flow.append(f"{frames['replayed']} parts run again")
        flow.append(f"{frames['in_flight']} in flight")
        lines = [(first, "bold"), (flow, "")]
        if "tuner" in s:
            lines.append((_tuner(s["tuner"]), "dim" if s["tuner"]["state"] in ("off", "paused") else "cyan"))
        return [_line(" · ".join(parts), style) for parts, style in lines]

    def _tuning(self, rows: int, width: int) -> list[Text | Table]:
        """The trials of the run as a line of their throughput, and the last of them one by one."""
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
        for name in ("trial", "frames/s"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("why", no_wrap=True)
        is_wide = width >= _WIDE
        if is_wide:
            table.add_column("plan", no_wrap=True)
        room = width - len("trial  frames/s  not better  ")
        shown = list(self._trials)[-rows:]
        why_room = min(_WIDEST_WHY, max(len(_why(trial)) for trial in shown)) if is_wide else room
        best = next((t for t in reversed(self._trials) if t["verdict"] in ("better", "first")), self._trials[0])
        for trial in shown:
            style = "bold green" if trial is best else _STYLE_OF_VERDICT.get(trial["verdict"], "")
            row: list[str | Text] = [str(trial["trial"]), rate(trial), verdict(trial), _cut(_why(trial), why_room)]
            table.add_row(*row, *([_cut(trial["plan"], room - why_room - 2)] if is_wide else []), style=style)
        marked = list(self._trials)[-max(1, width - 50) :]
        line = _line(f"run {best['run']}  ", "dim").append(_sparks([_fps(t) for t in marked]), "not dim cyan")
        line.append(f"  {rate(self._trials[0])} to {rate(best)} frames/s at best", "dim")
        return [line, table]


def _tuner(tuner: Mapping[str, Any]) -> list[str]:
    parts = [f"tuner {tuner['state']}"]
    if tuner["state"] != "off":
        parts.append(f"{tuner['strategy']}, alpha {tuner['alpha']}")
    parts.append(f"trials: {tuner['trials_total']}")
    parts.append(f"layers moved: {tuner['moves_total']}")
    return parts


def _places(status: Mapping[str, Any], width: int) -> Table:
    """Places in the order of the pipeline, then those without a stage."""
    from rich.table import Table
    from rich.text import Text

    stages = status["plan"]["stages"]
    at = {stage["places"][0]: (stage, box) for stage, box in zip(stages, stage_boxes(stages), strict=True)}
    places = {place["name"]: place for place in status["places"]}
    order = [*(name for name in at if name in places), *(name for name in places if name not in at)]
    with_restarts = any(place["restarts"] for place in places.values())
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    table.add_column("place", no_wrap=True)
    table.add_column("speed", no_wrap=True)
    table.add_column("layers", no_wrap=True)
    if with_restarts:
        table.add_column("restarts", justify="right", no_wrap=True)
    table.add_column("a frame takes", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    names_width = min(_WIDEST_NAME, max(map(len, ["place", *places])))
    layers_width = max(map(len, ["layers", *(_layers(stage) for stage in stages)]))
    room = (
        width - sum(w + 2 for w in (names_width, 5, layers_width, len("a frame takes"))) - (10 if with_restarts else 0)
    )
    for name in order:
        place = places[name]
        is_well = place["state"] == "up" and place["available"]
        row: list[str | Text] = [_cut(name, names_width, "" if is_well else "yellow"), _speed(place)]
        row.append(_layers(at[name][0]) if name in at else "-")
        if with_restarts:
            row.append(Text(str(place["restarts"]), "yellow" if place["restarts"] else "dim"))
        if not is_well:
            row += ["", _cut(_trouble(place), room, "yellow")]
        elif name in at:
            box = at[name][1]
            row += [
                Text(box.label, "bold" if box.is_slowest else ""),
                _bar(box, min(_WIDEST_BAR, room - len("  slowest"))),
            ]
        else:
            row += ["", Text("no stage", "dim")]
        table.add_row(*row)
    return table


def _line(text: str, style: str = "") -> Text:
    """One that is cut where the terminal ends."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _cut(text: str, width: int, style: str = "") -> Text:
    """For a table, which would cut every column where one is too wide."""
    line = _line(text, style)
    line.truncate(max(1, width), overflow="ellipsis")
    return line


def _speed(place: Mapping[str, Any]) -> str:
    return f"{place['speed']:.3g}{'*' if place['emulated'] else ' '}"


def _layers(stage: Mapping[str, Any]) -> str:
    first, last = stage["first"], stage["last"]
    return f"{first}-{last}" if last > first else f"{first}"


def _trouble(place: Mapping[str, Any]) -> str:
    state = place["state"] if place["available"] else f"{place['state']}, not in planning"
    return f"{state}: {place['last_error']}" if place["last_error"] else state


def _bar(box: Box, width: int) -> Text:
    from rich.text import Text

    eighths = round(8 * max(1, width) * min(1.0, box.bar))
    bar = "█" * (eighths // 8) + _PARTS_OF_A_BLOCK[eighths % 8].strip()
    return Text(f"{bar}  slowest", "bold red") if box.is_slowest else Text(bar, "cyan")


def _sparks(values: Sequence[float]) -> str:
    """One mark for each value. The scale starts a little below the lowest, so that gains can be seen."""
    known = [value for value in values if value > 0]
    if not known:
        return ""
    low, high = 0.9 * min(known), max(known)
    return "".join(_SPARKS[round((len(_SPARKS) - 1) * max(0.0, v - low) / (high - low))] for v in values)


def _why(trial: Event) -> str:
    return f"{trial['reason']}; {trial['trouble']}" if trial["trouble"] else str(trial["reason"])


def _fps(trial: Event) -> float:
    return float(trial["throughput_fps"] or 0.0)
