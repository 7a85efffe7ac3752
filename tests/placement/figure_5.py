"""The graph of Figure 5 (DCG-2022 and DCG-2024), and one operator more.

A -> B -> C -> D -> E and B -> D; device 1 cannot run A and C. The figure shows part of a network in which e4 is known
already; here F, which only device 0 runs, reads E, and E1 -> F0 is e4.
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.placement.dcg import Dcg, TensorKind, device_mapped_graph
from shisha_rt.placement.problem import Node, Problem, ProblemTensor

X: Final = TensorKind("FP32", 4096)
Y: Final = TensorKind("FP32", 64)
Z: Final = TensorKind("FP16", 64)
ONLY_0: Final = (1.0, math.inf)
BOTH: Final = (1.0, 1.0)


def figure_5() -> Dcg:
    nodes = zip("ABCDEF", (ONLY_0, BOTH, ONLY_0, BOTH, BOTH, ONLY_0), strict=True)
    transfer_s = ((0.0, 1.0), (1.0, 0.0))
    tensors = [(0, (1,)), (1, (2, 3)), (2, (3,)), (3, (4,)), (4, (5,))]
    problem = Problem(
        devices=("0", "1"),
        memories=("0", "1"),
        memory_of=(0, 1),
        nodes=tuple(Node(name, "", cost_s) for name, cost_s in nodes),
        tensors=tuple(ProblemTensor(f"t{i}", *ends, transfer_s) for i, ends in enumerate(tensors)),
    )
    return device_mapped_graph(problem, [X, X, Y, Y, Z])
