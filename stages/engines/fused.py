"""To which operator the time of a node counts that an engine fused from several operators."""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.model.graph import Graph
from shisha_rt.model.heavy import HEAVY


def host(graph: Graph, operators: Sequence[int]) -> int:
    """The first heavy operator, as it takes most of the time; if there is none, the first operator."""
    return next((i for i in operators if graph.operators[i].op_type in HEAVY), operators[0])
