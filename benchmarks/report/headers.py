"""Which results are older than the code, or of another machine, by their headers: `python -m benchmarks stale`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.facts import commits_since, host
from benchmarks.report.results import RESULTS, Row, read_csv, show

_UNKNOWN: Final = "unknown"
_ROWS: Final = "rows of "
"""Begins the fact of a header about rows that an earlier run of this commit has taken."""


def header(path: Path) -> dict[str, str]:
    """The facts, by name, that `save_csv` has written above a table."""
    facts = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith("# "):
                break
            key, _, value = line[2:].rstrip("\n").partition(": ")
            facts[key] = value
    return facts


def with_kept(
    path: Path | None, column: str, rows: Sequence[Row], about: Mapping[str, str]
) -> tuple[list[Row], dict[str, str]]:
    """`rows`, taken in the run `about`, and those of a file whose `column` has another value; each row with its commit.

    The header has a line for each commit of the latter: when and by which commands its rows were taken.
    """
    anew: list[Row] = [{**row, "commit": about["commit"]} for row in rows]
    if path is None or not path.exists():
        return anew, dict(about)
    before, measured = header(path), {row[column] for row in rows}
    kept = [{"commit": before["commit"], **row} for row in read_csv(path) if row[column] not in measured]
    runs = {name: by for name, by in before.items() if name.startswith(_ROWS)}
    if (by := f"{before['date']}, {before['repeat']}") != f"{about['date']}, {about['repeat']}":
        name = _ROWS + before["commit"]
        runs[name] = "; ".join(filter(None, (runs.get(name), by)))
    names = dict.fromkeys(_ROWS + row["commit"] for row in kept)
    return [*anew, *kept], {**about, **{name: runs[name] for name in names if name in runs}}


def stale_rows(headers: Mapping[str, Mapping[str, str]], here: Mapping[str, str]) -> list[Row]:
    """Results by the command that repeats them, in the order of `headers` (file name -> header).

    `here`: the result of `host` on this machine. Results of the present code on such a machine are left out.
    """
    by_command: dict[tuple[str, ...], list[str]] = {}
    for name, about in headers.items():
        code, since = about.get("commit", _UNKNOWN), _since(about)
        elsewhere = [key for key, value in here.items() if about.get(key) != value]
        if since or elsewhere:
            machine = f"other: {', '.join(about.get(key, _UNKNOWN) for key in elsewhere)}" if elsewhere else "this one"
            command = about.get("repeat", _UNKNOWN)
            by_command.setdefault((command, about.get("date", _UNKNOWN), code, since, machine), []).append(name)
    return [
        {
            "files": " ".join(files),
            "date": date,
            "commit": code,
            "changes to the code since": since,
            "machine": machine,
            "command": command,
        }
        for (command, date, code, since, machine), files in by_command.items()
    ]


def _since(about: Mapping[str, str]) -> str:
    """Commits since a result, in words; empty if there are none."""
    code, _, changed = about.get("commit", _UNKNOWN).partition(" ")
    number = None if code == _UNKNOWN else commits_since(code)
    return _UNKNOWN if number is None else str(number) if number or changed else ""


def stale() -> None:
    """Results that older code or another machine has made, with the commands that take them again. Runs nothing."""
    headers = {path.name: header(path) for path in sorted(RESULTS.glob("*.csv"))}
    rows = stale_rows(headers, host())
    if rows:
        show("To be taken again, by the headers of benchmarks/results", rows)
    older = sum(len(str(row["files"]).split()) for row in rows)
    print(f"{len(headers)} files; of this code and a machine like this one: {len(headers) - older}")
