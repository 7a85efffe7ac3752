"""The place that a worker emulates: its speed, its memory, and when each of its frames is due.

On a place that is not slowed, frames are due when they are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from shisha_rt.machine.machine import target_s
from stages.emulate.budget import Budget
from stages.emulate.pace import Pace

HEADROOM: Final = 1.2
"""Least ratio of a target to the real computation: the wait between them absorbs disturbances."""
_REAL_TIME_ERROR: Final = 0.05  # relative error of the warm-up's measurement of the real computation


class Demand(msgspec.Struct, frozen=True):
    """What one run needs of its place. `modelled_cpu_s`: stored CPU seconds to pace by; 0: the run's own.

    `paced`: its time is emulated on any place, since the devices that it runs on are.
    """

    frame_bytes: int
    modelled_cpu_s: float = 0.0
    paced: bool = False


class Started(msgspec.Struct, frozen=True):
    """An emulated frame under way. `start_s`: its start in the emulation, which may be earlier than the real one.

    `slowed`: it is due at its target; otherwise it takes its real time, but waits for its memory until `free_s`.
    """

    demand: Demand
    speed: float
    slowed: bool
    start_s: float
    free_s: float


class EmulatedPlace:
    """`speed` is read anew for each frame; `bandwidth_bytes_per_s` is the memory's, None if that has no limit.

    `budget_fd`: the memory's record (see `process.budgets`), as inherited; None: nobody else uses it. `at_once`: frames
    are due as soon as they are computed, as a wait would hold up a plan without this place.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        speed: Callable[[], float],
        *,
        time_scale: float = 1.0,
        bandwidth_bytes_per_s: float | None = None,
        budget_fd: int | None = None,
    ) -> None:
        self._name = name
        self.threads = threads
        self._speed = speed
        self._time_scale = time_scale
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._budget: Budget | None = None
        if bandwidth_bytes_per_s is not None and budget_fd is not None:
            self._budget = Budget(budget_fd, bandwidth_bytes_per_s / time_scale)
        self._pace = Pace()
        self.at_once = False

    def start(self, demand: Demand, ready_s: float, now_s: float) -> Started | None:
        """Start a frame whose input was ready at `ready_s`, before it is computed. None: nothing is emulated."""
        speed = self._speed()
        slowed = speed != 1 or self.needs_check(demand)
        if not slowed and self._budget is None:
            return None
        start_s = self._pace.start(ready_s, now_s)
        free_s = 0.0
        if self._budget is not None:
            free_s = self._budget.reserve(demand.frame_bytes, start_s)
        return Started(demand, speed, slowed, start_s, free_s) if slowed or free_s > 0 else None

    def finish(self, started: Started | None, cpu_s: float, now_s: float) -> float:
        """Note that a part has been computed in `cpu_s` of CPU time; return when the part is due."""
        if started is None:
            self._pace.dropped_s = 0.0  # there was nothing to make up for
            return self._pace.change(now_s)
        if self.at_once:
            return self._pace.change(now_s)
        if started.slowed:
            service_s = self.target_s(started.demand, cpu_s, started.speed)
        else:
            service_s = max(0.0, now_s - started.start_s)
        return self._pace.finish(started.start_s, service_s, started.free_s)

    def repace(self, started: Started, cpu_s: float, due_s: float, now_s: float) -> tuple[Started, float]:
        """Adapt a frame that waits until `due_s` to the changed place; return the new frame, and when it is due now.

        The rest of its wait is scaled as its whole target is.
        """
        if self.at_once:
            return started, self._pace.change(min(due_s, now_s))
        changed = replace(started, speed=self._speed())
        if started.slowed and due_s > now_s:
            before_s = self.target_s(started.demand, cpu_s, started.speed)
            after_s = self.target_s(changed.demand, cpu_s, changed.speed)
            due_s = self._pace.change(max(now_s + (due_s - now_s) * after_s / before_s, started.free_s))
        return changed, due_s

    def target_s(self, demand: Demand, cpu_s: float, speed: float) -> float:
        """Seconds that a frame takes on this place, stretched by `time_scale`."""
        return self._time_scale * target_s(
            demand.modelled_cpu_s or cpu_s,
            demand.frame_bytes,
            threads=self.threads,
            speed=speed,
            bandwidth_bytes_per_s=self._bandwidth_bytes_per_s,
        )

    def take_dropped_s(self) -> float:
        dropped_s, self._pace.dropped_s = self._pace.dropped_s, 0.0
        return dropped_s

    def needs_check(self, demand: Demand) -> bool:
        """Whether a target may be too short for this host.

        Not if only the run's own time is divided by a speed below 1: the loader has checked that the speeds on a core
        leave enough time. A stored cost, a described device or a `time_scale` may promise more than this host can do.
        """
        return demand.modelled_cpu_s > 0 or demand.paced or self._time_scale != 1

    def why_too_short(self, demand: Demand, real_s: float, cpu_s: float) -> str | None:
        """Why this host cannot keep the target of a frame whose real computation takes `real_s`; None if it can."""
        speed = self._speed()
        target = self.target_s(demand, cpu_s, speed)
        if target * (1 + _REAL_TIME_ERROR) >= HEADROOM * real_s:
            return None
        needed = self._time_scale * HEADROOM * real_s / target
        return (
            f"time_scale = {self._time_scale:g}: place {self._name} would have {target * 1e3:.3g} ms for what takes "
            f"this host {real_s * 1e3:.3g} ms, expected {HEADROOM:g} times as much: time_scale = {needed:.3g} or more"
        )
