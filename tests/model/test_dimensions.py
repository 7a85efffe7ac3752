"""An operator's dimensions, by hand and against the multiply-adds that layers count."""

from __future__ import annotations

import math

import pytest

from shisha_rt.model.dimensions import PRODUCT_DIMENSIONS, dimensions
from shisha_rt.model.layers import group_layers
from tests.model.single_operator import Shape, single_operator


def _scaled(first: Shape, second: Shape) -> list[Shape]:
    """Operands on integers: a scale and a zero point behind each, of the result too."""
    return [first, (), (), second, (), (), (), ()]


PRODUCTS = [
    # op, inputs, output, attributes, (batch, rows, inner, columns)
    ("MatMul", [(8, 512), (512, 64)], (8, 64), {}, (1, 8, 512, 64)),
    ("MatMul", [(2, 8, 512), (512, 64)], (2, 8, 64), {}, (1, 16, 512, 64)),
    ("MatMul", [(1, 12, 8, 64), (1, 12, 64, 9)], (1, 12, 8, 9), {}, (12, 8, 64, 9)),
    ("MatMul", [(8, 64), (12, 64, 9)], (12, 8, 9), {}, (12, 8, 64, 9)),
    ("MatMul", [(64,), (64, 9)], (9,), {}, (1, 1, 64, 9)),
    ("MatMul", [(8, 64), (64,)], (8,), {}, (1, 8, 64, 1)),
    ("MatMul", [(64,), (64,)], (), {}, (1, 1, 64, 1)),
    ("Gemm", [(8, 512), (2, 512), (2,)], (8, 2), {"transB": 1}, (1, 8, 512, 2)),
    ("Gemm", [(512, 8), (512, 2)], (8, 2), {"transA": 1}, (1, 8, 512, 2)),
    ("Conv", [(2, 16, 10, 10), (32, 16, 3, 3)], (2, 32, 8, 8), {}, (1, 128, 144, 32)),
    ("Conv", [(1, 16, 10, 10), (32, 4, 3, 3)], (1, 32, 8, 8), {"group": 4}, (4, 64, 36, 8)),
    ("ConvTranspose", [(1, 16, 5, 5), (16, 8, 2, 2)], (1, 8, 10, 10), {}, (1, 25, 16, 32)),
    ("ConvInteger", [(1, 16, 10, 10), (32, 4, 3, 3)], (1, 32, 8, 8), {"group": 4}, (4, 64, 36, 8)),
    ("QLinearConv", _scaled((1, 16, 10, 10), (32, 4, 3, 3)), (1, 32, 8, 8), {"group": 4}, (4, 64, 36, 8)),
    ("QLinearConv", _scaled((1, 9, 10, 16), (32, 16, 3, 3)), (1, 7, 8, 32), {"channels_last": 1}, (1, 56, 144, 32)),
    ("MatMulInteger", [(2, 8, 512), (512, 64)], (2, 8, 64), {}, (1, 16, 512, 64)),
    ("QLinearMatMul", _scaled((12, 8, 64), (12, 64, 9)), (12, 8, 9), {}, (12, 8, 64, 9)),
    ("QGemm", _scaled((512, 8), (2, 512)), (8, 2), {"transA": 1, "transB": 1}, (1, 8, 512, 2)),
    ("MatMulBnb4", [(3, 8, 64), (288,), (9,)], (3, 8, 9), {"K": 64, "N": 9}, (1, 24, 64, 9)),
    ("MatMulNBits", [(3, 8, 64), (9, 2, 16), (18,)], (3, 8, 9), {"K": 64, "N": 9, "bits": 4}, (1, 24, 64, 9)),
]


@pytest.mark.parametrize(("op", "inputs", "output", "attributes", "expected"), PRODUCTS)
def test_products(
    op: str, inputs: list[Shape], output: Shape, attributes: dict[str, int], expected: tuple[int, ...]
) -> None:
    graph = single_operator(op, inputs, output, attributes)
    sizes = dimensions(graph, graph.operators[0])
    assert tuple(sizes[name] for name in PRODUCT_DIMENSIONS) == expected


@pytest.mark.parametrize(
    ("op", "inputs", "output", "attributes"), [row[:4] for row in PRODUCTS if "Transp" not in row[0]]
)
def test_their_product_is_the_layer_s_multiply_adds(
    op: str, inputs: list[Shape], output: Shape, attributes: dict[str, int]
) -> None:
    graph = single_operator(op, inputs, output, attributes)
    sizes = dimensions(graph, graph.operators[0])
    assert math.prod(sizes[name] for name in PRODUCT_DIMENSIONS) == group_layers(graph)[0].macs


def test_other_operators_have_sizes_only() -> None:
    graph = single_operator("Add", [(2, 3), (3,)], (2, 3), datatype="INT64")
    assert dimensions(graph, graph.operators[0]) == {
        "elements_in": 9,
        "elements_out": 6,
        "bytes_in": 72,
        "bytes_out": 48,
    }


def test_an_empty_product() -> None:
    graph = single_operator("MatMul", [(0, 4), (4, 0)], (0, 0))
    assert [dimensions(graph, graph.operators[0])[name] for name in PRODUCT_DIMENSIONS] == [1, 0, 4, 0]
