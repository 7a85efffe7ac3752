"""Throughput and latency over the last minutes, from the daemon's counters: a sample for each reading. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

KEPT: Final = 600
"""The samples that are kept: ten minutes at one a second."""

Sample: TypeAlias = tuple[float, float | None, float | None, float | None, float | None]
"""When (seconds since 1970), frames a second since the sample before, and their latency: mean, median and 99th
percentile in seconds. None: unknown, as no frame was answered or the daemon did not answer.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """`model_statistics` at `time_s`, which may be set meanwhile; `clock_s` is of a monotonic clock.

    `counts`: frames by the upper bound of their latency; inf: above all bounds.
    """

    time_s: float
    clock_s: float
    frames: int
    latency_s: float
    counts: Mapping[float, int]

    @classmethod
    def of(cls, time_s: float, clock_s: float, statistics: Mapping[str, Any]) -> Reading:
        (model_statistics,) = statistics["model_stats"]
        success = model_statistics["inference_stats"]["success"]
        counts = {math.inf if bound is None else bound: count for bound, count in model_statistics["latency_counts"]}
        return cls(time_s, clock_s, success["count"], success["ns"] / 1e9, counts)


class History:
    """The last samples. `number`: how many there have ever been, by which a reader tells which are new to it."""

    def __init__(self) -> None:
        self.number = 0
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._before: Reading | None = None

    def saw(self, look: Reading) -> None:
        before, self._before = self._before, look
        if before is not None and look.clock_s > before.clock_s and look.frames >= before.frames:
            self._add(_between(before, look))

    def missed(self, time_s: float) -> None:
        """Add a gap, as the daemon did not answer."""
        self._before = None
        self._add((round(time_s, 2), None, None, None, None))

    def since(self, number: int) -> list[Sample]:
        """The samples that were added after the first `number`, as far as they are kept."""
        new = min(len(self._samples), max(0, self.number - number))
        return list(self._samples)[len(self._samples) - new :]

    def _add(self, sample: Sample) -> None:
        self._samples.append(sample)
        self.number += 1


def _between(before: Reading, look: Reading) -> Sample:
    frames = look.frames - before.frames
    rate = round(frames / (look.clock_s - before.clock_s), 2)
    if not frames:
        return round(look.time_s, 2), rate, None, None, None
    counts = sorted((bound, count - before.counts.get(bound, 0)) for bound, count in look.counts.items())
    mean_s = (look.latency_s - before.latency_s) / frames
    return round(look.time_s, 2), rate, _rounded(mean_s), percentile(counts, 0.5), percentile(counts, 0.99)


def percentile(counts: Sequence[tuple[float, int]], share: float) -> float | None:
    """The value below which `share` of the values lie, interpolated within its bucket.

    `counts`: (bound, number of values up to it and above the previous bound), ascending; each bound is taken to be 9%
    above the previous one. None if there are no values, or the result is above all bounds.
    """
    wanted = share * sum(count for _, count in counts)
    for bound, count in counts:
        if count and wanted <= count:
            lower = bound / _STEP
            return None if math.isinf(bound) else _rounded(lower + (bound - lower) * wanted / count)
        wanted -= count
    return None


_STEP: Final = 2 ** (1 / 8)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
