"""A chain of convolutions as a `Graph`, built without a file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shisha_rt.model.graph import Graph, Operator, Tensor


def chain(channels: Sequence[int], *, prefix: str = "", size: int = 8, group: int = 1) -> Graph:
    """3x3 Conv and Relu for each neighbouring pair of `channels`; every tensor is size x size."""
    tensors = {f"{prefix}t0": Tensor(f"{prefix}t0", (1, channels[0], size, size), "FP32")}
    constants: dict[str, Tensor] = {}
    operators: list[Operator] = []
    for i, (before, after) in enumerate(itertools.pairwise(channels), start=1):
        source, inner, target, kernel = (f"{prefix}{name}" for name in (f"t{i - 1}", f"c{i}", f"t{i}", f"w{i}"))
        constants[kernel] = Tensor(kernel, (after, before // group, 3, 3), "FP32")
        for name in (inner, target):
            tensors[name] = Tensor(name, (1, after, size, size), "FP32")
        attributes: dict[str, int | tuple[int, ...]] = {"group": group, "pads": (1, 1, 1, 1)}
        operators.append(Operator(f"{prefix}conv{i}", "Conv", "", (source, kernel), (inner,), attributes))
        operators.append(Operator(f"{prefix}relu{i}", "Relu", "", (inner,), (target,), {}))
    ends = tensors[f"{prefix}t0"], tensors[f"{prefix}t{len(channels) - 1}"]
    return Graph("chain", tuple(operators), ends[:1], ends[1:], tensors, constants)
