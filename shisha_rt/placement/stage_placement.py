"""Where the operators of a stage run, as planned: what a placer's process answers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

from shisha_rt.outcome import Outcome


@dataclass(frozen=True, slots=True)
class StagePlacement:
    """`devices` (operators,): names of their devices, in the graph's order.

    `segments_s`: seconds of each segment (`placement.segment_times`); they add up to `cost_s`. `outcome` describes this
    placement: it is `feasible` also if a better one was rejected because of the margin. `breaks`: indices of the
    operators at which another run of layers, and so another segment, begins.
    """

    devices: tuple[str, ...]
    cost_s: float
    segments_s: tuple[float, ...]
    lower_bound_s: float | None
    outcome: Outcome
    breaks: tuple[int, ...] = ()

    @property
    def segments(self) -> list[tuple[str, int]]:
        """(segments,): the device of each segment, and its number of operators."""
        starts = [0, *self.breaks, len(self.devices)]
        runs = (self.devices[start:end] for start, end in pairwise(starts))
        return [(device, len(list(same))) for run in runs for device, same in groupby(run)]
