"""The fingerprint of a run of layers: equal for equal work, whatever its tensors and its model are called.

It covers operators, their attributes, how they are connected, and the shapes and datatypes of everything they read
and write. Two things it cannot see in the cleaned graph, and how it deals with them:

- What an engine really runs depends on the context: a Conv next to others in the blocked format has no reordering
  around it, one alone has. So what is measured is a segment of the engine's optimised graph, and the number of nodes
  that the engine runs for the layers is part of the fingerprint.
- `Operator.attributes` holds integers and lists of them only. Most other attributes that affect a cost (`auto_pad`)
  show in the shapes. A string that selects an algorithm for equal shapes (`mode` of Resize) does not: such operators
  share an entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.layers import Layer, operators_of
from shisha_rt.model.spans import ends

_VERSION: Final = 3  # raise it when a fingerprint comes to mean something else


def fingerprint(graph: Graph, layers: Sequence[Layer], first: int, last: int, engine_nodes: int) -> str:
    """Fingerprint of layers `first` to `last` (inclusive) as one unit.

    64 hexadecimal digits, the same in every process.

    `engine_nodes`: how many nodes the engine runs for them; 0 where it runs cuts of the cleaned graph itself.
    """
    start, end = operators_of(layers, first, last)
    numbers: dict[str, int] = {}
    operators = [_described(operator, numbers) for operator in graph.operators[start : end + 1]]
    _, handed_on = ends(graph, start, end)
    parts = [
        _VERSION,
        engine_nodes,
        operators,
        [_kind(graph, name) for name in numbers],
        [numbers[name] for name in handed_on],
    ]
    return _digest(parts)


def fingerprint_within(whole: str, *part: str | int) -> str:
    """Fingerprint of a part, such as an operator by its index, within layers whose fingerprint is `whole`."""
    return _digest([whole, *part])


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def _described(operator: Operator, numbers: dict[str, int]) -> list[object]:
    """Tensors and constants by numbers, given in the order in which they are first met; an absent input is -1."""
    names = (operator.inputs, operator.outputs)
    sides = [[numbers.setdefault(name, len(numbers)) if name else -1 for name in side] for side in names]
    return [operator.domain, operator.op_type, sorted(operator.attributes.items()), *sides]


def _kind(graph: Graph, name: str) -> list[object]:
    tensor: Tensor = graph.tensors.get(name) or graph.constants[name]
    return [name in graph.constants, tensor.datatype, tensor.shape]
