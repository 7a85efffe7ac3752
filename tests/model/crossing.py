"""What crosses a cut, worked out for each cut by itself."""

from __future__ import annotations

from shisha_rt.model.graph import Graph, Tensor
from shisha_rt.model.spans import ends


def live_after(graph: Graph, operator: int) -> tuple[Tensor, ...]:
    """Tensors that cross a cut behind an operator: graph inputs first, then in the order in which they are made."""
    early = (tensor.name for tensor in graph.inputs if graph.needed_until.get(tensor.name, operator) > operator)
    _, made = ends(graph, 0, operator)
    return tuple(graph.tensors[name] for name in (*early, *made))
