"""How the layers of a model may be split: worked out once, when the model is compiled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from msgspec import structs

from shisha_rt.model.graph import Graph
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.shards.rewrite import halves, split_run, splittable
from shisha_rt.model.shards.shards import Join
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.model.split import AXES, Axis, KeptWhole, Splittable

_OPEN: Final = "sizes of its tensors depend on the data"

_USUAL_MACS: Final = 4
_MACS: Final[Mapping[str, int]] = MappingProxyType({"LRN": 300, "LogSoftmax": 50, "Softmax": 50})
"""Time of one output element of these operators, in multiply-adds of a convolution; of all others, `_USUAL_MACS`."""


def splits_of(
    graph: Graph, node_layers: Sequence[int], legal_cuts: Collection[int], layer_macs: Sequence[int]
) -> tuple[tuple[Splittable, ...], tuple[KeptWhole, ...]]:
    """Find how each group of layers with a heavy operator, and each pair of neighbouring groups, may be split along
    every axis; for single groups also why not.

    `graph` is the one that stages are cut from, `node_layers` (operators,) the layer of each, `layer_macs` (layers,)
    the multiply-adds of each.
    """
    operators: dict[int, list[int]] = {}
    for operator, layer in enumerate(node_layers):
        operators.setdefault(layer, []).append(operator)
    groups = groups_of(max(node_layers, default=-1) + 1, legal_cuts)

    def answers(span: Span) -> Iterator[Splittable | KeptWhole]:
        numbers = sorted(operator for layer in range(span[0], span[1] + 1) for operator in operators.get(layer, ()))
        nodes = [graph.operators[number] for number in numbers]
        if not any(node.op_type in HEAVY for node in nodes):
            return
        names = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        is_open = any(graph.tensors[name].open_axes for name in names & graph.tensors.keys())
        macs = sum(layer_macs[span[0] : span[1] + 1])
        for axis in AXES:
            answer = _OPEN if is_open else _answer(graph, numbers, span, axis, macs)
            yield answer if isinstance(answer, Splittable) else KeptWhole(*span, axis, answer)

    alone = [answer for span in groups for answer in answers(span)]
    pairs = [answer for (first, _), (_, last) in pairwise(groups) for answer in answers((first, last))]
    splittables = tuple(answer for answer in (*alone, *pairs) if isinstance(answer, Splittable))
    return splittables, tuple(answer for answer in alone if isinstance(answer, KeptWhole))


def _answer(graph: Graph, operators: Sequence[int], span: Span, axis: Axis, macs: int) -> Splittable | str:
    """How the layers can be split, or why not. An exception is only a reason: the network can be served without."""
    try:
        answer = splittable(graph, operators, *span, axis)
        if isinstance(answer, str) or not (answer.joined or answer.summed):
            return answer
        in_halves = split_run(graph, operators, axis, halves(answer.units, answer.block))
    except (IndexError, KeyError, ValueError) as error:
        return f"its operators could not be followed ({type(error).__name__}: {error})"
    join_macs = _join_macs(graph, in_halves.join)
    return structs.replace(answer, join_part=join_macs / max(1, join_macs + macs))


def _join_macs(graph: Graph, join: Join) -> int:
    """Estimated time of the join, in multiply-adds of a convolution, from the sizes of its outputs."""
    operators = [graph.operators[index] for index in join.operators]
    made = [(name, operator.op_type) for operator in operators for name in operator.outputs if name]
    if join.sum is not None:
        made.append((join.sum.tensor, "Sum"))
    return sum(_MACS.get(kind, _USUAL_MACS) * math.prod(graph.tensors[name].shape) for name, kind in made)
