"""The edges of a DCG, one by one: what its counts, and the lists of a profiling run, are held against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from shisha_rt.placement.dcg import Dcg, Vertex, data_edges


class Edge(NamedTuple):
    """`da_edge` is the number of its attributes, None where nothing moves."""

    source: Vertex
    target: Vertex
    da_edge: int | None


START = Vertex(-1, -1)


def edges_of(dcg: Dcg) -> Iterator[Edge]:
    """Those from the start, those that carry data, and those to the end."""
    carried = list(data_edges(dcg.problem))
    reading, read = {consumer for *_, consumer in carried}, {producer for _, producer, _ in carried}
    every = [Vertex(operator, device) for operator, devices in enumerate(dcg.capable) for device in devices]
    yield from (Edge(START, vertex, None) for vertex in every if vertex.operator not in reading)
    for tensor, producer, consumer in carried:
        number = dcg.number[dcg.kind_of[tensor]]
        for source, target in product(dcg.capable[producer], dcg.capable[consumer]):
            yield Edge(Vertex(producer, source), Vertex(consumer, target), number[source][target])
    yield from (Edge(vertex, dcg.end, None) for vertex in every if vertex.operator not in read)
