"""Structured random fuzzing: `python -m benchmarks fuzz`.

Every reader of untrusted input gets a number of cases, by one seed. Counted are cases that are accepted, refused in one
line, or show a defect (a traceback, a crash, a hang, more memory than a reader needs). A defect's input is kept as a
file, in the folder of `--keep`, to be repeated. A single case: `--target onnx --seed 0 --first 526 --count 1`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Final

import typer

from benchmarks.lists import words_in
from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.robust.targets import TARGETS

_LATE_S: Final = 30.0
"""A case that exceeds its limit by this hangs where Python cannot interrupt it."""


def fuzz(
    target: Annotated[
        str, typer.Option(help=f"Of {', '.join(TARGETS)}, separated by commas; all of them by default.")
    ] = "",
    count: Annotated[int, typer.Option(min=1, help="Cases of a quick target; slow ones have their share.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the random generators.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="The number of the first case.")] = 0,
    keep: Annotated[Path | None, typer.Option(help="A folder for the input of each defect.")] = None,
) -> None:
    """Fuzz everything that reads what strangers wrote; exit status 1 if there is a defect.

    The file of results keeps what it has of targets that are not fuzzed now.
    """
    names = words_in("--target", target, TARGETS) if target else list(TARGETS)
    report = Report("fuzz")
    rows: dict[str, Row] = {}
    saving = Lock()

    def run(name: str) -> None:
        share = max(1, round(count * (1.0 if names == [target] else TARGETS[name].share)))
        begun_s = time.monotonic()
        counts, defects = fuzzed(name, seed, first, share)
        seconds = time.monotonic() - begun_s
        print(f"{name}: {share} cases, {counts['defects']} defects", file=sys.stderr, flush=True)
        for defect in {
            each["where"]: each for each in reversed(defects)
        }.values():  # the first at each place of the code
            print(f"{name} {seed} {defect['number']}: {defect['where']}: {defect['what']}", file=sys.stderr, flush=True)
            if keep is not None:
                folder = keep / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{seed}-{defect['number']}").write_bytes(TARGETS[name].case(name, seed, defect["number"]))
        with saving:
            rows[name] = {
                "target": name,
                "seed": seed,
                "cases": share,
                "taken": counts["taken"],
                "refused": counts["refused"],
                "defects": counts["defects"],
                "places": len({defect["where"] for defect in defects}),
                "cases a second": share / seconds,
            }
            if not first:
                report.save_by("target", [*rows.values()])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        deque(pool.map(run, names), maxlen=0)
    report.show("readers under input that nobody should send", list(rows.values()), ["places: of defects, in the code"])
    if any(row["defects"] for row in rows.values()):
        raise typer.Exit(1)


def fuzzed(name: str, seed: int, first: int, count: int) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Counts of cases that were accepted, refused, or are defects; and each defect, with its location and kind."""
    counts, last = Counter[str](), first + count
    defects: list[dict[str, Any]] = []
    while first < last:
        with tempfile.TemporaryFile() as under_way:
            before = len(defects)
            status = None
            for line in _run(name, seed, first, last - first, under_way.fileno()):
                if isinstance(line, str):
                    status = line
                elif "number" in line:
                    defects.append(line)
                else:
                    counts.update(line)
            if status is None:
                return counts, defects
            number = int.from_bytes(os.pread(under_way.fileno(), 8, 0), "little")
        counts["defects"] += len(defects) - before + 1
        defects.append({"number": number, "where": "the process", "what": status})
        counts["taken or refused, unknown"] += number - first
        first = number + 1
    return counts, defects


def _run(name: str, seed: int, first: int, count: int, fd: int) -> Iterator[dict[str, Any] | str]:
    """Yield the lines of the process, and at last how it ended, unless it ended normally."""
    command = [sys.executable, "-m", "benchmarks.robust.fuzz_process", name, *map(str, (seed, first, count, fd))]
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said, pass_fds=[fd]) as process:
        number, since_s, hung = -1, time.monotonic(), False
        while process.poll() is None:
            time.sleep(0.05)
            now = int.from_bytes(os.pread(fd, 8, 0) or b"\0", "little")
            if now != number:
                number, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > TARGETS[name].limit_s + _LATE_S:
                hung = True
                process.kill()
                process.wait()
        said.seek(0)
        for line in said:
            yield json.loads(line)
        if process.returncode:
            yield "it hangs" if hung else f"it ended with status {process.returncode}"
