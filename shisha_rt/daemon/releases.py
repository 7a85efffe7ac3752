"""Places that are taken down: a place is released once no thread of the daemon may run on its cores.

The lifecycle reports when a place has no process and no plan uses its cores (`PlaceReleased`). Two things may still use
them. Workers keep stages of whole teams in case their plan comes back: they are told to forget these. And threads of
the daemon and its children may run on any core: if somebody asked for the place, their affinity masks are narrowed; if
the host's limits took the place, the limits already say where threads may run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from shisha_rt.daemon.host_share import HostShare
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Team

Then: TypeAlias = Callable[[bool], None]
"""Called once: with True when the place is released, with False if it is brought up again before that."""


class Releases:
    """`processes`: pids of the daemon and of its children except workers, which pin themselves. `measure_elsewhere`:
    restarts measurements, without places that are down.
    """

    def __init__(
        self,
        machine: Machine,
        share: HostShare,
        processes: Callable[[], Iterable[int]],
        measure_elsewhere: Callable[[], None] = lambda: None,
    ) -> None:
        self._cores = {place.name: frozenset(place.cores) for place in machine.places}
        self._share = share
        self._processes = processes
        self._measure_elsewhere = measure_elsewhere
        self._teams: dict[int, set[str]] = {}  # places of the whole teams whose stages a worker may have
        self._asked: dict[str, list[Then]] = {}
        self._awaited: dict[str, set[int]] = {}  # by place: incarnations that still have to forget stages
        self._until_s: dict[str, float] = {}  # by place: when they must have

    def note_team(self, incarnation: int, team: Team) -> None:
        """Note that a worker was asked to prepare a stage of a whole team."""
        self._teams.setdefault(incarnation, set()).update(team)

    def ask(self, place: str, then: Then) -> None:
        """Note that somebody has taken the place down, for other programs to use its cores."""
        self._asked.setdefault(place, []).append(then)

    def __contains__(self, place: str) -> bool:
        return place in self._asked or place in self._awaited

    def planless(self, place: str, until_s: float) -> tuple[Sequence[int], Collection[int]]:
        """Note that nothing is planned on the place; return workers to forget stages by `until_s`, and their cores."""
        self._measure_elsewhere()
        self._until_s[place] = until_s
        awaited = self._awaited[place] = {incarnation for incarnation, places in self._teams.items() if place in places}
        return sorted(awaited), self._cores[place]

    def forgotten(self, incarnation: int) -> None:
        for awaited in self._awaited.values():
            awaited.discard(incarnation)

    def late(self, now_s: float) -> set[int]:
        """Workers that have not forgotten stages in time: an engine may hang in building one of a plan that is gone."""
        return {at for place, awaited in self._awaited.items() if self._until_s[place] <= now_s for at in awaited}

    def gone(self, incarnation: int) -> None:
        self._teams.pop(incarnation, None)
        self.forgotten(incarnation)

    def finish(self, available: Collection[str]) -> Sequence[str]:
        """Release the places for which nothing is awaited; return their names. `available`: places for plans."""
        released = [place for place, awaited in self._awaited.items() if not awaited]
        for place in released:
            del self._awaited[place]
            if place in self._asked:
                used = frozenset[int]().union(*(self._cores[name] for name in available))
                self._keep_off(self._share.withheld | (self._cores[place] - used))
            for then in self._asked.pop(place, ()):
                then(True)
        return released

    def wanted(self, place: str) -> None:
        """Note that the place comes up again; the daemon's threads may run there again, too."""
        self._awaited.pop(place, None)
        for then in self._asked.pop(place, ()):
            then(False)
        if self._cores[place] & self._share.withheld:
            self._keep_off(self._share.withheld - self._cores[place])

    def close(self) -> None:
        """Report all places as released: the daemon's workers have ended."""
        while self._asked:
            for then in self._asked.popitem()[1]:
                then(True)

    def _keep_off(self, withheld: frozenset[int]) -> None:
        may = os.sched_getaffinity(0) | self._share.withheld
        self._share.withhold(withheld)
        mask = may - withheld or may
        for pid in self._processes():
            for task in _tasks(pid):
                with contextlib.suppress(OSError):  # the thread has just ended
                    os.sched_setaffinity(task, mask)


def _tasks(pid: int) -> Iterable[int]:
    with contextlib.suppress(OSError):  # the process has just ended
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return ()
