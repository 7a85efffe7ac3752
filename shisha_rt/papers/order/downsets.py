"""Downsets of a network: what can be before a cut in any order of the layers.

A downset (or ideal) is a set of groups that contains all groups that its members need. A topological order is a path
from the empty downset to the whole network, one group at a time; a chain of stages over any such order is a sequence of
nested downsets. So the work to consider all orders grows with the number of downsets, not with that of orders, which is
factorial in the number of parallel branches. A network that is a sequence of blocks has few downsets: for each block
the product of (branch length + 1), summed over blocks (J. Tarnawski et al., Efficient algorithms for device placement
of DNN graph operators, NeurIPS 2020). If there are too many, only those along a few orders, and near a plan's cuts, are
considered.

A downset is an int with a bit for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shisha_rt.model.spans import Span

Downset = int
Order = tuple[int, ...]
"""All groups, each after those that it needs."""


@dataclass(frozen=True)
class GroupNeeds:
    """`spans`: runs of layers that no cut divides, in the file's order; `before` (groups,): groups that each needs."""

    spans: tuple[Span, ...]
    before: tuple[Downset, ...]

    @property
    def whole(self) -> Downset:
        return (1 << len(self.spans)) - 1

    @cached_property
    def behind(self) -> tuple[Downset, ...]:
        """(groups,): the groups that need each one."""
        closed = [0] * len(self.spans)
        for group, before in enumerate(self.before):
            for previous in bits_of(before):
                closed[previous] |= 1 << group
        return tuple(closed)

    def ready(self, downset: Downset) -> Iterator[int]:
        """The groups that can be added next."""
        return (group for group in bits_of(self.whole & ~downset) if not self.before[group] & ~downset)

    def last(self, downset: Downset) -> Iterator[int]:
        """The groups that may have been added last."""
        return (group for group in bits_of(downset) if not self.behind[group] & downset)


def group_needs(spans: Sequence[Span], needs: Sequence[frozenset[int]]) -> GroupNeeds:
    """Needs between groups, from `needs` (layers,): the earlier layers from which each reads a tensor."""
    group_of = [number for number, (first, last) in enumerate(spans) for _ in range(first, last + 1)]
    before = [0] * len(spans)
    for layer, need in enumerate(needs):
        for previous in need:
            before[group_of[layer]] |= 1 << group_of[previous]
    return GroupNeeds(tuple(spans), tuple(groups_before & ~(1 << group) for group, groups_before in enumerate(before)))


def bits_of(downset: Downset) -> Iterator[int]:
    """Groups of a downset, in the file's order."""
    while downset:
        lowest = downset & -downset
        yield lowest.bit_length() - 1
        downset ^= lowest


def every_downset(needs: GroupNeeds, most: int) -> list[Downset] | None:
    """All downsets, smaller ones first; None: there are more than `most`."""
    downsets, newest = [0], [0]
    for _ in needs.spans:
        newest = list(dict.fromkeys(downset | 1 << group for downset in newest for group in needs.ready(downset)))
        downsets += newest
        if len(downsets) > most:
            return None
    return downsets


def good_orders(needs: GroupNeeds, work_s: Sequence[float]) -> list[Order]:
    """Topological orders by several rules, among them depth first and breadth first; the file's order is the first.

    `work_s` (groups,).
    """
    groups = range(len(needs.spans))
    left_s = [0.0] * len(groups)  # the longest path from a group to the end
    for group in reversed(groups):
        left_s[group] = work_s[group] + max((left_s[later] for later in bits_of(needs.behind[group])), default=0.0)
    rules: tuple[Callable[[int, int], tuple[float, ...]], ...] = (
        # The ready group of the smallest key comes next; `since`: how many groups came before it became ready.
        lambda group, since: (-since, group),
        lambda group, since: (-since, -group),
        lambda group, since: (-since, -left_s[group], group),
        lambda group, since: (-since, left_s[group], group),
        lambda group, since: (-since, work_s[group], group),
        lambda group, since: (since, group),
        lambda group, since: (since, -group),
        lambda group, since: (-left_s[group], group),
        lambda group, since: (work_s[group], group),
        lambda group, since: (-work_s[group], group),
    )
    return list(dict.fromkeys([tuple(groups), *(_by_rule(needs, rule) for rule in rules)]))


def _by_rule(needs: GroupNeeds, rule: Callable[[int, int], tuple[float, ...]]) -> Order:
    order: list[int] = []
    since = dict.fromkeys(needs.ready(0), 0)
    done = 0
    while since:
        group = min(since, key=lambda candidate: rule(candidate, since[candidate]))
        del since[group]
        order.append(group)
        done |= 1 << group
        for later in bits_of(needs.behind[group]):
            if not needs.before[later] & ~done:
                since[later] = len(order)
    return tuple(order)


def downsets_along(orders: Sequence[Order]) -> list[Downset]:
    """The downsets before each cut of these orders, smaller ones first."""
    downsets: dict[Downset, None] = {0: None}
    for order in orders:
        downset = 0
        for group in order:
            downset |= 1 << group
            downsets[downset] = None
    return sorted(downsets, key=int.bit_count)


def near(needs: GroupNeeds, downset: Downset) -> Iterator[Downset]:
    """Yield the downsets that differ from this one by one or two groups."""
    more, less = list(needs.ready(downset)), list(needs.last(downset))
    # Each pair of groups is added, or removed, in one of the two orders only.
    for group in more:
        larger = downset | 1 << group
        yield larger
        yield from (larger | 1 << other for other in needs.ready(larger) if other > group or other not in more)
    for group in less:
        smaller = downset ^ 1 << group
        yield smaller
        yield from (smaller ^ 1 << other for other in needs.last(smaller) if other < group or other not in less)
        yield from (smaller | 1 << other for other in more if not needs.before[other] >> group & 1)


def order_through(downsets: Sequence[Downset]) -> Order:
    """An order in which each of these nested downsets is before a cut; between cuts it is the file's order."""
    order: list[int] = []
    done = 0
    for downset in downsets:
        order += bits_of(downset & ~done)
        done = downset
    return tuple(order)
