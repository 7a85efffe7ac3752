"""The places on other hosts: which are available, the far ends of their relays, and the links to them.

To the daemon a relay is a worker like any other (see `stages.far.relay`). The cluster process starts its far end, and
reports on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from shisha_rt.core import event_log
from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.costs.links import HostLink
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.hosts import messages as cm
from shisha_rt.messages.worker import WorkerConfig

if TYPE_CHECKING:
    from shisha_rt.hosts.joined import Joined

_CLUSTER: Final = ChildProgram(cm.PROCESS, cm.TO_CLUSTER, cm.FROM_CLUSTER)
_SETTLED_S: Final = 1.5  # after the last change: links of several places change together
_APART_S: Final = 5.0


class FarLinks:
    """`planned_by`: the links, by place, that plans are made with. `seen`: what each place's relay measured last."""

    def __init__(self, links: Mapping[str, HostLink]) -> None:
        self.planned_by = dict(links)
        self.seen: dict[str, LinkSpeed] = {}
        self._new: dict[str, LinkSpeed] = {}
        self._now = dict(links)
        self._changed_s = math.inf
        self._told_s = -math.inf

    def note(self, place: str, host: str, seen: LinkSpeed, now_s: float) -> bool:
        """Note what a relay has measured of its link; return whether the link is unlike what was known."""
        self.seen[place] = self._new[place] = seen
        known = self._now.get(place)
        if known is not None and known.host == host and not known.speed.is_unlike(seen):
            return False
        self._now[place] = HostLink(host, seen.there, seen.back)
        self._changed_s = now_s
        return True

    def take_new(self) -> Sequence[tuple[str, LinkSpeed]]:
        """Measurements since the last call, by place."""
        new, self._new = list(self._new.items()), {}
        return new

    def changed(self, now_s: float) -> Mapping[str, HostLink] | None:
        """The links, if plans are due to be made anew with them; they become `planned_by` then. Else None."""
        if now_s < max(self._changed_s + _SETTLED_S, self._told_s + _APART_S):
            return None
        self._changed_s, self._told_s, self.planned_by = math.inf, now_s, dict(self._now)
        return self.planned_by


class FarPlaces:
    """`hosts`: the host of each available place; `links`: the links to them. `link`: to the cluster process, whose
    messages `poller` yields. `joined`: None if all places are on this host.
    """

    def __init__(self, joined: Joined | None, poller: Poller) -> None:
        self.links = FarLinks({} if joined is None else joined.links())
        self.hosts: dict[str, cm.PlaceThere] = {}
        self.link = ChildLink(_CLUSTER, poller, self._died, self._said)
        self._relays: dict[int, tuple[str, WorkerConfig]] = {}
        if joined is not None:
            self.hosts = {place: host for place, host in joined.places.items() if place not in joined.lost}
            self.link.take_over(joined.line, joined.greeting)

    def expect(self, place: str, incarnation: int, config: WorkerConfig) -> None:
        """Note a relay that has been started. Its far end is started when the relay sends `Hail`."""
        self._relays[incarnation] = place, config

    def hailed(self, incarnation: int, near_key: str) -> None:
        relay = self._relays.get(incarnation)
        if relay is not None:
            self.link.send(cm.StartFar(relay[0], incarnation, relay[1], near_key))

    def gone(self, incarnation: int) -> None:
        if self._relays.pop(incarnation, None) is not None:
            self.link.send(cm.EndFar(incarnation))

    def link_seen(self, place: str, seen: LinkSpeed) -> bool:
        """Note a measured link; return whether it is unlike what was known."""
        return place in self.hosts and self.links.note(place, self.hosts[place].host, seen, time.monotonic())

    def _said(self, message: cm.FromCluster) -> object:
        match message:
            case cm.PlaceThere(place=place):
                self.hosts[place] = message
            case cm.PlaceLost(place=place):
                self.hosts.pop(place, None)
        return message

    def _died(self, reason: str) -> object:
        """The actors have ended with their cluster process; relays notice that by themselves."""
        self.hosts.clear()
        return event_log.ClusterEnded(reason=reason)

    def finish(self, meanwhile: Callable[[], object]) -> None:
        """Have the cluster process release everything, and wait for that."""
        self.link.send(cm.EndCluster())
        self.link.wait(cm.LEAVES_WITHIN_S, meanwhile)

    def close(self) -> None:
        self.link.close()
