"""A daemon with two plans and a load, in virtual time: frames, looks, and changes of plan that take a moment.

A plan is so many servers alike, with one queue: one for a team, several for copies. A new plan takes the frames that
come after it is built; those before it end where they are, as in the daemon. What both do at once slows neither.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.core.tuning.load import Load, PlanTimes
from shisha_rt.plan.rate import Objective

LOOK_S = 0.25
BUILD_S = 0.3
MOST_IN_FLIGHT = 256
HANDOVER_S = 0.0003


@dataclass(frozen=True)
class Servers:
    """`count` of them take `service_s` for a frame each."""

    count: int
    service_s: float

    @property
    def times(self) -> PlanTimes:
        return PlanTimes(self.service_s / self.count, self.service_s)


def of_places(frame_s: float, places: int, gain: float) -> dict[Objective, Servers]:
    """A team of all places, which takes `frame_s`, and a copy on each, which pass `gain` times as many frames."""
    return {"latency": Servers(1, frame_s), "throughput": Servers(places, places * frame_s / gain)}


Arrivals = Iterator[float]
"""Ascending times, in seconds."""


def poisson(rate_at: Callable[[float], float], seed: int = 1) -> Arrivals:
    """`rate_at`: frames a second by the time; changes within a gap between two frames are seen after it."""
    rng, now_s = random.Random(seed), 0.0
    while True:
        rate = rate_at(now_s)
        now_s += rng.expovariate(rate) if rate > 0 else LOOK_S
        if rate > 0:
            yield now_s


def camera(rate: float, jitter: float = 0.1, seed: int = 1) -> Arrivals:
    rng = random.Random(seed)
    return (k / rate + rng.uniform(0, jitter / rate) for k in itertools.count(1))


def bursts(frames: int, every_s: float, seed: int = 1) -> Arrivals:
    rng = random.Random(seed)
    for k in itertools.count(1):
        at_s = k * every_s + rng.uniform(0, LOOK_S)
        yield from (at_s + 0.0002 * frame for frame in range(frames))


class LoadWorld:
    """`fixed`: the plan that serves all the time; None: the one that the load wants. `latency_s`: of each frame that
    was answered, with when it came. `slower`: so many times as slow are both as they were when they were measured.
    """

    def __init__(
        self,
        plans: Mapping[Objective, Servers],
        fixed: Objective | None = None,
        *,
        serves: Objective = "latency",
        slower: float = 1.0,
    ) -> None:
        self.plans = plans
        self.slower = slower
        self.load = Load()
        self.serves: Objective = fixed or serves
        self.fixed = fixed is not None
        self.changes: list[tuple[float, Objective]] = []
        self.latency_s: list[tuple[float, float]] = []
        self.refused = 0
        self.now_s = 0.0
        self._rng = random.Random(7)
        self._free_s = {objective: [0.0] * servers.count for objective, servers in plans.items()}
        self._building: tuple[float, Objective] | None = None
        self._answers: list[tuple[float, float]] = []
        self._arrived = self._met = 0
        self._sum_s = 0.0

    def run(self, until_s: float, arrivals: Arrivals | None = None, clients: int = 0, think_s: float = 0.0) -> None:
        """`clients` each send a frame, wait for its answer, and think; `arrivals` come besides."""
        closed = [self.now_s + 0.001 * k for k in range(clients)]
        came = iter(()) if arrivals is None else arrivals
        opened, look_s = next(came, math.inf), self.now_s + LOOK_S
        while self.now_s < until_s:
            answer_s = self._answers[0][0] if self._answers else math.inf
            client_s = closed[0] if closed else math.inf
            build_s = self._building[0] if self._building else math.inf
            self.now_s = min(answer_s, client_s, opened, build_s, look_s)
            if self.now_s == answer_s:
                end_s, came_s = heapq.heappop(self._answers)
                self._sum_s += end_s - came_s
                self.latency_s.append((came_s, end_s - came_s))
                if len(closed) < clients:
                    heapq.heappush(closed, end_s + think_s)
            elif self.now_s == client_s:
                heapq.heappop(closed)
                self._arrive()
            elif self.now_s == opened:
                opened = next(came, math.inf)
                self._arrive()
            elif self.now_s == build_s and self._building is not None:
                self.serves, self._building = self._building[1], None
                self.changes.append((self.now_s, self.serves))
                self.load.forget()
            else:
                look_s += LOOK_S
                self._look()

    def _arrive(self) -> None:
        self._arrived += 1
        if len(self._answers) >= MOST_IN_FLIGHT:
            self.refused += 1
            return
        self._met += bool(self._answers)
        free_s, service_s = self._free_s[self.serves], self.slower * self.plans[self.serves].service_s
        end_s = max(self.now_s, free_s[0]) + service_s * self._rng.uniform(0.97, 1.03)
        heapq.heapreplace(free_s, end_s)
        heapq.heappush(self._answers, (end_s + HANDOVER_S, self.now_s))

    def _look(self) -> None:
        traffic = FramesCounted(self._arrived, self._met, len(self.latency_s), self._sum_s, len(self._answers))
        latency, throughput = (self.plans[objective].times for objective in ("latency", "throughput"))
        wanted = self.load.look(traffic, self.now_s, self.serves, latency, throughput)
        if not self.fixed and wanted != self.serves and self._building is None:
            self._building = self.now_s + BUILD_S, wanted

    def mean_s(self, since_s: float = 0.0) -> float:
        times_s = [took_s for came_s, took_s in self.latency_s if came_s >= since_s]
        return math.fsum(times_s) / len(times_s)
