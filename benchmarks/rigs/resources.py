"""Memory and descriptors of a daemon and its children over time, observed from outside."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.report.results import Row

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one time. `anon_bytes`: private memory; `rss_bytes`: with shared pages."""

    at_s: float
    what: str
    anon_bytes: int
    rss_bytes: int
    descriptors: int


def whole_pss_bytes(pid: int) -> int:
    """Memory of a process and all its descendants, with shared pages counted once."""
    pss_bytes = 0
    for process in (whole := psutil.Process(pid), *whole.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a job that has just ended
            pss_bytes += process.memory_full_info().pss
    return pss_bytes


def sample_of(pid: int, what: str) -> Sample:
    """Sample one process. Raises as `/proc` and psutil do if it has ended."""
    return Sample(time.time(), what, *_read(pid))


def _read(pid: int) -> tuple[int, int, int]:
    """Anonymous memory, resident memory and descriptors. Raises ProcessLookupError if the process is just ending."""
    status = Path(f"/proc/{pid}/status").read_text()
    kibibytes = {
        key: int(rest.split()[0])
        for key, _, rest in (line.partition(":") for line in status.splitlines())
        if key in ("RssAnon", "VmRSS")
    }
    if not kibibytes:  # the process has no memory any more
        raise ProcessLookupError(pid)
    return kibibytes["RssAnon"] * 1024, kibibytes["VmRSS"] * 1024, psutil.Process(pid).num_fds()


def summary(samples: list[Sample]) -> list[Row]:
    """Summary of samples: first and last are medians of the first and last fifth; slopes are by least squares."""
    rows: list[Row] = []
    for what in dict.fromkeys(one.what for one in samples):
        own = [one for one in samples if one.what == what]
        part = max(1, len(own) // 5)
        first, last = own[:part], own[-part:]
        minutes = [(one.at_s - own[0].at_s) / 60 for one in own]
        rows.append(
            {
                "what": what,
                "samples": len(own),
                "minutes": minutes[-1],
                "anon MiB, first": statistics.median(one.anon_bytes for one in first) / _MIB,
                "anon MiB, last": statistics.median(one.anon_bytes for one in last) / _MIB,
                "anon MiB/min": _slope(minutes, [one.anon_bytes / _MIB for one in own]),
                "RSS MiB, first": statistics.median(one.rss_bytes for one in first) / _MIB,
                "RSS MiB, last": statistics.median(one.rss_bytes for one in last) / _MIB,
                "descriptors, first": statistics.median(one.descriptors for one in first),
                "descriptors, last": statistics.median(one.descriptors for one in last),
                "descriptors, most": max(one.descriptors for one in own),
            }
        )
    return rows


def _slope(at: list[float], values: list[float]) -> float | None:
    return statistics.linear_regression(at, values).slope if len(set(at)) > 1 else None
