"""The page of a race: `results/race.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.results import RESULTS, Row, written

_HEAD: Final = """# The daemon, plain engines and other servers on the same cores

`{repeat}` wrote this page: {date}, commit {commit}, {cpu}, {cores} cores, load average at the start {load}.

Wall time per frame at saturation, sides in turns in each round; medians with quartiles. `best engine / it` and
`best server / it`: above 1 the side is faster, of the rounds' own ratios. `others %`: what all other sides took of the
cores meanwhile. A daemon's or a server's frames come from a client in a process of its own, with as many frames in
flight; a plain engine's lie in its own memory. What a side is stands at the top of `benchmarks/rigs/contest.py`.
"""


def page(
    rows: Mapping[str, Sequence[Row]],
    cpu_rows: Sequence[Row],
    means: Sequence[Row],
    held: Sequence[Row],
    left_out: Mapping[str, str],
    about: Mapping[str, str],
) -> str:
    """The page as Markdown. `rows`: each network's sides. `left_out`: reasons, by name of a side."""
    sections = [
        ("Aims", table(held)),
        *([("Geometric means", table(means))] if means else []),
        *((model, table(its)) for model, its in rows.items()),
        ("CPU time per frame", table(cpu_rows)),
        *([("Left out", "\n".join(f"- {name}: {why}" for name, why in left_out.items()))] if left_out else []),
    ]
    head = _HEAD.format(load=about["load average at the start"], **about)
    return "\n".join([head, *(f"## {title}\n\n{body}\n" for title, body in sections)])


def save_page(
    name: str,
    rows: Mapping[str, Sequence[Row]],
    cpu_rows: Sequence[Row],
    means: Sequence[Row],
    held: Sequence[Row],
    left_out: Mapping[str, str],
    about: Mapping[str, str],
) -> Path:
    path = RESULTS / f"{name}.md"
    path.write_text(page(rows, cpu_rows, means, held, left_out, about), encoding="utf-8")
    return path


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; all have the same keys."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(map(_cell, row.values())) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value: object) -> str:
    return written(value).replace("|", "\\|")
