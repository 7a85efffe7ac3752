"""Placement problems of a network over places that are one processor each: the paper's, and ours.

In PartitionTuner (Table 1), an operator or a group costs as much as if it were a partition by itself, including all
transfers in and out; nothing is paid between operators. With such fixed costs the least sum can be found branch by
branch. In our problem computing and moving are apart: a tensor costs a transfer, with its hand-over, only if it goes to
another place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shisha_rt.papers.partitiontuner.processors import INPUT, Passed, ProcessorCosts
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor


def whole_problem(costs: ProcessorCosts) -> Problem:
    """The paper's problem: costs include transfers, as measured or else as computed from the tensors."""
    places = range(len(costs.places))
    measured = {alone.place: alone for alone in costs.alone}
    around = _around(costs)

    def alone_s(node: int, place: int) -> float:
        if place in measured:
            return measured[place].time_s[node]
        return costs.time_s[node][place] + _moving_s(around, (node,), place)

    nodes = tuple(
        Node(name, op, tuple(alone_s(node, place) for place in places))
        for node, (name, op) in enumerate(zip(costs.names, costs.ops, strict=True))
    )
    groups = [
        Group(group.operators, group.device, group.time_s + _moving_s(around, group.operators, group.device))
        for group in costs.groups
        if group.device not in measured
    ]
    groups += [Group(group.operators, alone.place, group.time_s) for alone in costs.alone for group in alone.groups]
    return _problem(costs, nodes, groups, lambda out_s, in_s: 0.0)


def apart_problem(costs: ProcessorCosts) -> Problem:
    """Our problem, with moving apart: an input's first reader pays for it, an output's maker for the output."""
    places = range(len(costs.places))
    ends_s = [[0.0 for _ in places] for _ in costs.spans]
    for tensor in costs.passed:
        for place in places:
            if tensor.maker == INPUT and tensor.readers:
                ends_s[tensor.readers[0]][place] += tensor.in_s[place]
            if tensor.maker != INPUT and tensor.leaves:
                ends_s[tensor.maker][place] += tensor.out_s[place]
    nodes = tuple(
        Node(name, op, tuple(s + more for s, more in zip(times_s, more_s, strict=True)))
        for name, op, times_s, more_s in zip(costs.names, costs.ops, costs.time_s, ends_s, strict=True)
    )
    groups = tuple(
        Group(g.operators, g.device, g.time_s + math.fsum(ends_s[node][g.device] for node in g.operators))
        for g in costs.groups
    )
    return _problem(costs, nodes, groups, lambda out_s, in_s: out_s + in_s + costs.handover_s)


def _problem(
    costs: ProcessorCosts, nodes: Sequence[Node], groups: Sequence[Group], move_s: Callable[[float, float], float]
) -> Problem:
    """Build a problem with a memory for each place.

    `move_s`: cost of moving a tensor, from its times out of one place and into another.
    """
    places = range(len(costs.places))
    tensors = (
        ProblemTensor(
            tensor.name,
            tensor.maker,
            tensor.readers,
            tuple(
                tuple(0.0 if own == other else move_s(tensor.out_s[own], tensor.in_s[other]) for other in places)
                for own in places
            ),
        )
        for tensor in costs.passed
        if tensor.maker != INPUT and tensor.readers
    )
    return Problem(costs.places, costs.places, tuple(places), tuple(nodes), tuple(tensors), tuple(groups))


def _around(costs: ProcessorCosts) -> Sequence[Sequence[Passed]]:
    """(nodes,): the tensors that each node reads and computes."""
    passed: list[list[Passed]] = [[] for _ in costs.spans]
    for tensor in costs.passed:
        for node in tensor.readers if tensor.maker == INPUT else (tensor.maker, *tensor.readers):
            passed[node].append(tensor)
    return passed


def _moving_s(around: Sequence[Sequence[Passed]], nodes: Sequence[int], place: int) -> float:
    """Seconds to move tensors in and out of a partition of these nodes on one place."""
    tensors = {tensor.name: tensor for node in nodes for tensor in around[node]}
    return math.fsum(
        tensor.in_s[place] if tensor.maker not in nodes else tensor.out_s[place]
        for tensor in tensors.values()
        if tensor.maker not in nodes or tensor.leaves or any(reader not in nodes for reader in tensor.readers)
    )
