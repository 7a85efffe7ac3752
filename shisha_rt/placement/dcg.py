"""The device-mapped graph (DCG-2022 and DCG-2024, sections 3.1 and 3.2.1): a network with a choice of devices.

It has a start node, a node for each pair of an operator and a device that can run it, an edge wherever data may go from
one such node to another, and an end node. Only edges between devices have a cost, and many have the same: it depends
only on the tensor's datatype and size, the source and the target device. So each distinct set of these attributes, a DA
edge, is profiled once.

The number of edges grows with the square of the devices: they are never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple, get_args

from shisha_rt.placement.problem import Assignment, Problem


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What a transfer's cost depends on besides its two devices; `datatype` is a name of `tensors`."""

    datatype: str
    size_bytes: int


Kind = TensorKind | tuple[tuple[float, ...], ...]
"""A problem file has no datatypes and sizes: the tensor's `transfer_s` is used instead."""

Between = Literal["memories", "devices"]
"""Which edges count as transfers: those between memories (ours), or, as in the papers, all between two devices."""
BETWEEN: Final[tuple[Between, ...]] = get_args(Between)


class DaEdge(NamedTuple):
    """Distinct attributes; `source` and `target` are devices."""

    kind: Kind
    source: int
    target: int


class Vertex(NamedTuple):
    """A node of the DCG: an operator (a node of the problem) on a device."""

    operator: int
    device: int


@dataclass(frozen=True)
class Dcg:
    """Made by `device_mapped_graph`.

    `capable` is (operators,): the devices of each, ascending. `moves` is (devices, devices): whether an edge from one
    to another is a transfer. `da_edges` lists the DA edges by number, in the order in which the edges are first met.
    `kind_of` is (tensors,), an index into the distinct kinds; `number` is (kinds, devices, devices): the number of the
    kind's DA edge from one device to another, None where there is none.
    """

    problem: Problem
    capable: tuple[tuple[int, ...], ...]
    moves: tuple[tuple[bool, ...], ...]
    da_edges: tuple[DaEdge, ...]
    kind_of: tuple[int, ...]
    number: Sequence[Sequence[Sequence[int | None]]]

    @property
    def end(self) -> Vertex:
        return Vertex(len(self.capable), -1)

    def crossed(self, assignment: Assignment) -> frozenset[int]:
        """The numbers of the DA edges on which a run with this assignment moves data."""
        edges = {
            self.number[self.kind_of[tensor]][assignment[producer]][assignment[consumer]]
            for tensor, producer, consumer in data_edges(self.problem)
        }
        return frozenset(number for number in edges if number is not None)


def device_mapped_graph(
    problem: Problem, kinds: Sequence[TensorKind] | None = None, between: Between = "memories"
) -> Dcg:
    """The DCG of a problem. `kinds` (tensors,), or None: unknown. Raises ValueError for another number of kinds."""
    of_tensor: Sequence[Kind] = [tensor.transfer_s for tensor in problem.tensors] if kinds is None else kinds
    if len(of_tensor) != len(problem.tensors):
        raise ValueError(f"{len(of_tensor)} kinds for {len(problem.tensors)} tensors")
    index_of = {kind: index for index, kind in enumerate(dict.fromkeys(of_tensor))}
    kind_of = tuple(index_of[kind] for kind in of_tensor)
    room_of = problem.memory_of if between == "memories" else range(len(problem.devices))
    moves = tuple(tuple(source != target for target in room_of) for source in room_of)
    capable = tuple(node.capable for node in problem.nodes)

    da_edges: list[DaEdge] = []
    number: list[list[list[int | None]]] = [[[None] * len(moves) for _ in moves] for _ in index_of]
    met = set()
    for tensor, producer, consumer in data_edges(problem):
        alike = kind_of[tensor], capable[producer], capable[consumer]
        if alike in met:
            continue
        met.add(alike)
        numbers = number[kind_of[tensor]]
        for source, target in product(capable[producer], capable[consumer]):
            if moves[source][target] and numbers[source][target] is None:
                numbers[source][target] = len(da_edges)
                da_edges.append(DaEdge(of_tensor[tensor], source, target))
    return Dcg(problem, capable, moves, tuple(da_edges), kind_of, number)


def data_edges(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """(tensor, producer, consumer) for each edge between operators, consumers in topological order."""
    for consumer, inputs in enumerate(problem.inputs):
        for tensor in inputs:
            yield tensor, problem.tensors[tensor].producer, consumer
