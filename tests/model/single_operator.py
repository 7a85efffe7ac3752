"""A graph of one operator, for what depends on its shapes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shisha_rt.model.graph import Graph, Operator, Tensor

Shape = tuple[int, ...]


def single_operator(
    op_type: str,
    inputs: Sequence[Shape],
    output: Shape,
    attributes: Mapping[str, int] = MappingProxyType({}),
    *,
    datatype: str = "FP32",
    domain: str = "",
) -> Graph:
    """Inputs x0, x1, ... are graph inputs; its output is `y`."""
    tensors = {f"x{i}": Tensor(f"x{i}", shape, datatype) for i, shape in enumerate(inputs)}
    operator = Operator("op", op_type, domain, tuple(tensors), ("y",), attributes)
    made = Tensor("y", output, datatype)
    return Graph("single", (operator,), tuple(tensors.values()), (made,), {**tensors, "y": made}, {})
