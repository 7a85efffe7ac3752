"""A row of the table of faults."""

from __future__ import annotations

from benchmarks.report.results import Row


def fault_row(
    fault: str,
    client: str,
    status: str,
    bad: int,
    *,
    gap_s: float | None = None,
    without_s: float | None = None,
    kept: bool = True,
) -> Row:
    """`bad`: answers that were lost or wrong."""
    return {
        "fault": fault,
        "client": client,
        "status": status,
        "gap s": gap_s,
        "gap without s": without_s,
        "time over ordinary": None,
        "lost or wrong": bad,
        "kept": "yes" if kept and not bad else "no",
    }
