"""ONNX Runtime's blocked formats (NCHWc), in its optimised graphs: which tensors are in them.

Channels lie in blocks of 8 or 16, as the processor has it, and their count is rounded up to full blocks. Shapes say
nothing of it: that of a blocked tensor reads as (N, C, H, W). Pure shapes here; which of the two it is does not matter
for what is cut at multiples of 16.
"""

from __future__ import annotations

from typing import Final

from shisha_rt.model.graph import Graph, Operator

NCHWC: Final = "com.microsoft.nchwc"
BLOCK: Final = 16
"""A multiple of all blocks."""


def blocked_tensors(graph: Graph) -> frozenset[str]:
    """The tensors of run time that are blocked: operators of all formats hand on what they read."""
    blocked_names: set[str] = set()
    for operator in graph.operators:
        if operator.domain == NCHWC:
            makes_blocked = operator.op_type != "ReorderOutput"
        else:
            makes_blocked = not blocked_names.isdisjoint(operator.inputs)
        if makes_blocked:
            blocked_names.update(filter(None, operator.outputs))
    return frozenset(blocked_names)


def reads_plain(graph: Graph, operator: Operator) -> bool:
    """Whether a blocked convolution takes an image with fewer channels than a block as it is."""
    return operator.domain == NCHWC and operator.op_type == "Conv" and operator.inputs[0] not in blocked_tensors(graph)
