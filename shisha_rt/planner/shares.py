"""Which places compute which stage, once the cuts are settled: a linear program, then whole places.

The program, classes by stages, says how many places of which class a stage gets. They are handed out host
by host, as long as the host's link has room; what is left goes to the slowest stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.planner.linear import maximize
from shisha_rt.planner.place_classes import Wide
from shisha_rt.planner.prices import Cuts


class Shares(NamedTuple):
    """`per_s`: the chain's frames a second; `frames` (classes, stages): those of each class for each stage."""

    per_s: float
    frames: Floats


class Dealt(NamedTuple):
    """Whole places: `places` (stages,) indices; the slowest stage serves `per_s` frames a second."""

    cuts: Cuts
    places: tuple[tuple[int, ...], ...]
    per_s: float


def shares_of(wide: Wide, cuts: Cuts) -> Shares:
    """Solve the linear program of one set of cuts."""
    spans = list(pairwise(cuts))
    seconds = np.array([[wide.counted_s[number][span] for span in spans] for number in range(len(wide.classes))])
    able = np.argwhere(np.isfinite(seconds))
    counts = np.array([place_class.count for place_class in wide.classes], float)
    classes, ways = len(wide.classes), len(wide.links)
    # A column for each (class, stage), the share of the class that computes it, and one for the chain's throughput.
    full = counts[able[:, 0]] / seconds[able[:, 0], able[:, 1]]
    if set(able[:, 1].tolist()) != set(range(len(spans))):
        return Shares(0.0, np.zeros(seconds.shape))
    unit = float(full.max())
    use = np.zeros((classes + ways + len(spans), len(able) + 1))
    use[able[:, 0], np.arange(len(able))] = 1.0
    for column, (number, stage) in enumerate(able.tolist()):
        for way in wide.classes[number].ways:
            use[classes + way, column] = full[column] * wide.link_s[way][spans[stage]] / wide.links[way]
        use[classes + ways + stage, column] = -full[column] / unit
    use[classes + ways :, -1] = 1.0
    gain = np.zeros(len(able) + 1)
    gain[-1] = 1.0
    # Most links can carry all that their hosts can compute: their rows, which never bind, are left out.
    kept = np.ones(len(use), bool)
    for way in range(ways):
        busiest = np.zeros(classes)
        np.maximum.at(busiest, able[:, 0], use[classes + way, :-1])
        kept[classes + way] = busiest.sum() > 1
    limit = np.concatenate([np.ones(classes + ways), np.zeros(len(spans))])
    solved = maximize(gain, use[kept], limit[kept])
    frames = np.zeros(seconds.shape)
    frames[able[:, 0], able[:, 1]] = solved.at[:-1] * full
    return Shares(solved.value * unit, frames)


def dealt(wide: Wide, cuts: Cuts) -> Dealt:
    """Round the program's shares to whole places, links overloaded by none or by up to one place; the better of both.

    Frames are dealt in proportion to places' speeds, so an overloaded link slows all places down.
    """
    shares = shares_of(wide, cuts)
    ways = (_Deal(wide, cuts, has_room).dealt(shares) for has_room in (_within, _not_full))
    return max(ways, key=lambda deal: deal.per_s)


def _within(used: Floats, more: Floats) -> Bools:
    """Whether links have room for all that a place more transfers."""
    return used + more <= 1 + 1e-9


def _not_full(used: Floats, more: Floats) -> Bools:
    return used < 1


class _Deal:
    """Places being handed out, each on a host whose link has room for it."""

    def __init__(self, wide: Wide, cuts: Cuts, has_room: Callable[[Floats, Floats], Bools]) -> None:
        self._wide = wide
        self._cuts = cuts
        self._spans = list(pairwise(cuts))
        self._has_room = has_room
        # In turns over the hosts, so that their links fill evenly; taken from the end.
        self._left = [[at for turn in _turns(place_class.hosts) for at in turn][::-1] for place_class in wide.classes]
        hosts = {
            place_class.group: len(place_class.hosts) for place_class in wide.classes if place_class.group is not None
        }
        self._busy = {group: np.zeros((count, 2, len(self._spans))) for group, count in hosts.items()}
        self._per_s = np.zeros(len(self._spans))
        self._places: list[list[int]] = [[] for _ in self._spans]

    def dealt(self, shares: Shares) -> Dealt:
        """First deal what the program says; then the slowest stage gets one more place, as long as any is of use."""
        seconds, classes = self._wide.counted_s, range(len(self._wide.classes))
        for number in classes:
            for stage, span in enumerate(self._spans):
                if shares.frames[number, stage] > 0:
                    for _ in range(round(shares.frames[number, stage] * seconds[number][span])):
                        if not self._take(number, stage):
                            break
        while True:
            stage = int(self._per_s.argmin())
            span = self._spans[stage]
            able = sorted((seconds[number][span], number) for number in classes if self._left[number])
            if not any(self._take(number, stage) for time_s, number in able if 0 < time_s < np.inf):
                break
        return Dealt(self._cuts, tuple(map(tuple, self._places)), self._served_per_s())

    def _take(self, number: int, stage: int) -> bool:
        """Give a stage a place of a class, on a host whose link has room; False if there is none."""
        left, span, group = self._left[number], self._spans[stage], self._wide.classes[number].group
        if not left:
            return False
        rate, at = 1 / self._wide.counted_s[number][span], len(left) - 1
        if group is not None:
            need = rate * self._wide.link_s[2 * group : 2 * group + 2, *span]
            open_hosts = np.all(self._has_room(self._busy[group].sum(axis=2), need), axis=1)
            while at >= 0 and not open_hosts[left[at][0]]:
                at -= 1
            if at < 0:
                return False
            self._busy[group][left[at][0], :, stage] += need
        self._places[stage].append(left.pop(at)[1])
        self._per_s[stage] += rate
        return True

    def _served_per_s(self) -> float:
        """Frames a second, as limited by the slowest stage or the fullest link."""
        if not self._per_s.all():
            return 0.0
        fullest_s = max((float((busy / self._per_s).sum(axis=2).max()) for busy in self._busy.values()), default=0.0)
        return 1 / max(1 / float(self._per_s.min()), fullest_s)


def _turns(hosts: Sequence[Sequence[int]]) -> Iterator[Iterable[tuple[int, int]]]:
    for turn in range(max(map(len, hosts))):
        yield [(host, places[turn]) for host, places in enumerate(hosts) if turn < len(places)]
