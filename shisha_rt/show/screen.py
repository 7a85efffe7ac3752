"""The screen of `top`: places with stages as bars, last trials, recent events; fits a given width and height."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shisha_rt.plan.form import plan_of
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.show.event_words import Event, clock, in_words, latency, rate, verdict
from shisha_rt.show.lines import aim_in_words, clipped, plan_in_words, shortened, waits_in_words
from shisha_rt.show.picture import Box, after_in_words, millijoules, milliseconds
from shisha_rt.show.stages import Stages, placement_lines, pool_lines, stage_boxes, time_in_words, unused_places

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
_WIDEST_BAR: Final = 60
_WIDEST_NAME: Final = 16
_WIDEST_WORK: Final = 24
_TIME: Final = "a frame takes"
_SLOWEST: Final = "  slowest"
_PARTS_OF_A_BLOCK: Final = " ▏▎▍▌▋▊▉"


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
        table, left_out = _place_table(self._status, options.max_width, most_places if console.is_terminal else None)
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


# --- the table of places: rows for those of each team, with its stages, then for unused ones ------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """`with_lead`: the lead of the team to which this place only lends its cores. Without a box it has no stage."""

    place: str
    is_first: bool = True
    work: str = "-"
    time: str = ""
    box: Box | None = None
    with_lead: str | None = None


def _place_table(status: Mapping[str, Any], width: int, most_rows: int | None) -> tuple[Table, int]:
    """A table of places in the plan's order, and the number of rows left out; `most_rows` None: no limit."""
    from rich.table import Table
    from rich.text import Text

    places = {place["name"]: place for place in status["places"]}
    rows = [*_rows(status["plan"]["stages"], status["bottleneck_stage"], list(places))]
    left_out = 0 if most_rows is None else max(0, len(rows) - most_rows)
    with_restarts = any(place["restarts"] for place in places.values())
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    table.add_column("place", no_wrap=True)
    table.add_column("speed", no_wrap=True)
    table.add_column("layers", no_wrap=True)
    if with_restarts:
        table.add_column("restarts", justify="right", no_wrap=True)
    table.add_column(_TIME, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    names_width = min(_WIDEST_NAME, max(map(len, ["place", *places])))
    time_width = max(map(len, [_TIME, *(row.time for row in rows)]))
    others = sum(w + 2 for w in (names_width, 5, time_width)) + (10 if with_restarts else 0)
    widest_work = max(len("layers"), min(_WIDEST_WORK, width - others - len(_SLOWEST) - 4))
    work_width = min(widest_work, max(map(len, ["layers", *(row.work for row in rows)])))
    room = width - others - work_width - 2
    for row in rows[: len(rows) - left_out]:
        place = places[row.place]
        is_well = place["state"] == "up" and place["available"]
        about: list[str | Text] = ["", ""]
        if row.is_first:
            about = [
                shortened(row.place, names_width, "" if is_well else "yellow"),
                f"{place['speed']:.3g}{'*' if place['emulated'] else ' '}",
            ]
        about.append(shortened(row.work, work_width))
        if with_restarts:
            restarts = str(place["restarts"]) if row.is_first else ""
            about.append(Text(restarts, "yellow" if place["restarts"] else "dim"))
        table.add_row(*about, *(_doing(row, room) if is_well else ("", shortened(_trouble(place), room, "yellow"))))
    return table, left_out


def _doing(row: _Row, room: int) -> tuple[Text, Text]:
    """The time of a frame on a place, and its bar; or why there is none."""
    from rich.text import Text

    if row.with_lead is not None:
        return Text(), shortened(f"with {row.with_lead}", room, "dim")
    if row.box is None:
        return Text(), shortened("no stage", room, "dim")
    return Text(row.time, "bold" if row.box.is_slowest else ""), _bar(row.box, room)


def _rows(stages: Stages, slowest: int | None, places: list[str]) -> Iterator[_Row]:
    plan, boxes = plan_of(stages), stage_boxes(stages, slowest)
    for pool in plan.pools:
        for team in pool.teams:
            for nth, index in enumerate(pool.stages):
                time = time_in_words(_team_s(stages[index], team), len(pool.teams))
                yield _Row(team[0], not nth, _work(plan, index), time, boxes[index])
            yield from (_Row(place, work="", with_lead=team[0]) for place in team[1:])
    yield from map(_Row, unused_places(plan, places))


def _team_s(stage: Mapping[str, Any], team: Team) -> float | None:
    teams = stage["teams"] if len(stage["places"]) > 1 else ({"places": team, "service_s": stage["service_s"]},)
    service_s: float | None = next(row["service_s"] for row in teams if tuple(row["places"]) == team)
    return service_s


def _work(plan: Plan, index: int) -> str:
    """Layers; in a plan with branches, also the stage's number and the stages that it waits for."""
    stage = plan.stages[index]
    layers = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in stage.work)
    if stage.split is not None:
        layers += f" {stage.split}"
    return layers if plan.is_chain else f"{index}: {layers} {after_in_words(stage.after)}"


def _trouble(place: Mapping[str, Any]) -> str:
    state = place["state"] if place["available"] else f"{place['state']}, not in planning"
    return f"{state}: {place['last_error']}" if place["last_error"] else str(state)


def _bar(box: Box, room: int) -> Text:
    """Bar of a box; if the word does not fit, only colour marks the slowest."""
    from rich.text import Text

    behind = len(_SLOWEST) if room > 2 * len(_SLOWEST) else 0
    eighths = round(8 * min(_WIDEST_BAR, max(1, room - behind)) * min(1.0, box.bar))
    bar = "█" * (eighths // 8) + _PARTS_OF_A_BLOCK[eighths % 8].strip()
    return Text(f"{bar}{_SLOWEST if behind else ''}", "bold red") if box.is_slowest else Text(bar, "cyan")
