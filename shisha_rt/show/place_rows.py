"""The table of `top`: rows for the places of each team, with the stages that they serve, then for unused places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shisha_rt.plan.form import plan_of
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.show.lines import shortened
from shisha_rt.show.picture import Box, after_in_words
from shisha_rt.show.stages import Stages, stage_boxes, time_in_words, unused_places

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_WIDEST_BAR: Final = 60
_WIDEST_NAME: Final = 16
_WIDEST_WORK: Final = 24
_TIME: Final = "a frame takes"
_SLOWEST: Final = "  slowest"
_PARTS_OF_A_BLOCK: Final = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class _Row:
    """`with_lead`: the lead of the team to which this place only lends its cores. Without a box it has no stage."""

    place: str
    is_first: bool = True
    work: str = "-"
    time: str = ""
    box: Box | None = None
    with_lead: str | None = None


def place_table(status: Mapping[str, Any], width: int, most_rows: int | None) -> tuple[Table, int]:
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
