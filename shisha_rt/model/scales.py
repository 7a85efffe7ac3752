"""Scales of 8-bit integers: each tensor that stands for reals in int8 has one, a power of two.

A tensor's integers go from -127 to 127, and each stands for itself times 2^exponent. So a change of scale is a shift,
as in VTA and in Glow's power-of-two quantisation, and floats hold all that is made of it exactly. The scale is the
smallest at which the largest magnitude on calibration frames fits; no other frame has a say in it.
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
_LEAST: Final = -120  # so that twice of it, a product's, still has a normal float64, and once of it a float32


def exponent(largest: float, steps: int = STEPS) -> int:
    """The smallest at which a finite magnitude of `largest` fits so many steps; of 0, 0."""
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
    """Tensors that come from a Relu, if by way of operators that make nothing negative of what is not."""
    names: set[str] = set()
    for operator in graph.operators:
        data = [name for name in operator.inputs if name in graph.tensors]
        if operator.op_type == "Relu" or (operator.op_type in _SELECTING and names.issuperset(data)):
            names |= {*operator.outputs}
    return frozenset(names)


def tensor_exponents(graph: Graph, largest: Mapping[str, float]) -> dict[str, int]:
    """Exponents of the tensors in `largest` (magnitudes on the calibration frames), where these are finite.

    What a Relu reads and makes has one scale, so that it is a maximum of integers. Where nothing else sees what it
    reads, that is the scale of what it makes: a Conv before it saturates only below 0, where the Relu cuts, and it is
    all the same whether both run as one, one after the other, or the Relu elsewhere.
    """
    largest_seen = dict(largest)
    handed_out = {tensor.name for tensor in graph.outputs}
    for operator in graph.operators:
        if operator.op_type == "Relu" and operator.outputs[0] in largest_seen:
            read, made = operator.inputs[0], operator.outputs[0]
            if len(graph.consumers[read]) == 1 and read not in handed_out:
                largest_seen[read] = largest_seen[made]
            else:
                largest_seen[made] = largest_seen[read]
    return {name: exponent(value) for name, value in largest_seen.items() if math.isfinite(value)}
