"""How fast a plan is, from each stage's seconds on each team: seconds a frame, and the latency of a frame by itself.

A pool of alike teams serves a frame in the sum of its stages' times over the number of teams; a stage on unlike teams
in 1 / sum(1/t) (a pool has one queue, so no team idles while a part waits). The slowest pool limits the throughput, and
its slowest stage is the bottleneck of Shisha's Algorithm 2 and of the metrics.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from shisha_rt.plan.plan import Plan, Team

Objective: TypeAlias = Literal["throughput", "latency", "energy"]
EVERY_OBJECTIVE: Final[tuple[Objective, ...]] = get_args(Objective)
"""What a plan is chosen for: the most frames a second, the least time of a frame by itself, or its least energy."""
OBJECTIVES: Final[tuple[Objective, ...]] = ("throughput", "latency")
"""Objectives that every machine has plans for; the load asks for one or the other."""
AnyObjective: TypeAlias = Literal["auto", "throughput", "latency", "energy"]
ANY_OBJECTIVES: Final[tuple[AnyObjective, ...]] = get_args(AnyObjective)
"""What a daemon may be asked for; `auto`: the one that suits the load."""
TeamSeconds: TypeAlias = Sequence[Sequence[float]]
"""(stages, teams): seconds of each stage on each of its teams; inf where it cannot run."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`period_s` (stages,): seconds a frame of each stage's pool. `link_s`: of the busiest link to another host, which
    the host's places share; `link` names it and its direction ("to far0", "from far0").

    `slowest_stage`: in the slowest pool the stage that takes longest; ties: the leftmost. `latency_s`: of a frame with
    no other in flight. `energy_j`: joules of a frame (see `plan.energy`); inf if not known.
    """

    period_s: tuple[float, ...]
    slowest_stage: int
    latency_s: float
    link_s: float = 0.0
    link: str = ""
    energy_j: float = math.inf

    @property
    def bottleneck_s(self) -> float:
        """Seconds a frame at saturation."""
        return max(*self.period_s, self.link_s)

    @property
    def is_link_bound(self) -> bool:
        """Whether a shared link is slower than all stages."""
        return self.link_s > max(self.period_s)

    def value(self, objective: Objective) -> float:
        """The value to minimise: seconds, or joules."""
        if objective == "energy":
            return self.energy_j
        return self.bottleneck_s if objective == "throughput" else self.latency_s

    def scaled(self, ratio: float) -> Rate:
        """The rate of the same plan if all takes `ratio` times as long."""
        period_s = tuple(ratio * seconds for seconds in self.period_s)
        return replace(
            self,
            period_s=period_s,
            latency_s=ratio * self.latency_s,
            link_s=ratio * self.link_s,
            energy_j=ratio * self.energy_j,
        )


def rate_of(plan: Plan, service_s: TeamSeconds, *, alone_s: TeamSeconds | None = None) -> Rate:
    """Rate of a plan with stages of `service_s`. `alone_s`: seconds of a lone frame, if more than its team is busy."""
    stage_s = [stage_seconds(times) for times in service_s]
    period_s = [0.0] * len(plan.stages)
    for pool in plan.pools:
        pool_s = math.fsum(stage_s[index] for index in pool.stages) / len(pool.teams)
        for index in pool.stages:
            period_s[index] = pool_s
    slowest_s = max(period_s)
    slowest = max((i for i, s in enumerate(period_s) if s == slowest_s), key=lambda i: (stage_s[i], -i))
    return Rate(tuple(period_s), slowest, latency_s(plan, service_s if alone_s is None else alone_s))


def stage_seconds(times_s: Sequence[float]) -> float:
    """Seconds that each team (teams,) would take if all were alike and together served as many frames a second."""
    if min(times_s) in (max(times_s), 0):  # exact for alike teams: not rounded by way of their rates
        return min(times_s)
    frames_per_s = math.fsum(1 / time_s for time_s in times_s)
    return len(times_s) / frames_per_s if frames_per_s else math.inf


def team_shares(times_s: Sequence[float]) -> tuple[float, ...]:
    """(teams,): the share of a stage's frames that each team serves at saturation."""
    free = min(times_s) == 0
    rates = [float(time_s == 0) if free else 1 / time_s for time_s in times_s]
    whole = math.fsum(rates)
    return tuple(rate / whole if whole else 0.0 for rate in rates)


def latency_s(plan: Plan, service_s: TeamSeconds) -> float:
    """Latency of a frame by itself, dealt as the daemon deals: each ready part to the quickest idle team of its pool.

    Hand-overs between stages are not included: only measured frames can show them.
    """
    if plan.is_chain:
        return math.fsum(min(times) for times in service_s)
    if not all(math.isfinite(min(times)) for times in service_s):
        return math.inf
    pools = plan.pools
    pool_of = {index: number for number, pool in enumerate(pools) for index in pool.stages}
    idle = [set(pool.teams) for pool in pools]
    ready: list[list[int]] = [[] for _ in pools]
    followers = plan.followers
    waits = [len(stage.after) for stage in plan.stages]
    for index, stage in enumerate(plan.stages):
        if not stage.after:
            ready[pool_of[index]].append(index)
    running: list[tuple[float, int, Team]] = []
    now_s, changed = 0.0, set(range(len(pools)))
    while True:
        for number in changed:  # in other pools no part has become ready, and no team idle
            for seconds, index, team in _dealt(plan, service_s, ready[number], idle[number]):
                heapq.heappush(running, (now_s + seconds, index, team))
        if not running:
            return now_s
        now_s, done, team = heapq.heappop(running)
        idle[pool_of[done]].add(team)
        changed = {pool_of[done]}
        for index in followers[done]:
            waits[index] -= 1
            if not waits[index]:
                heapq.heappush(ready[pool_of[index]], index)
                changed.add(pool_of[index])


def _dealt(plan: Plan, service_s: TeamSeconds, ready: list[int], idle: set[Team]) -> list[tuple[float, int, Team]]:
    """Deal a pool's parts (stages: a heap) to its idle teams; return seconds, stage and team of each that begins.

    A part that none of the idle teams can run stays in `ready`.
    """
    begun, unable = [], []
    while ready and idle:
        index = heapq.heappop(ready)
        teams = zip(service_s[index], itertools.count(), plan.stages[index].teams)
        seconds, _, team = min(candidate for candidate in teams if candidate[2] in idle)
        if math.isfinite(seconds):
            idle.remove(team)
            begun.append((seconds, index, team))
        else:
            unable.append(index)
    for index in unable:
        heapq.heappush(ready, index)
    return begun
