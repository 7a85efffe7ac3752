"""The screen of `top`: places with their stages as bars, the tuner's last trials, and other recent events.

It is a rich renderable that fits the given width and height.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shisha_rt.show.event_words import Event, clock, in_words, latency, rate, verdict
from shisha_rt.show.lines import aim_in_words, clipped, plan_in_words, shortened, waits_in_words
from shisha_rt.show.picture import millijoules, milliseconds
from shisha_rt.show.place_rows import place_table
from shisha_rt.show.stages import placement_lines, pool_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_LATELY: Final = 4
_MOST_TRIALS: Final = 12
_FEWEST_TRIALS: Final = 3
_FEWEST_PLACES: Final = 8
_WIDEST_WHY: Final = 52
_WIDE: Final = 110  # columns from which on the plans of trials are shown
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_STYLE_OF_VERDICT: Final = {"first": "", "better": "green", "not_better": "dim", "cannot_run": "red"}
_TOLD_BY_TRIALS: Final = ("trial", "plan_preparing", "plan_live", "worker_started", "placement_solved")
"""Kinds left out of the list of events, which they would fill while the tuner works."""


class Screen:
    """The known state of one daemon; call `update` after each request."""

    def __init__(self) -> None:
        self._status: Mapping[str, Any] = {}
        self._trials: deque[Event] = deque(maxlen=200)
        self._lately: deque[Event] = deque(maxlen=_LATELY)
        self._served: tuple[float, int] | None = None
        self._now_fps: float | None = None

    def update(self, status: Mapping[str, Any], news: Sequence[Event]) -> None:
        """Take in a `status` and the events since the last update."""
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
        stages = self._status["plan"]["stages"]
        below = [*pool_lines(stages), *placement_lines(stages)]
        if any(place["emulated"] for place in self._status["places"]):
            below.insert(0, "* emulated: it computes for real, then waits as a slower place would")
        room = console.height - len(head) - len(below) - 2 - len(self._lately) - 1
        most_places = max(_FEWEST_PLACES, room - (_FEWEST_TRIALS + 4 if self._trials else 1))
        table, left_out = place_table(self._status, options.max_width, most_places if console.is_terminal else None)
        if left_out:
            below.insert(0, f"… {left_out} more")
        yield from head
        yield Text()
        yield table
        for line in below:
            yield clipped(line, "dim")
        yield Text()
        if self._trials:
            room -= table.row_count + 3 + bool(left_out)
            yield from self._tuning(min(_MOST_TRIALS, max(_FEWEST_TRIALS, room)), options.max_width)
            yield Text()
        for event in self._lately:
            yield clipped(f"{clock(event)}  ", "dim").append(in_words(event), "not dim")
        if self._status["fault"]:
            yield clipped(f"fault: {self._status['fault']}", "red")

    def _head(self) -> list[Text]:
        s = self._status
        machine, frames = s["machine"], s["frames"]
        first = plan_in_words(s)
        first.append(f"machine {machine['name']}{' (emulated)' if machine['emulated'] else ''}")
        is_for_latency = s["objective"] == "latency"
        flow = [] if self._now_fps is None else [f"{self._now_fps:.4g} frames/s"]
        fps = s["throughput_fps"]
        flow.append("not timed yet" if fps is None else f"up to {fps:.4g} frames/s")
        if is_for_latency and s["latency_s"] is not None:
            flow.append(f"latency {milliseconds(s['latency_s'])} (unloaded)")
        if s.get("energy_j") is not None:
            flow.append(f"{millijoules(s['energy_j'])} a frame by described power")
        failed = sum(count for outcome, count in frames["answered"].items() if outcome != "OK")
        flow.append(f"{frames['answered'].get('OK', 0)} answered")
        if failed:
            flow.append(f"{failed} failed")
        if frames["replayed"]:
            flow.append(f"{frames['replayed']} parts run again")
        flow.append(f"{frames['in_flight']} in flight")
        lines = [(first, "bold"), (flow, "")]
        if "tuner" in s:
            style = "dim" if s["tuner"]["state"] in ("off", "paused") else "cyan"
            lines.append((_tuner(s["tuner"], s.get("profiler_waits_s")), style))
        return [clipped(" · ".join(parts), style) for parts, style in lines]

    def _tuning(self, rows: int, width: int) -> list[Text | Table]:
        """A line of sparks with the values of this search's trials, and a table of the last trials."""
        from rich.table import Table

        field, unit, digits = _JUDGED_BY[self._status["objective"]]

        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
        for name in ("trial", unit):
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
            row: list[str | Text] = [
                str(trial["trial"]),
                digits(trial),
                verdict(trial),
                shortened(_why(trial), why_room),
            ]
            table.add_row(*row, *([shortened(trial["plan"], room - why_room - 2)] if is_wide else []), style=style)
        sparks = _sparks([_merit(trial, field) for trial in list(self._trials)[-max(1, width - 50) :]])
        line = clipped(f"run {best['run']}  ", "dim").append(sparks, "not dim cyan")
        line.append(f"  {digits(self._trials[0])} to {digits(best)} {unit} at best", "dim")
        return [line, table]


def _tuner(tuner: Mapping[str, Any], waits_s: float | None) -> list[str]:
    parts = [f"tuner {tuner['state']}"]
    if waits_s is not None:
        parts.append(waits_in_words(waits_s))
    if tuner["state"] != "off":
        parts.append(f"{tuner['strategy']}{aim_in_words(tuner)}, alpha {tuner['alpha']}")
    parts.append(f"trials: {tuner['trials_total']}")
    parts.append(f"layers moved: {tuner['moves_total']}")
    return parts


def _sparks(values: Sequence[float]) -> str:
    """One mark for each value. The scale starts a little below the lowest, so that gains can be seen."""
    known = [value for value in values if value > 0]
    if not known:
        return ""
    low, high = 0.9 * min(known), max(known)
    return "".join(_SPARKS[round((len(_SPARKS) - 1) * max(0.0, v - low) / (high - low))] for v in values)


def _why(trial: Event) -> str:
    return f"{trial['reason']}; {trial['trouble']}" if trial["trouble"] else str(trial["reason"])


def _merit(trial: Event, field: str) -> float:
    """What a trial was judged by, made so that more is better: frames a second, sent by turns or not, or a joule."""
    value = float(trial.get(field) or 0.0)
    return value if field == "throughput_fps" or not value else 1 / value


def _energy(trial: Event) -> str:
    energy_j = trial.get("energy_j")
    return "-" if energy_j is None else millijoules(energy_j).removesuffix(" mJ")


_JUDGED_BY: Final[Mapping[str, tuple[str, str, Callable[[Event], str]]]] = {
    "throughput": ("throughput_fps", "frames/s", rate),
    "latency": ("latency_s", "ms alone", latency),
    "energy": ("energy_j", "mJ", _energy),
}
"""By objective: the field of a trial that counts, its unit, and its text."""
