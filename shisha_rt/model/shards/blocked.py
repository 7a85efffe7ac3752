"""ONNX Runtime's blocked formats (NCHWc): which tensors of its optimised graphs are in one.

Channels lie in blocks of 8 or 16, depending on the processor, and their number is rounded up to full blocks. A blocked
tensor's shape reads (N, C, H, W) all the same. The block size does not matter for cuts at multiples of 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shisha_rt.model.graph import Graph, Operator

NCHWC: Final = "com.microsoft.nchwc"
BLOCK: Final = 16
"""A multiple of all block sizes."""


def blocked_tensors(operators: Iterable[Operator]) -> frozenset[str]:
    """The run-time tensors that are blocked; `operators` are a graph's, in its order.

    Operators outside the blocked domain hand on the format that they read.
    """
    blocked_names: set[str] = set()
    for operator in operators:
        if operator.domain == NCHWC:
            makes_blocked = operator.op_type != "ReorderOutput"
        else:
            makes_blocked = not blocked_names.isdisjoint(operator.inputs)
        if makes_blocked:
            blocked_names.update(filter(None, operator.outputs))
    return frozenset(blocked_names)


def reads_plain(graph: Graph, operator: Operator) -> bool:
    """Whether a blocked convolution reads a plain image, as it does if that has fewer channels than a block."""
    return operator.domain == NCHWC and operator.op_type == "Conv" and operator.inputs[0] not in graph.blocked
