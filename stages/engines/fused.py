"""Which operator a node that an engine fused from several of them is accounted to."""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.model.graph import Graph
from shisha_rt.model.heavy import HEAVY


def host(graph: Graph, operators: Sequence[int]) -> int:
    """The first heavy one, which most of the time is spent on, whatever comes before it; else the first."""
    return next((i for i in operators if graph.operators[i].op_type in HEAVY), operators[0])
