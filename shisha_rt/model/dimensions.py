"""The dimensions of an operator, in which cost formulas are written.

Matrix products and convolutions are described alike, as `batch` products of (rows, inner) by (inner, columns): the four
multiplied are the number of multiply-adds, and batch * inner * columns the elements of the second operand. A
convolution is the product that im2col makes of it, one for each group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, get_args

from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.heavy import CONVOLUTIONS, HEAVY, Shape, operand_shapes

ProductDimension = Literal["batch", "rows", "inner", "columns"]
Dimension = Literal[ProductDimension, "elements_in", "elements_out", "bytes_in", "bytes_out"]

PRODUCT_DIMENSIONS: Final[tuple[ProductDimension, ...]] = get_args(ProductDimension)
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)


def dimensions(graph: Graph, operator: Operator) -> Mapping[Dimension, int]:
    """Sizes of what an operator reads (weights included) and makes; of a heavy one, its dimensions as a product too."""
    read = [graph.tensor(name) for name in operator.inputs if name]
    made = [graph.tensor(name) for name in operator.outputs if name]
    sizes: dict[Dimension, int] = {
        "elements_in": sum(math.prod(tensor.shape) for tensor in read),
        "elements_out": sum(math.prod(tensor.shape) for tensor in made),
        "bytes_in": sum(tensor.size_bytes for tensor in read),
        "bytes_out": sum(tensor.size_bytes for tensor in made),
    }
    if operator.op_type in HEAVY:
        multiply = _convolution if operator.op_type in CONVOLUTIONS else _matrix_product
        sizes.update(zip(PRODUCT_DIMENSIONS, multiply(operator, *operand_shapes(graph, operator)), strict=True))
    return sizes


def channel_counts(graph: Graph, operator: Operator) -> tuple[int, int]:
    """Input channels and filters of a Conv or ConvTranspose, over all of its groups."""
    image, _, made = operand_shapes(graph, operator)
    return image[1], made[1]


def _matrix_product(operator: Operator, left: Shape, right: Shape, out: Shape) -> tuple[int, int, int, int]:
    """If the second operand is a single matrix, all leading dimensions of the first one count as rows."""
    inner = left[-2] if operator.attributes.get("transA", 0) and len(left) > 1 else left[-1]
    columns = out[-1] if len(right) > 1 else 1
    batch = math.prod(out[:-2]) if len(right) > 2 and len(left) > 1 else 1
    return batch, math.prod(out) // max(1, batch * columns), inner, columns


def _convolution(operator: Operator, image: Shape, kernel: Shape, out: Shape) -> tuple[int, int, int, int]:
    """Conv has a kernel (K, C/group, R, S); ConvTranspose, which multiplies before it spreads, (C, K/group, R, S)."""
    groups = operator.integer("group", 1)
    if operator.op_type == "ConvTranspose":
        return groups, image[0] * math.prod(image[2:]), kernel[0] // groups, math.prod(kernel[1:])
    return groups, out[0] * math.prod(out[2:]), math.prod(kernel[1:]), kernel[0] // groups
