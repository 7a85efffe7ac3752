"""Split layers executed by the daemon's workers: on emulated places, on real cores, and in a self-tuning daemon."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, Spread, save_csv, show, written
from benchmarks.splits import alone, emulated, live

_SLOWED: Final = (("alexnet", ((2, "channels"), (3, "groups"), (5, "columns"))),)
_SPEEDS: Final = (0.6, 0.3)

Tables = dict[str, tuple[str, list[Row]]]
"""By title: the name of the file, and the rows."""


def splits_executed(
    parts: Annotated[str, typer.Option(help="Of emulated, alone, live, killed: those wanted.")] = (
        "emulated,alone,live,killed"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A network, three layers, and one daemon.")] = False,
) -> None:
    """Split layers as workers run them: predicted and measured, against teams and engines, and what daemons choose."""
    about = facts(f"splits_executed{f' --parts {parts}' if parts.count(',') < 3 else ''}{' --quick' * quick}")
    wanted = parts.split(",")
    tables: Tables = {}
    if "emulated" in wanted:
        tables[ON_BOARD] = ("splits_executed_board", _kept("splits_executed_board", _board(quick=quick), about))
        slowed = (row for model, split in _SLOWED for row in emulated.slowed_rows(model, split, _SPEEDS, 1.0))
        tables[SLOWED] = ("splits_executed_slowed", _kept("splits_executed_slowed", slowed, about))
    if "alone" in wanted:
        tables[ALONE] = ("splits_executed_layers", _kept("splits_executed_layers", _layers(quick=quick), about))
    if "live" in wanted:
        cases = live.QUICK if quick else live.FULL
        served = (live.served_row(its) for its in _named(cases))
        tables[LIVE] = ("splits_executed_live", _kept("splits_executed_live", served, about))
    if "killed" in wanted:
        killed = live.killed_rows(2 if quick else 5)
        tables[KILLED] = ("splits_executed_killed", _kept("splits_executed_killed", killed, about))
    for title, (_, rows) in tables.items():
        show(title, rows)
    print(f"written to {save_page(tables, about)}")


ON_BOARD: Final = "Shards on the emulated board"
SLOWED: Final = "Shards on slowed places"
ALONE: Final = "Layers by themselves on two cores"
LIVE: Final = "Daemons left to themselves"
KILLED: Final = "A shard's worker killed"


def _board(*, quick: bool) -> Iterable[Row]:
    for case in emulated.QUICK if quick else emulated.FULL:
        print(f"splits_executed: {case.model} on {emulated.BOARD} ...", flush=True)
        yield from emulated.board_rows(case)


def _layers(*, quick: bool) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for layer in alone.QUICK if quick else alone.FULL:
            print(f"splits_executed: {layer.name} ...", flush=True)
            row = alone.alone_row(layer, Path(folder), seconds=0.3 if quick else 0.4, rounds=3 if quick else 5)
            if row is None:
                print(f"splits_executed: {layer.name} left out: too little memory is free", flush=True)
            else:
                yield row


def _named(cases: Sequence[live.Served]) -> Iterable[live.Served]:
    for case in cases:
        print(f"splits_executed: {case.model}, {case.title} ...", flush=True)
        yield case


def _kept(name: str, rows: Iterable[Row], about: Mapping[str, str]) -> list[Row]:
    """Save rows one by one, so that results are kept if a later one fails."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        save_csv(name, found, about)
    return found


def save_page(tables: Tables, about: Mapping[str, str], folder: Path = RESULTS) -> Path:
    """Write the page of all tables, with findings from each."""
    path = folder / "splits_executed.md"
    parts = [_PAGE.format(**about)]
    for title, (name, rows) in tables.items():
        names = list(rows[0])
        lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
        parts += [f"## {title}\n", _NOTES[title], "", *findings(title, rows), ""]
        parts += [*(f"| {' | '.join(line)} |" for line in lines), "", f"[{name}.csv]({name}.csv)", ""]
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _cell(value: object) -> str:
    """Text of a cell; bars, which separate stages of plans, are escaped."""
    return written(value).replace("|", "\\|")


