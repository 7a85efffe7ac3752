"""Very many places in few classes, and the seconds that a stage takes of a class's places and of their hosts' links.

Places of a class have the same times and memory, and their hosts are interchangeable: they have equal links, and the
same number of places of each class. Such hosts are a group, and their links count as one limit: if places are used
evenly, each host carries an equal share.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.planner.chains import TeamKind, seconds_of
from shisha_rt.planner.kinds import StageCosts, stage_costs


@dataclass(frozen=True, slots=True, eq=False)
class ClassOfPlaces:
    """A class of places. `hosts`: its places (indices) on each host; `group`: the hosts' group.

    The places of one kind on the daemon's own host, which has no link, are a class with `group` None.
    """

    hosts: tuple[tuple[int, ...], ...]
    group: int | None

    @property
    def count(self) -> int:
        return sum(map(len, self.hosts))

    @property
    def link_rows(self) -> tuple[int, ...]:
        """The group's rows of `ClassCosts.link_s`: there and back; none without links."""
        return () if self.group is None else (2 * self.group, 2 * self.group + 1)


@dataclass(frozen=True, slots=True, eq=False)
class ClassCosts:
    """`seconds` (classes, positions, positions): seconds a frame that a place is busy with the stage from one position
    to another; inf if the place cannot run the stage. Behind a link it is the longest of transfer there, computing and
    transfer back.

    `counted_s`: `seconds` for linear programs: a stage that takes no time counts a billionth of the shortest positive
    time, as otherwise a place could serve infinitely many frames.

    `link_s` (2 x groups, positions, positions): seconds a frame that a stage keeps a link of the group busy; rows
    alternate between there and back. `links` (2 x groups,): number of links.
    """

    model: StageCosts
    classes: tuple[ClassOfPlaces, ...]
    seconds: Floats
    counted_s: Floats
    link_s: Floats
    links: Floats

    @property
    def positions(self) -> int:
        return self.model.groups + 1


def class_costs(costs: Costs) -> ClassCosts:
    """Put all places of `costs` into classes, so that planning takes time by classes instead of places."""
    model, kinds = stage_costs(costs), kinds_of(costs)
    links = {link.host: link for link in costs.links}
    kind_of = {place: kind for kind, places in enumerate(kinds) for place in places}
    on_host: dict[str | None, dict[int, list[int]]] = {}
    for index, place in enumerate(costs.places):
        host = place.host if place.host in links else None
        on_host.setdefault(host, {}).setdefault(kind_of[index], []).append(index)
    groups: dict[tuple[OneWay, OneWay, Hashable], int] = {}
    members: dict[tuple[int, int | None], list[tuple[int, ...]]] = {}
    group_of: list[int] = []
    for host, by_kind in on_host.items():
        group = None
        if host is not None:
            counts = tuple(sorted((kind, len(places)) for kind, places in by_kind.items()))
            group = groups.setdefault((links[host].there, links[host].back, counts), len(groups))
            group_of.append(group)
        for kind, places in by_kind.items():
            members.setdefault((kind, group), []).append(tuple(places))
    classes = tuple(ClassOfPlaces(tuple(of_hosts), group) for (_, group), of_hosts in members.items())
    number_of = {kind.places[0]: number for number, kind in enumerate(model.kinds)}
    seconds = seconds_of(model, [TeamKind(number_of[kinds[kind][0]], 1) for kind, _ in members]).busy_s
    there, back = costs.crossings.between(model.starts)
    link_s = np.zeros((2 * len(groups), *there.shape))
    for (link_there, link_back, _), group in groups.items():
        link_s[2 * group], link_s[2 * group + 1] = there / link_there.bytes_per_s, back / link_back.bytes_per_s
    least_s = seconds.min(where=seconds > 0, initial=np.inf)
    counted_s = np.maximum(seconds, 1e-9 * least_s if np.isfinite(least_s) else 1.0)
    hosts = np.bincount(group_of, minlength=len(groups)).astype(float)
    return ClassCosts(model, classes, seconds, counted_s, link_s, np.repeat(hosts, 2))
