"""Simulated layer costs of a machine, from the operations and bytes of Im2Col and GEMM.

As in Shisha (2022), section 5, a convolution is two operators, one after the other: Im2Col, which writes every window
of its input as a column and only moves bytes, and GEMM. Each takes the longer of operations / rate and
bytes / bandwidth (the roofline). Light operators (Relu, pooling, ...) take no time, as in the paper.

Costs that add up over layers cannot depend on what else uses a memory. So a memory's bandwidth is divided among all its
places, as if all were always busy; a real place is faster while other places of its memory are idle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.layer_costs import additive
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.heavy import CONVOLUTIONS, operand_shapes
from shisha_rt.model.layers import Layer

CORE_FLOPS: Final = 8e9
"""Floating-point operations per second of one core at speed 1 (ours: 2 GHz, four per cycle)."""
ENTRY_LATENCY_S: Final = 20e-9
"""Latency from one place to another: Shisha, section 5."""


@dataclass(frozen=True, slots=True)
class Work:
    """A layer's work for each frame: bytes moved by Im2Col, and GEMM's operations and bytes."""

    im2col_bytes: int
    gemm_operations: int
    gemm_bytes: int

    def time_s(self, flops: float, bandwidth_bytes_per_s: float) -> float:
        """Seconds of both operators, one after the other."""
        gemm_s = max(self.gemm_operations / flops, self.gemm_bytes / bandwidth_bytes_per_s)
        return self.im2col_bytes / bandwidth_bytes_per_s + gemm_s


def work_of(graph: Graph, layer: Layer) -> Work:
    """Work of the layer's heavy operator, if any. A kernel of one element needs no Im2Col: its input is the matrix."""
    if not layer.macs:
        return Work(0, 0, 0)
    operators = graph.operators[layer.first_operator : layer.last_operator + 1]
    heavy = next(operator for operator in operators if operator.name == layer.name and operator.op_type == layer.op)
    weights = sum(graph.constants[name].size_bytes for name in heavy.inputs if name in graph.constants)
    read = sum(graph.tensors[name].size_bytes for name in heavy.inputs if name in graph.tensors)
    made = sum(graph.tensors[name].size_bytes for name in heavy.outputs if name)
    columns = _column_bytes(graph, heavy)
    return Work(
        im2col_bytes=read + columns if columns else 0,
        gemm_operations=2 * layer.macs,
        gemm_bytes=weights + (columns or read) + made,
    )


def roofline_costs(
    graph: Graph,
    layers: Sequence[Layer],
    machine: Machine,
    *,
    core_flops: float = CORE_FLOPS,
    entry_latency_s: float = ENTRY_LATENCY_S,
) -> Costs:
    """Simulated costs: a place's rate is `core_flops` x cores x speed, its bandwidth a share of its memory's.

    Entering a stage takes the latency, plus all tensors live at the cut over the full bandwidth of the slowest memory,
    as `transfer_s` does not depend on the places. A memory without a bandwidth moves bytes in no time.
    All cuts are legal, as no engine fuses layers here.
    """
    works = [work_of(graph, layer) for layer in layers]
    sharers = Counter(place.memory for place in machine.places)
    slowest = min((_bandwidth(machine, place) for place in machine.places), default=math.inf)

    def time_s(work: Work, place: Place) -> float:
        return work.time_s(
            core_flops * place.core_count * place.speed, _bandwidth(machine, place) / sharers[place.memory]
        )

    times_s = np.array([[time_s(work, place) for place in machine.places] for work in works])
    transfer_s = np.array([entry_latency_s + layer.in_bytes / slowest for layer in layers[1:]])
    return additive(layers, machine, times_s, transfer_s)


def _bandwidth(machine: Machine, place: Place) -> float:
    bandwidth = machine.bandwidth_bytes_per_s(place)
    return math.inf if bandwidth is None else bandwidth


def _column_bytes(graph: Graph, operator: Operator) -> int:
    """Bytes of Im2Col's matrix, a window of the input for each position of the output; 0 if there is no Im2Col.

    ConvTranspose counts as a Conv with the same output, as in `Layer.macs`.
    """
    if operator.op_type not in CONVOLUTIONS:
        return 0
    (batch, channels, *sizes), kernel, (_, _, *made_sizes) = operand_shapes(graph, operator)
    window = math.prod(kernel[2:])
    if window == 1:
        return 0
    element_bytes = graph.tensors[operator.inputs[0]].size_bytes // (batch * channels * math.prod(sizes))
    return batch * channels * window * math.prod(made_sizes) * element_bytes
