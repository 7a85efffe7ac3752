"""What a plan did when it ran, and how far that can be trusted.

Shisha (2022) compares throughputs as if they were exact; on a real machine the faster of two measurements of one
plan would pass for progress. So a measurement carries a band: two measurements of one plan lie within it at least
95 times in 100, and better means better beyond it. A wide band costs true but small gains; a narrow one costs moves
to worse plans, which the paper's rule never takes back. With a band of 0 the comparison is the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.plan.rate import Objective, Rate

OVERLAP_TOLERANCE: Final = 0.25
"""Queues run dry now and then, also in a plan that is saturated."""


THROTTLING_TOLERANCE: Final = 0.25
"""By how much the throttled parts of two measurements' periods may differ, for one to be held against the other."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The service time of each stage, in seconds, in the plan's order; inf where the place cannot run its stage.

    Of a stage on several teams it is what they would take if they were alike (`rate.stage_seconds`), and `rate` what
    follows for the plan; None: it is a plain chain, whose slowest stage says all. `band` is relative to the bottleneck:
    two measurements of one plan agree within it. `frames` is how many each stage ran, 0 if the plan never did, and
    `took_s` the (virtual) time that measuring took: 0 for a plan that could not run.

    `team_s` (stages, teams): what each stage took on each of its teams, inf where a team ran none; empty: those of a
    stage are alike.

    `alone_s`: how long frames took that met no other, None where none were seen; `overlap`: how busy the plan was, as a
    share of what it can be (1: saturated, and all plans without copies). Copies that never worked at the same time look
    faster than they are. `failed_stage`: of a plan that was never run, the stage that its place could not build; where
    that is None, too, it says of no layer that it cannot run. `throttled`: the part of the CPU quota's periods in which
    it was used up meanwhile; None without a quota, or where that took too few periods to say. `load`: frames that came
    meanwhile over those that the plan could have passed. `energy_j`: joules of a frame (see `plan.energy`); inf where
    that is not known, or frames by themselves are late for the target.
    """

    service_s: tuple[float, ...]
    band: float
    frames: int
    took_s: float
    rate: Rate | None = None
    alone_s: float | None = None
    overlap: float = 1.0
    team_s: tuple[tuple[float, ...], ...] = ()
    failed_stage: int | None = None
    throttled: float | None = None
    load: float = 1.0
    energy_j: float = math.inf

    @property
    def bottleneck_s(self) -> float:
        """Seconds a frame at saturation."""
        return max(self.service_s) if self.rate is None else self.rate.bottleneck_s

    @property
    def throughput_fps(self) -> float:
        """Shisha, section 6.2: one over the slowest stage's time; 0 for a plan that cannot run, inf for a free one."""
        return 1 / self.bottleneck_s if self.bottleneck_s else math.inf

    @property
    def slowest_stage(self) -> int:
        """Index of the slowest stage in the plan; ties: the leftmost."""
        return self.service_s.index(self.bottleneck_s) if self.rate is None else self.rate.slowest_stage

    @property
    def latency_s(self) -> float:
        """Seconds of a frame that meets no other: as measured, or else as it follows from the stages."""
        if self.alone_s is not None:
            return self.alone_s
        return math.fsum(self.service_s) if self.rate is None else self.rate.latency_s

    @property
    def can_run(self) -> bool:
        return math.isfinite(self.bottleneck_s)

    def value(self, objective: Objective) -> float:
        """What is to be small: seconds, or joules."""
        if objective == "energy":
            return self.energy_j
        return self.bottleneck_s if objective == "throughput" else self.latency_s

    def scaled(self, ratio: float) -> Measurement:
        """What this would have been on a machine where all takes `ratio` times as long."""
        return replace(
            self,
            service_s=tuple(ratio * seconds for seconds in self.service_s),
            rate=None if self.rate is None else self.rate.scaled(ratio),
            alone_s=None if self.alone_s is None else ratio * self.alone_s,
            team_s=tuple(tuple(ratio * seconds for seconds in ran_s) for ran_s in self.team_s),
            energy_j=ratio * self.energy_j,
        )

    def is_throttled_like(self, other: Measurement) -> bool:
        """Whether a difference between both may be due to the plans: a quota held up one as often as the other."""
        if self.throttled is None or other.throttled is None:
            return True
        return abs(self.throttled - other.throttled) <= THROTTLING_TOLERANCE

    def agrees_with(self, other: Measurement, objective: Objective = "throughput") -> bool:
        """Whether both could be of one plan: what they found differs by no more than their bands explain.

        A band is made for the difference of two measurements with equal errors; for unequal ones the errors'
        squares add up, so the bands' mean square counts. The band of the bottleneck stands for those of latency and
        energy, which are sums over stages and so vary less.
        """
        own, others = self.value(objective), other.value(objective)
        if not (self.can_run and other.can_run and own < math.inf and others < math.inf):
            return self.can_run == other.can_run and own == others
        return abs(own - others) <= math.hypot(self.band * own, other.band * others) / math.sqrt(2)

    def is_better_than(self, other: Measurement, objective: Objective = "throughput") -> bool:
        """Whether it is faster beyond the noise of both (Algorithm 2, line 9; the noise is ours).

        Where copies share a core's cache or a memory, they slow each other down as far as they overlap: a throughput
        of copies that follows from less overlap than the other's proves nothing. Nor does a plan that was throttled
        more or less often than the other. Of two that are late for the target, so that neither is a plan for energy,
        the quicker one is better.
        """
        if objective == "energy" and self.energy_j == other.energy_j == math.inf:
            objective = "latency"
        if not self.is_throttled_like(other):
            return False
        if objective == "throughput" and self.overlap < other.overlap - OVERLAP_TOLERANCE:
            return False
        return self.value(objective) < other.value(objective) and not self.agrees_with(other, objective)
