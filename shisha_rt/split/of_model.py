"""How the layers of a model may be split, told once, when the model is compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from shisha_rt.graph.graph import Graph
from shisha_rt.graph.heavy import HEAVY
from shisha_rt.graph.spans import Span, groups_of
from shisha_rt.plan.split import AXES, KeptWhole, Splittable
from shisha_rt.split.rewrite import splittable

_OPEN: Final = "sizes of its tensors depend on the data"


def splits_of(
    graph: Graph, node_layers: Sequence[int], legal_cuts: Collection[int]
) -> tuple[tuple[Splittable, ...], tuple[KeptWhole, ...]]:
    """Of each group of layers with a heavy operator, and of pairs of neighbours, along every axis.

    `graph` is the one that stages are cut from, `node_layers` (operators,) the layer of each.
    """
    operators: dict[int, list[int]] = {}
    for operator, layer in enumerate(node_layers):
        operators.setdefault(layer, []).append(operator)
    groups = groups_of(max(node_layers, default=-1) + 1, legal_cuts)
    found: list[Splittable] = []
    kept: list[KeptWhole] = []

    def look(span: Span, *, say: bool) -> None:
        its = sorted(one for layer in range(span[0], span[1] + 1) for one in operators.get(layer, ()))
        if not any(graph.operators[one].op_type in HEAVY for one in its):
            return
        open_ended = any(graph.tensors[name].open_axes for one in its for name in _passing(graph, one))
        for axis in AXES:
            answer = _OPEN if open_ended else splittable(graph, its, *span, axis)
            if isinstance(answer, Splittable):
                found.append(answer)
            elif say:
                kept.append(KeptWhole(*span, axis, answer))

    for span in groups:
        look(span, say=True)
    for (first, _), (_, last) in pairwise(groups):
        look((first, last), say=False)
    return tuple(found), tuple(kept)


def _passing(graph: Graph, operator: int) -> Iterator[str]:
    its = graph.operators[operator]
    return (name for name in (*its.inputs, *its.outputs) if name in graph.tensors)
