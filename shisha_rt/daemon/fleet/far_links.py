"""The links to places on other hosts, as they were told to planning and as they have been measured since."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.costs.links import HostLink

_SETTLED_S: Final = 1.5  # since the last that was seen: links of several places change together
_APART_S: Final = 5.0


class FarLinks:
    """`told`: by place, what planning goes by. `seen`: the last that its relay has measured."""

    def __init__(self, links: Mapping[str, HostLink]) -> None:
        self.told = dict(links)
        self.seen: dict[str, LinkSpeed] = {}
        self._new: dict[str, LinkSpeed] = {}
        self._now = dict(links)
        self._changed_s = math.inf
        self._told_s = -math.inf

    def note(self, place: str, host: str, seen: LinkSpeed, now_s: float) -> bool:
        """A relay tells of its link as it begins, and whenever it has become another; whether it has."""
        self.seen[place] = self._new[place] = seen
        known = self._now.get(place)
        if known is not None and known.host == host and not known.speed.is_unlike(seen):
            return False
        self._now[place] = HostLink(host, seen.there, seen.back)
        self._changed_s = now_s
        return True

    def take_new(self) -> Sequence[tuple[str, LinkSpeed]]:
        """What has been seen since it was asked last, by place."""
        new, self._new = list(self._new.items()), {}
        return new

    def changed(self, now_s: float) -> Mapping[str, HostLink] | None:
        """The links, if they are to be planned by anew; they count as told then."""
        if now_s < max(self._changed_s + _SETTLED_S, self._told_s + _APART_S):
            return None
        self._changed_s, self._told_s, self.told = math.inf, now_s, dict(self._now)
        return self.told
