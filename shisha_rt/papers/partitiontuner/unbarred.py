"""The least makespan over all assignments and orders, without barriers: branch and bound (ours).

A processor runs one node, or the nodes of a group as one, at a time. A node starts when its processor is free and its
inputs have been computed. As in `schedule`, the first node that reads a moved tensor in a memory pays for the move, at
its start; others that read it there wait until the move is done. A partial schedule is extended by one run at a time,
in the order of starts, so that each schedule is generated once.

Two lower bounds on the rest: the critical path, with each node's least time; and the time of all remaining nodes if
each could be divided among processors so that all end at the same time. Of two partial schedules with the same nodes on
the same devices, one is dropped if nothing in it is earlier than in the other (dominance).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.outcome import ShouldStop, never
from shisha_rt.placement.narrowing import least_node_s
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.schedule import Partition, Schedule, Section

MOST_NODES: Final = 20
"""Largest graph for which the search is worth trying."""
_ABREAST: Final = 30
"""Width of the beam search for a first schedule."""
_SAME: Final = 1e-12
"""Relative tolerance, as sums in another order are rounded differently."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Nodes that a device runs as one: a single node, or those of a group."""

    nodes: tuple[int, ...]
    device: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Unbarred:
    """`runs`: by start; None: no schedule better than `known_s` was found. `bound_s`: lower bound of all schedules."""

    runs: tuple[NodeRun, ...] | None
    bound_s: float

    @property
    def makespan_s(self) -> float:
        return math.inf if self.runs is None else max(run.end_s for run in self.runs)

    def assignment(self) -> tuple[int, ...]:
        """(nodes,): the device of each."""
        assert self.runs is not None
        device_of = {node: run.device for run in self.runs for node in run.nodes}
        return tuple(device_of[node] for node in sorted(device_of))

    def schedule(self, problem: Problem) -> Schedule:
        """One section with a lane for each processor.

        Consecutive runs of a device form a partition. It ends after a run that other devices wait for, and before a run
        that waits for other devices.
        """
        assert self.runs is not None
        assignment = self.assignment()
        apart: set[int] = set()  # nodes that another device waits for, and so end a partition
        waits: set[int] = set()  # nodes that wait for another device, and so begin one
        for tensor in problem.tensors:
            for consumer in tensor.consumers:
                if assignment[consumer] != assignment[tensor.producer]:
                    apart.add(tensor.producer)
                    waits.add(consumer)
        lanes: dict[int, list[Partition]] = {}
        for run in self.runs:
            lane = lanes.setdefault(problem.processor_of(run.device), [])
            if (
                lane
                and lane[-1].device == run.device
                and not (apart.intersection(lane[-1].nodes) or waits.intersection(run.nodes))
            ):
                before = lane.pop()
                lane.append(Partition(run.device, (*before.nodes, *run.nodes), before.start_s, run.end_s))
            else:
                lane.append(Partition(run.device, run.nodes, run.start_s, run.end_s))
        return Schedule((Section(tuple(map(tuple, lanes.values())), 0.0, self.makespan_s),))


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A partial schedule. `done`: a bit for each scheduled node. `free_s` (processors,): when each is free. `ends_s`,
    `device_of` (nodes,): of scheduled nodes. `came_s`: ((tensor, memory), arrival). `last_s`: start of the last run.
    """

    done: int
    free_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    device_of: tuple[int, ...]
    came_s: tuple[tuple[tuple[int, int], float], ...]
    last_s: float
    runs: tuple[NodeRun, ...]


def unbarred(
    problem: Problem, known_s: float = math.inf, should_stop: ShouldStop = never, most: int = 20_000
) -> Unbarred:
    """Best-first search for a schedule that ends before `known_s`.

    After `most` partial schedules, or on a stop, the bound is the least of those that are still open.
    """
    search = _Search(problem)
    start = search.start()
    best, best_s = _dive(search, start, known_s, min(_ABREAST, most))
    queue = [(search.bound_s(start), 0, 0, start)]
    seen: _Seen = {}
    count = 0
    bound_s = queue[0][0]
    while queue:
        bound_s, _, _, at = heapq.heappop(queue)
        if bound_s >= best_s * (1 - _SAME) or count > most or should_stop():
            break
        for following in search.following(at):
            count += 1
            promised_s = search.bound_s(following)
            if promised_s >= best_s * (1 - _SAME) or search.bettered(seen, following):
                continue
            if following.done == search.all_done:
                best, best_s = following.runs, promised_s
            else:
                # Of equal bounds the longest partial schedule first, so that a complete one is found soon.
                heapq.heappush(queue, (promised_s, -following.done.bit_count(), count, following))
    else:
        bound_s = best_s
    return Unbarred(best, min(bound_s, best_s))


def _dive(search: _Search, start: _Beginning, known_s: float, abreast: int) -> tuple[tuple[NodeRun, ...] | None, float]:
    """Beam search for a first schedule better than `known_s`: keeps the `abreast` best partial ones of each length."""
    best, best_s, level = None, known_s, [start]
    while level:
        longer = [
            (search.bound_s(following), number, following)
            for number, following in enumerate(following for at in level for following in search.following(at))
        ]
        for promised_s, _, following in longer:
            if following.done == search.all_done and promised_s < best_s * (1 - _SAME):
                best, best_s = following.runs, promised_s
        level = [following for _, _, following in heapq.nsmallest(abreast, longer) if following.done != search.all_done]
    return best, best_s


_Seen = dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]], list[tuple[float, ...]]]
"""Times of partial schedules, by nodes done, devices of nodes that are still read, and tensors already moved."""


def can_be_tried(problem: Problem) -> bool:
    """Whether the problem is small, and no node must run between nodes of a group, which then could not run as one."""
    if len(problem.nodes) > MOST_NODES:
        return False
    after: list[set[int]] = [set() for _ in problem.nodes]  # descendants of each node
    for node in reversed(range(len(problem.nodes))):
        after[node].update(problem.readers[node], *(after[reader] for reader in problem.readers[node]))
    return not any(
        other not in group.nodes and after[other].intersection(group.nodes)
        for group in problem.groups
        for node in group.nodes
        for other in after[node]
    )


def any_order_bound_s(problem: Problem) -> float:
    """Lower bound of the makespan of any schedule."""
    search = _Search(problem)
    return search.bound_s(search.start())


class _Search:
    """Branching and bounds. `_share_s` (nodes, processors): least time there, alone or as a share of a group's;
    `_least_s` (nodes,): on any processor; `_tail_s` (nodes,): least time from the node's start to the end.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        count = len(problem.nodes)
        self.all_done = (1 << count) - 1
        self._before = [sum(1 << maker for maker in makers) for makers in problem.makers]
        processors = [problem.processor_of(device) for device in range(len(problem.devices))]
        self._processors = sorted(set(processors))
        self._processor_of = [self._processors.index(processor) for processor in processors]
        self._at_once = [
            *(
                ((node,), device, problem.nodes[node].cost_s[device])
                for node in range(count)
                for device in problem.nodes[node].capable
            ),
            *((group.nodes, group.device, group.cost_s) for group in problem.groups),
        ]
        least_s = least_node_s(problem)
        on_each = [[d for d, of in enumerate(self._processor_of) if of == p] for p in range(len(self._processors))]
        self._share_s: list[list[float]] = np.stack([least_s[:, on].min(axis=1) for on in on_each], axis=1).tolist()
        self._least_s = [min(row) for row in self._share_s]
        self._tail_s = [0.0] * count
        for node in reversed(range(count)):
            beyond = max((self._tail_s[reader] for reader in self._problem.readers[node]), default=0.0)
            # A group's nodes count with their shares of its time, as all of them may take no longer than one.
            self._tail_s[node] = self._least_s[node] + beyond
        self._by_ratio = self._ratios(count)

    def _ratios(self, count: int) -> tuple[int, ...]:
        """Nodes in the order in which `_full_s` gives them to the first of two processors: by ratio of times."""
        if len(self._processors) != 2:
            return tuple(range(count))

        def ratio(node: int) -> float:
            first, second = self._share_s[node]
            return math.inf if math.isinf(first) else first / second if second > 0 else math.inf

        return tuple(sorted(range(count), key=ratio))

    def start(self) -> _Beginning:
        count = len(self._problem.nodes)
        nothing = (0.0,) * count
        return _Beginning(0, (0.0,) * len(self._processors), nothing, (-1,) * count, (), 0.0, ())

    def following(self, at: _Beginning) -> Iterator[_Beginning]:
        """Yield the partial schedules with one more run, which does not start before the last one."""
        for nodes, device, cost_s in self._at_once:
            members = sum(1 << node for node in nodes)
            needed = 0
            for node in nodes:
                needed |= self._before[node]
            if at.done & members or needed & ~(at.done | members):
                continue
            start_s, moving_s, came_s = self._ready(at, nodes, device)
            if start_s < at.last_s:
                continue
            end_s = start_s + moving_s + cost_s
            free_s, ends_s, device_of = list(at.free_s), list(at.ends_s), list(at.device_of)
            free_s[self._processor_of[device]] = end_s
            for node in nodes:
                ends_s[node], device_of[node] = end_s, device
            run = NodeRun(nodes, device, start_s, end_s)
            times = tuple(free_s), tuple(ends_s), tuple(device_of)
            yield _Beginning(at.done | members, *times, came_s, start_s, (*at.runs, run))

    def _ready(
        self, at: _Beginning, nodes: Sequence[int], device: int
    ) -> tuple[float, float, tuple[tuple[tuple[int, int], float], ...]]:
        """When a run of these nodes can start on a device, how long tensors then move first, and the new `came_s`."""
        problem = self._problem
        memory, once = problem.memory_of[device], problem.transfer_counting == "once"
        start_s, moving_s, came = at.free_s[self._processor_of[device]], 0.0, dict(at.came_s)
        brought = []
        for node in nodes:
            for index in problem.inputs[node]:
                tensor = problem.tensors[index]
                if tensor.producer in nodes:
                    continue
                source = at.device_of[tensor.producer]
                start_s = max(start_s, at.ends_s[tensor.producer])
                if problem.memory_of[source] == memory:
                    continue
                if (index, memory) in came:
                    start_s = max(start_s, came[index, memory])
                else:
                    moving_s += tensor.transfer_s[source][memory]
                    if once:
                        brought.append((index, memory))
                        came[index, memory] = -math.inf  # moved by this run: its other nodes do not wait for it
        came |= dict.fromkeys(brought, start_s + moving_s)
        return start_s, moving_s, tuple(sorted(came.items()))

    def bound_s(self, at: _Beginning) -> float:
        """Lower bound of the makespan of all schedules that extend this partial one."""
        ended_s = max(at.free_s)
        starts_s: dict[int, float] = {}
        longest_s = ended_s
        for node in range(len(self._problem.nodes)):
            if at.done >> node & 1:
                continue
            ready_s = at.last_s
            for other in self._problem.makers[node]:
                done = at.done >> other & 1
                ready_s = max(ready_s, at.ends_s[other] if done else starts_s[other] + self._least_s[other])
            starts_s[node] = ready_s
            longest_s = max(longest_s, ready_s + self._tail_s[node])
        return max(longest_s, self._full_s(at))

    def _full_s(self, at: _Beginning) -> float:
        """Lower bound of the makespan if the remaining nodes could be divided among processors at will.

        It is exact for two processors; for others each node counts with its least time.
        """
        free_s = [max(free, at.last_s) for free in at.free_s]
        left = [node for node in self._by_ratio if not at.done >> node & 1]
        if len(self._processors) != 2:
            return (math.fsum(free_s) + math.fsum(self._least_s[node] for node in left)) / len(free_s)
        shares_s = [self._share_s[node] for node in left]
        first_s = free_s[0] + math.fsum(on_first_s for on_first_s, on_second_s in shares_s if math.isinf(on_second_s))
        second_s = free_s[1] + math.fsum(on_second_s for _, on_second_s in shares_s if math.isfinite(on_second_s))
        for on_first_s, on_second_s in shares_s:
            if math.isinf(on_first_s) or math.isinf(on_second_s):
                continue
            if first_s + on_first_s < second_s - on_second_s:
                first_s, second_s = first_s + on_first_s, second_s - on_second_s
                continue
            if first_s < second_s and on_first_s + on_second_s > 0:
                part = (second_s - first_s) / (on_first_s + on_second_s)
                return first_s + part * on_first_s
            break
        return max(first_s, second_s)

    def bettered(self, seen: _Seen, at: _Beginning) -> bool:
        """Whether a partial schedule seen before dominates this one: the same nodes on the same devices, and nothing
        later. If not, this one is added to `seen`.

        Only nodes that a remaining node reads are compared, and moves of their tensors.
        """
        open_nodes = [
            node
            for node in range(len(self._problem.nodes))
            if at.done >> node & 1 and any(not at.done >> reader & 1 for reader in self._problem.readers[node])
        ]
        came = [(key, come_s) for key, come_s in at.came_s if self._problem.tensors[key[0]].producer in open_nodes]
        key = (at.done, tuple(at.device_of[node] for node in open_nodes), tuple(which for which, _ in came))
        values = (*at.free_s, *(at.ends_s[node] for node in open_nodes), *(come_s for _, come_s in came), at.last_s)
        known = seen.setdefault(key, [])
        if any(all(a <= b for a, b in zip(other, values, strict=True)) for other in known):
            return True
        known[:] = [other for other in known if not all(b <= a for a, b in zip(other, values, strict=True))]
        known.append(values)
        return False
