"""Which operators, by their types, quantise, dequantise or multiply integers."""

from __future__ import annotations

from typing import Final

from shisha_rt.model.graph import Operator

DEQUANTIZE: Final = "DequantizeLinear"
_ROUNDING: Final = ("QuantizeLinear", "DynamicQuantize", "QLinear", "QGemm")
"""Prefixes of the types of operators that round to integers."""
_INTEGER_PRODUCTS: Final = ("ConvInteger", "MatMulInteger")
"""Prefixes of the types of operators that multiply integers and output the sums."""


def rounds(operator: Operator) -> bool:
    """Whether it rounds floats to integers: engines whose floats differ slightly may then differ by a whole step."""
    return operator.op_type.startswith(_ROUNDING)


def depends_on_engine(operator: Operator) -> bool:
    """Whether engines may differ by more than float rounding: the operator rounds to integers, or multiplies them.

    On x86 processors without VNNI an engine may add two products of 8-bit integers in 16 bits, with saturation.
    """
    return rounds(operator) or operator.op_type.startswith(_INTEGER_PRODUCTS)
