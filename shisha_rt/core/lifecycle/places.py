"""The places' part of the lifecycle: which process runs for each, when one is started again, when a place is given up.

A place whose workers die too often leaves planning; the last one left never does, it is restarted with growing delays.
A place whose worker is not back soon is away: plans are made without it until the worker is back, as long as another
place serves (R3.7). A place that is taken out of planning and back time and again gets its next worker later each time.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.events import WorkerGone
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.records import PlaceState, WorkerState
from shisha_rt.core.lifecycle.tables import PLACE, PlacePhase, Transition, Transitions

STANDINGS: Final = ("up", "starting", "restarting", "away", "given_up", "down")


class Places:
    """Every place, and the workers (incarnations) that have a process now.

    `serving`: by place, the worker that is up and meant to stay; `roomy`: those of them that may be dealt a part.
    `down`: places out of planning, with a process or without; `out`: places without a process that want none (OUT);
    `away`: places whose worker is overdue; `leaving`: places taken down whose release has not been reported yet.
    `deaths`: how many workers have died or could not be started; `last_error`: place and reason of the last one.
    """

    def __init__(
        self,
        names: Iterable[str],
        policy: Policy,
        story: deque[Transition],
        emit: Callable[[do.Instruction], None],
        down: Collection[str] = (),
    ) -> None:
        self.by_name = {name: PlaceState(name) for name in names}
        self.workers: dict[int, WorkerState] = {}
        self.serving: dict[str, WorkerState] = {}
        self.roomy: dict[str, WorkerState] = {}
        self.down: set[str] = set()
        self.out: set[str] = set()
        self.away: set[str] = set()
        self.leaving: set[str] = set()
        self.deaths = 0
        self.last_error = ""
        self._policy = policy
        self._transitions = Transitions("place", PLACE, story)
        self._emit = emit
        self._incarnations = itertools.count(1)
        self._now_s = self._longest_start_s = 0.0
        self._changed = True
        self._wake_s = math.inf
        self._closed = False
        for name in down:
            self.take_down(name)
        self.leaving.clear()  # these were never in use: no release to report

    @property
    def available(self) -> tuple[str, ...]:
        """The places that a plan may use, in the machine's order."""
        return tuple(name for name in self.by_name if name not in self.down and name not in self.away)

    @property
    def lost(self) -> set[str]:
        """The places that have no worker and get none soon."""
        return self.out | self.away if self.away else self.out

    def standing(self, name: str) -> str:
        """State of a place for users, one of `STANDINGS`; `down`: somebody took it out of planning."""
        place = self.by_name[name]
        if place.given_up:
            return "given_up"
        if not place.available or place.phase is PlacePhase.OUT:
            return "down"
        return "away" if name in self.away else place.phase.name.lower()

    @property
    def at_rest(self) -> bool:
        """Whether each place is either up, with a worker that loads nothing and is not killed, or down, without one."""
        if self.leaving or len(self.serving) + len(self.down) != len(self.by_name) or not self.down <= self.out:
            return False
        return not any(worker.loading for worker in self.serving.values())

    def tick(self, now: float) -> None:
        """Kill workers that took too long to come up, start those that are due, and find the places that are away.

        All places are looked through only if one has changed since the last call, or something is due.
        """
        if not self._changed and now < self._wake_s:
            self._now_s = now
            return
        self._now_s = now
        for worker in self._starting:
            if worker.start_s + self._policy.start_s <= now:
                self.kill(worker, f"not up within {self._policy.start_s:g} s", now)
        restarting = (place for place in self.by_name.values() if place.phase is PlacePhase.RESTARTING)
        due = [place for place in restarting if place.start_at_s <= now]
        for place in sorted(due, key=lambda place: place.start_at_s)[: self._turns]:  # the longest overdue first
            place.incarnation = next(self._incarnations)
            self.workers[place.incarnation] = WorkerState(place.incarnation, place.name, now)
            self._step(place, "start")
            self._emit(do.Start(place.name, place.incarnation))
        self._plan_without_overdue(now)
        self._wake_s = min(self._found_wake_times(), default=math.inf)
        self._changed = False

    def _plan_without_overdue(self, now: float) -> None:
        for place in self.by_name.values():
            if self._is_overdue(place, now):
                self.away.add(place.name)
                self._emit(do.PlaceAway(place.name))

    def _is_overdue(self, place: PlaceState, now: float) -> bool:
        """Whether plans are to be made without the place, as it lost its worker long ago and another place serves."""
        others = (name for name in self.serving if name not in self.down and name not in self.away)
        return self._away_from_s(place) <= now and any(name != place.name for name in others)

    def _away_from_s(self, place: PlaceState) -> float:
        """When the place becomes away; inf if it is already, or is not waited for."""
        if place.lost_s is None or not place.available or place.name in self.away or self._closed:
            return math.inf
        usual_s = place.usual_start_s or self._longest_start_s
        return place.lost_s + max(self._policy.away_s, min(3 * usual_s, self._policy.away_most_s))

    @property
    def _starting(self) -> list[WorkerState]:
        starting = (place.incarnation for place in self.by_name.values() if place.phase is PlacePhase.STARTING)
        return [self.workers[incarnation] for incarnation in starting if incarnation is not None]

    @property
    def _turns(self) -> int:
        """How many more workers may start now: if very many start at once, all of them are late."""
        return max(0, self._policy.starts_at_once - len(self._starting))

    def wake_times(self) -> list[float]:
        return self._found_wake_times() if self._changed else [self._wake_s]

    def _found_wake_times(self) -> list[float]:
        times = [p.start_at_s for p in self.by_name.values() if p.phase is PlacePhase.RESTARTING]
        if not self._turns:  # the next one may start when a starting one is up or gone
            times = []
        times += [worker.start_s + self._policy.start_s for worker in self._starting if not worker.killed]
        return times + [at_s for at_s in map(self._away_from_s, self.by_name.values()) if at_s > self._now_s]

    def ready(self, incarnation: int, now: float) -> bool:
        """Note that a worker is ready; False if none is awaited with this incarnation."""
        worker = self.workers.get(incarnation)
        if worker is None or worker.killed or self.by_name[worker.place].phase is not PlacePhase.STARTING:
            return False
        place = self.by_name[worker.place]
        place.failed_starts = 0
        place.lost_s, place.usual_start_s = None, now - worker.start_s
        self._longest_start_s = max(other.usual_start_s for other in self.by_name.values())
        self._step(place, "ready")
        self.serving[place.name] = self.roomy[place.name] = worker
        was_away = place.name in self.away
        self.away.discard(place.name)
        self._plan_without_overdue(now)  # which needs a place that serves
        if was_away:
            self._emit(do.PlaceBack(place.name))
        return True

    def gone(self, worker: WorkerState, event: WorkerGone, now: float) -> None:
        """The process of `worker` is dead: restart its place, or take it out."""
        del self.workers[worker.incarnation]
        self._serves_no_more(worker, now)
        place = self.by_name[worker.place]
        place.incarnation = None
        if self._closed or not place.available:
            self._step(place, "quit")
            return
        place.last_error = event.reason
        self.deaths, self.last_error = self.deaths + 1, f"{place.name}: {event.reason}"
        if place.phase is PlacePhase.STARTING and not worker.blameless:
            place.failed_starts += 1
        if not event.started:  # not the place's fault: tried again later, when the host may be able to
            self._put_off(place, now)
            return
        place.restarts += 1
        if worker.blameless:
            place.start_at_s = max(now, place.start_at_s)
            self._step(place, "lose")
            return
        while place.deaths_s and place.deaths_s[0] < now - self._policy.death_window_s:
            place.deaths_s.popleft()
        if not place.deaths_s:
            place.delay_s = 0.0
        place.deaths_s.append(now)
        too_many = len(place.deaths_s) > self._policy.deaths_in_window
        if too_many and any(name != place.name for name in self.available):
            self._leave_out(place)
            place.given_up = True
            self._step(place, "quit")
            self._emit(do.GivenUp(place.name, f"{len(place.deaths_s)} deaths; the last: {event.reason}"))
            return
        if too_many or place.delay_s:
            self._put_off(place, now)
            return
        place.start_at_s = now
        self._step(place, "lose")

    def _put_off(self, place: PlaceState, now: float) -> None:
        """Delay the next start, by more than the last one."""
        self._grow_delay(place)
        place.start_at_s = now + place.delay_s
        self._step(place, "lose")

    def _grow_delay(self, place: PlaceState) -> None:
        place.delay_s = min(2 * place.delay_s or self._policy.restart_delay_s, self._policy.restart_delay_max_s)

    def hung(self, incarnation: int, reason: str, now: float) -> None:
        worker = self.workers.get(incarnation)
        if worker is not None:
            self.kill(worker, reason, now)

    def kill(self, worker: WorkerState, reason: str, now: float, *, blameless: bool = False) -> None:
        """Ask for the process's death, once; it counts as dead only from `gone` on."""
        if not worker.killed:
            worker.killed, worker.blameless = True, blameless
            self._serves_no_more(worker, now)
            self._emit(do.Kill(worker.incarnation, reason, worker.dismissed))

    def _serves_no_more(self, worker: WorkerState, now: float) -> None:
        self._changed = True
        place = self.by_name[worker.place]
        if place.lost_s is None:
            place.lost_s = now
        if self.serving.get(worker.place) is worker:
            del self.serving[worker.place]
            self.roomy.pop(worker.place, None)

    def take_down(self, name: str) -> None:
        """Take a place out of planning, unless it is the last one left."""
        place = self.by_name[name]
        if self.available == (name,):
            return
        self._leave_out(place)
        self.leaving.add(name)
        if place.phase is PlacePhase.RESTARTING:
            self._step(place, "quit")

    def release(self, planned: Collection[str]) -> None:
        """Report each place taken down that is free now: it has no process, and is not among `planned`."""
        for name in sorted(self.leaving & self.out - {*planned}):
            self.leaving.remove(name)
            self._emit(do.PlaceReleased(name))

    def bring_up(self, name: str, now: float) -> None:
        """Make a place available again, with the record of its deaths cleared, and start its worker when it is due."""
        self._changed = True
        place = self.by_name[name]
        if self._closed:
            return
        was_down = not place.available
        place.available, place.given_up = True, False
        self.down.discard(name)
        self.leaving.discard(name)
        place.lost_s = None if place.lost_s is None else now
        place.failed_starts = 0
        place.deaths_s.clear()
        if not self._was_dismissed_lately(place, now):
            place.delay_s = 0.0
        if was_down:
            place.start_at_s = now + place.delay_s
        if place.phase is PlacePhase.OUT:
            self._step(place, "return")
        self._plan_without_overdue(now)  # which needs a place that serves: this one may

    def reachable(self, name: str, now: float) -> None:
        """Let a delayed start be tried at once."""
        self._changed = True
        place = self.by_name[name]
        place.failed_starts, place.delay_s = 0, 0.0
        if place.phase is PlacePhase.RESTARTING:
            place.start_at_s = min(place.start_at_s, now)

    def close(self) -> None:
        """The daemon stops: no process is started any more."""
        self._changed = True
        self._closed = True
        for place in self.by_name.values():
            if place.phase is PlacePhase.RESTARTING:
                self._step(place, "quit")

    @property
    def dismissed(self) -> list[WorkerState]:
        """The workers of places out of planning that are not killed yet."""
        if not self.down:
            return []
        incarnations = (self.by_name[name].incarnation for name in sorted(self.down))
        workers = (self.workers[number] for number in incarnations if number is not None)
        return [worker for worker in workers if not worker.killed]

    def dismiss(self, in_use: Collection[str], now: float) -> None:
        """End the workers of places that are out of planning and that no live plan needs."""
        for worker in self.dismissed:
            if worker.place not in in_use:
                place = self.by_name[worker.place]
                if self._was_dismissed_lately(place, now):
                    self._grow_delay(place)
                else:
                    place.delay_s = 0.0
                place.dismissed_s = now
                worker.dismissed = True
                self.kill(worker, "its place was taken out of planning", now, blameless=True)

    def _was_dismissed_lately(self, place: PlaceState, now: float) -> bool:
        return now < place.dismissed_s + self._policy.death_window_s

    def _leave_out(self, place: PlaceState) -> None:
        """Take the place out of planning."""
        self._changed = True
        place.available, place.given_up = False, False
        self.down.add(place.name)
        self.away.discard(place.name)

    def _step(self, place: PlaceState, action: str) -> None:
        self._changed = True
        self._transitions.step(place.name, place, action)
        if place.phase is PlacePhase.OUT:
            self.out.add(place.name)
        else:
            self.out.discard(place.name)
