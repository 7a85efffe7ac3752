"""Scales of int8 tensors: each tensor that represents reals in int8 has one, a power of two.

Its integers go from -127 to 127; each represents itself times 2^exponent. So a change of scale is a shift, as in VTA
and in Glow's power-of-two quantisation, and floats hold all results exactly. The scale is the smallest at which the
largest magnitude on the calibration frames fits; no other frame affects it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from shisha_rt.model.graph import Graph

STEPS: Final = 127
"""The largest integer, on either side of 0."""
SCALED_OPS: Final = frozenset({"Conv", "Relu"})
"""Operators that are computed in int8."""

_SELECTING: Final = frozenset({"AveragePool", "Concat", "Flatten", "GlobalAveragePool", "MaxPool", "Reshape"})
_LEAST: Final = -120  # 2^exponent is a normal float32; that of a product, 2^(2 * exponent), a normal float64


def exponent(largest: float, steps: int = STEPS) -> int:
    """The smallest exponent at which the finite magnitude `largest` fits into `steps`; 0 for a magnitude of 0."""
    if largest == 0:
        return 0
    fraction, power = math.frexp(largest / steps)
    return max(power - (fraction == 0.5), _LEAST)


def scaled_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors of floats that the operators of `SCALED_OPS` read and make, each once, in the order of the graph."""
    operators = (operator for operator in graph.operators if operator.op_type in SCALED_OPS)
    names = dict.fromkeys(name for operator in operators for name in (operator.inputs[0], operator.outputs[0]))
    return tuple(name for name in names if name in graph.tensors and graph.tensors[name].datatype == "FP32")


def never_negative(graph: Graph) -> frozenset[str]:
    """Tensors that come from a Relu, directly or through operators that keep non-negative values non-negative."""
    names: set[str] = set()
    for operator in graph.operators:
        data = operator.inputs if operator.op_type == "Concat" else operator.inputs[:1]
        if operator.op_type == "Relu" or (operator.op_type in _SELECTING and names.issuperset(data)):
            names |= {*operator.outputs}
    return frozenset(names)


def tensor_exponents(graph: Graph, largest: Mapping[str, float]) -> dict[str, int]:
    """Exponents of the tensors in `largest` (magnitudes on the calibration frames), if these are finite.

    A Relu's input and output have the same scale, so that it is a maximum of integers. If nothing else reads the input,
    the scale is the output's: a Conv before it then saturates only below 0, which the Relu cuts off, so it makes no
    difference whether both run fused, one after the other, or the Relu elsewhere. Otherwise it is the input's, as
    also if the input is another Relu's output that has taken over the scale of its own input.
    """
    largest_seen = dict(largest)
    handed_out = {tensor.name for tensor in graph.outputs}
    taken_over: set[str] = set()
    for operator in graph.operators:
        if operator.op_type == "Relu" and operator.outputs[0] in largest_seen:
            read, made = operator.inputs[0], operator.outputs[0]
            if len(graph.consumers[read]) == 1 and read not in handed_out and read not in taken_over:
                largest_seen[read] = largest_seen[made]
            else:
                largest_seen[made] = largest_seen[read]
                taken_over.add(made)
    return {name: exponent(value) for name, value in largest_seen.items() if math.isfinite(value)}
