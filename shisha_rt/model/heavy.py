"""Heavy operators, on which a network spends its time: convolutions and matrix products, of floats and of integers.

Each has two operands, an image and a kernel or two matrices, but not always at the same positions: operators on
integers may have scales and zero points between them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shisha_rt.model.graph import Graph, Operator

Shape = tuple[int, ...]

CONVOLUTIONS: Final = frozenset({"Conv", "ConvInteger", "ConvTranspose", "FusedConv", "QLinearConv"})
HEAVY: Final = CONVOLUTIONS | {
    "DynamicQuantizeMatMul",
    "FusedGemm",
    "FusedMatMul",
    "Gemm",
    "MatMul",
    "MatMulBnb4",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QGemm",
    "QLinearMatMul",
}
_SECOND_AT: Final = MappingProxyType({"QGemm": 3, "QLinearConv": 3, "QLinearMatMul": 3})
"""Position of the second operand if it is not 1. The first is at 0."""


def operand_shapes(graph: Graph, operator: Operator) -> tuple[Shape, Shape, Shape]:
    """Shapes of a heavy operator: image (batch, channels, ...), kernel as in ONNX, result; or both matrices and result.

    They are the shapes that the operator reads, whatever the format in which ONNX Runtime stores a tensor.
    """
    first, second, made = (
        graph.tensor(name).shape
        for name in (operator.inputs[0], operator.inputs[_SECOND_AT.get(operator.op_type, 1)], operator.outputs[0])
    )
    if operator.attributes.get("channels_last", 0):
        first, made = ((shape[0], shape[-1], *shape[1:-1]) for shape in (first, made))
    if operator.op_type in ("MatMulBnb4", "MatMulNBits"):  # weights are packed: in bytes, or bytes of blocks of columns
        second = first[-1], made[-1]
    return first, second, made
