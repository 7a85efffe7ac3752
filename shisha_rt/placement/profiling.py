"""Low-overhead profiling (DCG-2022 and DCG-2024, section 3.2, Algorithm 1): few runs that measure every cost.

One run of the network for each device measures all node costs, and some DA edges, too; a few more runs measure the
other DA edges. To find the fewest is a covering problem. Algorithm 1 walks the DCG once, keeps for every node the lists
of DA edges that paths to it have crossed, and stops when a list is full. As the number of lists is unbounded, only the
fullest few are kept (ours): the runs are few, if not the fewest.

If no list is full at the end, a case that the paper does not mention, the path of the fullest becomes a run, and the
walk starts again with the remaining DA edges (ours). The algorithm merges paths that have crossed the same DA edges,
even if they made tensors for later readers on different devices. So it can lose the paths that it needs; then the next
run is packed greedily (ours).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

from shisha_rt.placement.dcg import Dcg, Vertex, data_edges
from shisha_rt.placement.paths import START, Paths

MAX_LISTS: Final = 8
"""Most profiled-edge lists kept for one node of the DCG."""


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """`assignment` (operators,): devices. `newly_measured`: the numbers of DA edges that no earlier run crosses."""

    assignment: tuple[int, ...]
    newly_measured: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProfileRuns:
    """`node_runs` is (devices,)."""

    node_runs: tuple[ProfileRun, ...]
    edge_runs: tuple[ProfileRun, ...]

    @property
    def left_after_node_runs(self) -> int:
        """Number of DA edges that the edge runs measure."""
        return sum(len(run.newly_measured) for run in self.edge_runs)


def profile_runs(dcg: Dcg) -> ProfileRuns:
    """The runs that measure every node on every capable device, and every DA edge."""
    left = set(range(len(dcg.da_edges)))
    node_runs = [_measuring(left, by_priority(dcg, device), dcg) for device in range(len(dcg.moves))]
    edge_runs = []
    while left:
        run = _measuring(left, _walked(dcg, left), dcg)
        edge_runs.append(run if run.newly_measured else _measuring(left, _packed(dcg, left), dcg))
    return ProfileRuns(tuple(node_runs), tuple(edge_runs))


def by_priority(dcg: Dcg, device: int) -> tuple[int, ...]:
    """Lines 5-6: every operator on `device` if possible, else on device 0, else on the first that can run it (ours)."""
    return tuple(device if device in devices else devices[0] for devices in dcg.capable)


def _measuring(left: set[int], assignment: tuple[int, ...], dcg: Dcg) -> ProfileRun:
    """The run with this assignment; removes its DA edges from `left`."""
    new = dcg.crossed(assignment) & left
    left -= new
    return ProfileRun(assignment, tuple(sorted(new)))


class ProfiledList(NamedTuple):
    """`crossed` has bit i set if DA edge i has been profiled; `path` is the profiled path."""

    crossed: int
    path: int


def visits(dcg: Dcg, known: Collection[int], paths: Paths) -> Iterator[tuple[Vertex, Sequence[ProfiledList]]]:
    """Algorithm 1's walk from the start node, whose list has the DA edges `known`, to the end node.

    Lines 10-26: with each node of the DCG come its lists, the fullest first, none a subset of another.
    Nodes of one operator come in Figure 5's order, the last device first. A node's predecessors are the previous
    operator's nodes, whether or not data flows between them: operators run in the order of the graph.
    """
    bit = [[[0 if n is None else 1 << n for n in row] for row in numbers] for numbers in dcg.number]
    tensors, inputs = dcg.problem.tensors, dcg.problem.inputs
    before = [ProfiledList(sum(1 << number for number in known), START)]
    for operator, devices in enumerate(dcg.capable):
        # For each list so far and each tensor that is read: (devices,) bits of the DA edges crossed to each device.
        moved = [
            [bit[dcg.kind_of[t]][paths.device_of(tensors[t].producer, path)] for t in inputs[operator]]
            for _, path in before
        ]
        after: list[ProfiledList] = []
        for device in reversed(devices):
            choice: dict[int, int] = {}
            for (crossed, path), rows in zip(before, moved, strict=True):
                for row in rows:
                    crossed |= row[device]
                choice.setdefault(crossed, path)
            lists = [ProfiledList(crossed, paths.then(choice[crossed], device)) for crossed in _summarized(choice)]
            yield Vertex(operator, device), lists
            after = lists + after
        before = after
    at_end = dict(reversed(before))
    yield dcg.end, [ProfiledList(crossed, at_end[crossed]) for crossed in _summarized(at_end)]


def _summarized(lists: Iterable[int]) -> list[int]:
    """Lines 19-21: the fullest lists first, without subsets of others, `MAX_LISTS` at most."""
    kept: list[int] = []
    for crossed in sorted(lists, key=int.bit_count, reverse=True):
        if all(crossed & ~other for other in kept):
            kept.append(crossed)
            if len(kept) == MAX_LISTS:
                break
    return kept


def _walked(dcg: Dcg, left: Collection[int]) -> tuple[int, ...]:
    """Lines 10-27: the path of the first full list, else of the fullest at the end; later operators as for device 0."""
    paths = Paths()
    full = (1 << len(dcg.da_edges)) - 1
    fullest = ProfiledList(0, START)
    for _, lists in visits(dcg, set(range(len(dcg.da_edges))).difference(left), paths):
        fullest = lists[0]
        if fullest.crossed == full:
            break
    begun = paths.devices(fullest.path)
    return begun + by_priority(dcg, 0)[len(begun) :]


def _packed(dcg: Dcg, left: Collection[int]) -> tuple[int, ...]:
    """Greedily, an assignment that crosses a DA edge of `left`, and each further one compatible with those before."""
    missing = set(left)
    device_of: dict[int, int] = {}
    for tensor, producer, consumer in data_edges(dcg.problem):
        for source, target in product(dcg.capable[producer], dcg.capable[consumer]):
            number = dcg.number[dcg.kind_of[tensor]][source][target]
            if (
                number in missing
                and device_of.get(producer, source) == source
                and device_of.get(consumer, target) == target
            ):
                missing.remove(number)
                device_of |= {producer: source, consumer: target}
    return tuple(device_of.get(operator, device) for operator, device in enumerate(by_priority(dcg, 0)))