def findings(title: str, rows: Sequence[Row]) -> list[str]:
    """Findings from the rows of a table, as lines of a list."""
    if title in (ON_BOARD, SLOWED):
        return _off_by(rows)
    if title == ALONE:
        return _against_others(rows)
    return _frames(rows)


def _off_by(rows: Sequence[Row]) -> list[str]:
    errors = [abs(_number(row["error %"])) for row in rows]
    within = sum(error <= emulated.AIM_PERCENT for error in errors)
    found = [
        f"- Of {len(rows)} shards and joins {within} are within {emulated.AIM_PERCENT:g}% of what was predicted; half "
        f"are off by at most {median(errors):.2g}%, the furthest by {max(errors):.3g}%."
    ]
    slow = [
        f"{row['network']} {row['layer']} on {row['place']} ({row['share']}): {_number(row['error %']):+.1f}%, "
        f"computing took {_number(row['computed here ms']) / _number(row['predicted ms']):.0%} of its time"
        for row in rows
        if "computed here ms" in row and abs(_number(row["error %"])) > emulated.AIM_PERCENT
    ]
    return [*found, *(f"- {line}." for line in slow)]


def _against_others(rows: Sequence[Row]) -> list[str]:
    """Of layers that take long enough, how many splits meet the aim against a team, and against the engine."""
    large = [row for row in rows if _middle(row["one core ms"]) > 1e3 * alone.LARGE_S]
    found = []
    for other in ("team", "ORT, 2 threads"):
        within = [str(row["layer"]) for row in large if _middle(row[f"split / {other}"]) <= alone.AIM]
        beyond = [
            f"{row['layer']} ({_middle(row[f'split / {other}']):.2f})"
            for row in large
            if _middle(row[f"split / {other}"]) > alone.AIM
        ]
        not_so = f"; not {', '.join(beyond)}" if beyond else ""
        found.append(
            f"- At most {alone.AIM:g} times {other}: {len(within)} of {len(large)} layers over "
            f"{1e3 * alone.LARGE_S:g} ms{not_so}."
        )
    return found


def _frames(rows: Sequence[Row]) -> list[str]:
    """Results of all frames. Kills have one load, so each of their rows has the counts of all of its frames."""
    each = rows if "case" in rows[0] else rows[:1]
    told = ", ".join(
        f"{sum(round(_number(row[what])) for row in each)} {what}"
        for what in ("sent", "answered", "lost", "refused", "out of order", "different")
    )
    return [f"- Frames: {told}."]


def _number(value: object) -> float:
    return float(str(value))


def _middle(value: object) -> float:
    return value.median if isinstance(value, Spread) else _number(value)


_PAGE: Final = """# Split layers executed

`{repeat}` wrote this page ({date}, commit {commit}; {cpu}, {cores}; load at the start: {load average at the start}).
"""

_NOTES: Final[Mapping[str, str]] = {
    ON_BOARD: """The board of the GP paper (`tx2-cyclone`): **emulated**, times are those of the board, its `time_scale`
taken out. Predicted by the formulas of devices, measured as the median of what the worker took for each frame, one
frame at a time. A place computes for real and then waits; `computed here ms` is the CPU time of that, in the same
seconds: where it comes near to what is predicted, a busy moment of this host makes the place late.""",
    SLOWED: """Places of 0.6 and 0.3 of a core (**emulated**: real computation, then a wait), shares in proportion.
Predicted is a shard's part of what the whole layer takes by stored costs; `by the whole layer`, of what that took in
turns with it.""",
    ALONE: """Networks of one layer, one frame at a time, nothing emulated: one core, a team of two and splits in two
through the daemon, hand-overs included; ONNX Runtime in a process by itself. All in turns; medians over the rounds, and
their quartiles. `planned`: what the planner makes of the measured costs for least latency, without teams.""",
    LIVE: """What the daemon begins with by stored costs, and what `guided` has live in the end, in turns under one load
(speeds below 1 are **emulated**). `without splits`, `with splits`: what `plan --strategy exact` says of the same costs.
`off the whole's`: the largest difference from the answers of a daemon with all of the network on one place, over the
largest value. `different`: from the first answer to the same frame.""",
    KILLED: """The workers of the two places that share a layer are killed in turns, by SIGKILL, under load. The longest
gap between two answers is how long none came; a place is back when its worker is up, before its stages are built.""",
}
