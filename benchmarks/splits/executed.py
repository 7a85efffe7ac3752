"""Split layers executed by the daemon's workers: on emulated places, on real cores, and in a self-tuning daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.lists import words_in
from benchmarks.report.page import table, words
from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.splits import alone, emulated, live, slowed

ON_BOARD: Final = "Shards on the emulated board"
ALONE: Final = "Layers by themselves on two cores"
SLOWED: Final = "Shards on a slowed place, as trials correct them"
LIVE: Final = "Daemons left to themselves"
PARTS: Final = {"emulated": ON_BOARD, "alone": ALONE, "slowed": SLOWED, "live": LIVE}


def splits_executed(
    parts: Annotated[str, typer.Option(help="Of emulated, alone, slowed, live: those wanted.")] = ",".join(PARTS),
    quick: Annotated[bool, typer.Option("--quick", help="A network, three layers, and one daemon.")] = False,
) -> None:
    """Split layers as workers run them: predicted and measured, against teams and engines, and what daemons choose."""
    wanted = words_in("--parts", parts, PARTS)
    report, tables = Report("splits_executed", quick=quick), dict[str, list[Row]]()
    for part, title in PARTS.items():
        if part in wanted:
            tables[title] = []
            for row in _rows(part, report, quick=quick):
                tables[title].append(row)
                # Row by row, so that results are kept if a later one fails.
                _save_page(tables, report)
            report.show(title, tables[title])


def _rows(part: str, report: Report, *, quick: bool) -> Iterator[Row]:
    match part:
        case "emulated":
            for case in emulated.QUICK if quick else emulated.FULL:
                report.step(f"{case.model} on {emulated.BOARD}")
                yield from emulated.board_rows(case)
        case "alone":
            for layer in alone.QUICK if quick else alone.FULL:
                report.step(layer.name)
                row = alone.alone_row(layer, seconds=0.3 if quick else 0.4, rounds=3 if quick else 5)
                if row is None:
                    report.step(f"{layer.name} left out: too little memory is free")
                else:
                    yield row
        case "slowed":
            for slowed_case in slowed.QUICK if quick else slowed.FULL:
                report.step(f"{slowed_case.model}, {' and '.join(f'{speed:g}' for speed in slowed_case.speeds)}")
                yield from slowed.slowed_rows(slowed_case)
        case _:
            for served_case in live.QUICK if quick else live.FULL:
                report.step(f"{served_case.model}, {served_case.title}")
                yield live.served_row(served_case)


def _save_page(tables: Mapping[str, Sequence[Row]], report: Report) -> None:
    head, notes = words(__file__, "executed")
    texts = {
        title: "\n".join([notes[title], "", *findings(title, rows), "", table(rows)]) for title, rows in tables.items()
    }
    report.save_page(head, texts)


def findings(title: str, rows: Sequence[Row]) -> list[str]:
    """Findings from the rows of a table, as lines of a list."""
    return {ON_BOARD: _off_by, ALONE: _against_others, SLOWED: _corrected, LIVE: _frames}[title](rows)


def _off_by(rows: Sequence[Row]) -> list[str]:
    errors = [abs(_number(row["error %"])) for row in rows]
    within = sum(error <= emulated.AIM_PERCENT for error in errors)
    lines = [
        f"- Of {len(rows)} shards and joins {within} are within {emulated.AIM_PERCENT:g}% of what was predicted; half "
        f"are off by at most {median(errors):.2g}%, the furthest by {max(errors):.3g}%."
    ]
    slow = [
        f"{row['network']} {row['layer']} on {row['place']} ({row['share']}): {_number(row['error %']):+.1f}%, "
        f"computing took {_number(row['computed here ms']) / _number(row['predicted ms']):.0%} of its time"
        for row in rows
        if abs(_number(row["error %"])) > emulated.AIM_PERCENT
    ]
    return [*lines, *(f"- {line}." for line in slow)]


def _against_others(rows: Sequence[Row]) -> list[str]:
    """Of layers that take long enough, how many splits meet the aim against a team, and against the engine."""
    large = [row for row in rows if _middle(row["one core ms"]) > 1e3 * alone.LARGE_S]
    lines = []
    for other in ("team", "ORT, 2 threads"):
        within = [str(row["layer"]) for row in large if _middle(row[f"split / {other}"]) <= alone.AIM]
        beyond = [
            f"{row['layer']} ({_middle(row[f'split / {other}']):.2f})"
            for row in large
            if _middle(row[f"split / {other}"]) > alone.AIM
        ]
        not_so = f"; not {', '.join(beyond)}" if beyond else ""
        lines.append(
            f"- At most {alone.AIM:g} times {other}: {len(within)} of {len(large)} layers over "
            f"{1e3 * alone.LARGE_S:g} ms{not_so}."
        )
    return lines


def _corrected(rows: Sequence[Row]) -> list[str]:
    """Of plans behind the first on slowed places, how many are within the aim."""
    later = [row for row in rows if _number(row["speed"]) < 1 and row["corrected: off %, median"] not in (None, "")]
    if not later:
        return []
    by_costs, corrected = ([_number(row[f"{by}: off %, median"]) for row in later] for by in ("predicted", "corrected"))
    within = sum(off <= slowed.AIM_PERCENT for off in corrected)
    return [
        f"- On slowed places the median shard is within {slowed.AIM_PERCENT:g}% of what earlier plans let expect in "
        f"{within} of {len(later)} plans: {median(corrected):.2g}% off in the middle, by costs alone "
        f"{median(by_costs):.2g}%."
    ]


def _frames(rows: Sequence[Row]) -> list[str]:
    counts = ", ".join(
        f"{sum(round(_number(row[what])) for row in rows)} {what}"
        for what in ("sent", "answered", "lost", "refused", "out of order", "different")
    )
    return [f"- Frames: {counts}."]


def _number(value: object) -> float:
    return float(str(value))


def _middle(value: object) -> float:
    return value.median if isinstance(value, Spread) else _number(value)
