"""Plans to be set: a chain on one place, with some of its layers split over several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.model.split import Split, Splittable
from shisha_rt.plan.plan import Plan, Stage


@dataclass(frozen=True, slots=True)
class Shared:
    """Layers that are split in one possible way: each place computes its share."""

    way: Splittable
    shares: tuple[int, ...]
    places: tuple[str, ...]

    def part(self, number: int) -> Split:
        """A shard by number; the number after the last is the join."""
        return Split((self.way.first, self.way.last), self.way.axis, self.shares, number)


def plan_with(layers: int, home: str, shared: Sequence[Shared]) -> Plan:
    """A plan with all that is not `shared` (ascending, disjoint), and joins, on the place `home`."""
    stages: list[Stage] = []
    ends: tuple[int, ...] = ()
    at, join = 0, None

    def add_whole(first: int, last: int, join: Split | None) -> None:
        nonlocal ends
        if first <= last:
            stages.append(Stage(((first, last),), ((home,),), ends, split=join))
            ends = (len(stages) - 1,)

    for share in shared:
        add_whole(at, share.way.first - 1, join)
        shards = [Stage(((share.way.first, share.way.last),), ((place,),), ends) for place in share.places]
        ends = tuple(range(len(stages), len(stages) + len(shards)))
        stages += (
            Stage(stage.work, stage.teams, stage.after, split=share.part(number)) for number, stage in enumerate(shards)
        )
        join = share.part(len(shards)) if share.way.joined else None
        at = share.way.first if share.way.joined else share.way.last + 1
    add_whole(at, layers - 1, join)
    return Plan(tuple(stages))


def nearest_shares(way: Splittable, fractions: Sequence[float]) -> tuple[int, ...]:
    """Shares in whole blocks, at least one each, whose running sums are nearest to those of `fractions`; the last has
    the rest.
    """
    blocks = way.blocks
    counts: list[int] = []
    for number, fraction in enumerate(fractions[:-1]):
        most = blocks - sum(counts) - (len(fractions) - number - 1)
        counts.append(min(most, max(1, round(fraction * blocks))))
    shares = [count * way.block for count in counts]
    return (*shares, way.units - sum(shares))


def way_of(ways: Sequence[Splittable], layer: int, axis: str) -> Splittable:
    """The split of a single layer along an axis. Raises LookupError if there is none."""
    return next(way for way in ways if (way.first, way.last, way.axis) == (layer, layer, axis))
