"""What can lie before a cut, in whatever order the layers are taken: sets of groups with all that these need.

Such a set is called a downset (or ideal) of the network. A linear order that keeps all needs is a way from the empty
one to the whole, a group at a time; a chain of stages over any such order is a few of them, each within the next. So
what all orders allow is not a matter of their number, which grows with the factorial of what lies side by side, but
of the number of downsets. Networks that are a row of blocks have few: the product of branch lengths plus one in each
block, added up over blocks (J. Tarnawski et al., Efficient algorithms for device placement of DNN graph operators,
NeurIPS 2020). Where there are too many, those along a few orders, and near a plan's cuts, are looked at.

A downset is an int with a bit for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shisha_rt.model.spans import Span

Downset = int
Order = tuple[int, ...]
"""Groups, each once, behind all that it needs."""


@dataclass(frozen=True)
class GroupNeeds:
    """Runs of layers that no cut parts, in the file's order; `before` (groups,): of each the groups that it needs."""

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
        """The groups that can come next."""
        return (group for group in bits_of(self.whole & ~downset) if not self.before[group] & ~downset)

    def last(self, downset: Downset) -> Iterator[int]:
        """The groups that may have come last."""
        return (group for group in bits_of(downset) if not self.behind[group] & downset)


def group_needs(spans: Sequence[Span], needs: Sequence[frozenset[int]]) -> GroupNeeds:
    """Needs between groups, from `needs` (layers,): the earlier layers of which each reads a tensor."""
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
    """From the empty one to the whole, the smaller first; None: there are more than `most`."""
    cut_masks, newest = [0], [0]
    for _ in needs.spans:
        newest = list(dict.fromkeys(downset | 1 << group for downset in newest for group in needs.ready(downset)))
        cut_masks += newest
        if len(cut_masks) > most:
            return None
    return cut_masks


def good_orders(needs: GroupNeeds, work_s: Sequence[float]) -> list[Order]:
    """The file's first; then branches one after the other and side by side, by several rules. `work_s`: (groups,)."""
    groups = range(len(needs.spans))
    left_s = [0.0] * len(groups)  # the longest way from a group to the end
    for group in reversed(groups):
        left_s[group] = work_s[group] + max((left_s[later] for later in bits_of(needs.behind[group])), default=0.0)
    rules: tuple[Callable[[int, int], tuple[float, ...]], ...] = (
        # Of those that can come next the smallest is taken; `since`: how many groups there were when it became ready.
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
    """All that lies before a cut in one of these orders, the smaller first."""
    downsets: dict[Downset, None] = {0: None}
    for order in orders:
        downset = 0
        for group in order:
            downset |= 1 << group
            downsets[downset] = None
    return sorted(downsets, key=int.bit_count)


def near(needs: GroupNeeds, downset: Downset) -> Iterator[Downset]:
    """Downsets that differ from this one by up to two groups."""
    more, less = list(needs.ready(downset)), list(needs.last(downset))
    for group in more:
        larger = downset | 1 << group
        yield larger
        yield from (larger | 1 << other for other in needs.ready(larger) if other > group or other not in more)
    for group in less:
        larger = downset ^ 1 << group
        yield larger
        yield from (larger ^ 1 << other for other in needs.last(larger) if other < group or other not in less)
        yield from (larger | 1 << other for other in more if not needs.before[other] >> group & 1)


def order_through(downsets: Sequence[Downset]) -> Order:
    """An order that has each of these before a cut, the larger behind the smaller; between cuts it is the file's."""
    order: list[int] = []
    done = 0
    for downset in downsets:
        order += bits_of(downset & ~done)
        done = downset
    return tuple(order)
