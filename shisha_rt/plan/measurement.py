"""Measured times of a plan, and how far they can be trusted.

Shisha (2022) compares throughputs as if they were exact; on a real machine the faster of two measurements of one plan
would then count as progress. So a measurement has a band: two measurements of one plan differ by at most the band in 95
of 100 cases, and a plan is better only if it is better by more than that. A wide band misses small gains; a narrow one
accepts worse plans, which the paper's rule never takes back. With a band of 0 the comparison is the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.plan.rate import Objective, Rate

OVERLAP_TOLERANCE: Final = 0.25
"""Tolerated difference of `overlap`, as queues are sometimes empty even in a saturated plan."""


THROTTLING_TOLERANCE: Final = 0.25
"""The largest difference of `throttled` between two measurements that are compared."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """`service_s`: seconds of each stage, in the plan's order; inf if the place cannot run its stage.

    For a stage on several teams, `service_s` is what each would take if they were alike (`rate.stage_seconds`). `rate`:
    the plan's rate; None for a plain chain, where the slowest stage determines it. `band`: relative to the bottleneck;
    two measurements of one plan agree within it. `frames`: how many each stage ran, 0 if the plan never ran. `took_s`:
    the (virtual) time of measuring, 0 for a plan that could not run.

    `team_s` (stages, teams): seconds of each stage on each of its teams, inf if a team ran no frames; empty if each
    stage's teams are alike.

    `alone_s`: seconds of frames with no other in flight, None if there were none. `overlap`: how busy the plan was, as
    a share of saturation; 1 for all plans without copies. Copies that never work at the same time look faster than they
    are. `failed_stage`: for a plan that never ran, the stage that its place could not build; None: it is not known that
    any layer cannot run. `throttled`: share of the CPU quota's periods in which the quota was used up; None without a
    quota, or after too few periods. `load`: frames that came, over those that the plan could have served. `energy_j`:
    joules of a frame (see `plan.energy`); inf if not known, or if latency misses the target.
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
        """Seconds of a frame with no other in flight: measured, or else derived from the stages."""
        if self.alone_s is not None:
            return self.alone_s
        return math.fsum(self.service_s) if self.rate is None else self.rate.latency_s

    @property
    def can_run(self) -> bool:
        return math.isfinite(self.bottleneck_s)

    def value(self, objective: Objective) -> float:
        """The value to minimise: seconds, or joules."""
        if objective == "energy":
            return self.energy_j
        return self.bottleneck_s if objective == "throughput" else self.latency_s

    def scaled(self, ratio: float) -> Measurement:
        """The measurement on a machine where all takes `ratio` times as long."""
        return replace(
            self,
            service_s=tuple(ratio * seconds for seconds in self.service_s),
            rate=None if self.rate is None else self.rate.scaled(ratio),
            alone_s=None if self.alone_s is None else ratio * self.alone_s,
            team_s=tuple(tuple(ratio * seconds for seconds in ran_s) for ran_s in self.team_s),
            energy_j=ratio * self.energy_j,
        )

    def is_throttled_like(self, other: Measurement) -> bool:
        """Whether a quota throttled both about equally often, so that a difference may be due to the plans."""
        if self.throttled is None or other.throttled is None:
            return True
        return abs(self.throttled - other.throttled) <= THROTTLING_TOLERANCE

    def agrees_with(self, other: Measurement, objective: Objective = "throughput") -> bool:
        """Whether both could be of one plan: they differ by no more than their bands explain.

        A band is for the difference of two measurements with equal errors. If errors differ, their squares add up, so
        the bands' mean square counts. Latency and energy use the band of the bottleneck, too: as sums over stages, they
        vary less.
        """
        own, others = self.value(objective), other.value(objective)
        if not (self.can_run and other.can_run and own < math.inf and others < math.inf):
            return self.can_run == other.can_run and own == others
        return abs(own - others) <= math.hypot(self.band * own, other.band * others) / math.sqrt(2)

    def is_better_than(self, other: Measurement, objective: Objective = "throughput") -> bool:
        """Whether it is better beyond the noise of both (Algorithm 2, line 9; the noise is ours).

        Copies that share a cache or a memory slow each other down while they overlap: so a throughput measured with
        less overlap than the other's does not count as better. Nor does a measurement that was throttled more or less
        often than the other. If the objective is energy and both miss the latency target, the lower latency is better.
        """
        if self.can_run != other.can_run:
            return self.can_run
        if objective == "energy" and self.energy_j == other.energy_j == math.inf:
            objective = "latency"
        if not self.is_throttled_like(other):
            return False
        if objective == "throughput" and self.overlap < other.overlap - OVERLAP_TOLERANCE:
            return False
        return self.value(objective) < other.value(objective) and not self.agrees_with(other, objective)
