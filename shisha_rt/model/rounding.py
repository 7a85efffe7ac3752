"""Operators between integers and the reals that they stand for, by their types."""

from __future__ import annotations

from typing import Final

from shisha_rt.model.graph import Operator

DEQUANTIZE: Final = "DequantizeLinear"
_ROUNDING: Final = ("QuantizeLinear", "DynamicQuantize", "QLinear", "QGemm")
"""How the types of operators begin that round to integers."""
_INTEGER_PRODUCTS: Final = ("ConvInteger", "MatMulInteger")
"""How the types of operators begin that multiply integers and hand on their sums."""


def rounds(operator: Operator) -> bool:
    """Whether it makes integers of reals: an engine that computes these a little otherwise may be a step off then."""
    return operator.op_type.startswith(_ROUNDING)


def depends_on_engine(operator: Operator) -> bool:
    """Whether engines may differ in it by more than floats' roundings: it rounds to integers, or multiplies them.

    On x86 processors without VNNI an engine may add two products of 8-bit integers in 16 bits, and cut off what is
    beyond.
    """
    return rounds(operator) or operator.op_type.startswith(_INTEGER_PRODUCTS)
