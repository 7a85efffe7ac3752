"""Figure 2(b), times of transfers, and Figure 8, times of single operators: from the device descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.dcg.board import MADE_FROM, SEQUENCES
from benchmarks.report.results import Row
from shisha_rt.costs.device_costs import operator_cost_s, transfer_cost_s
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph, Operator, Tensor

ELEMENTS: Final = tuple(2**power for power in range(10, 21))
WIDTH: Final = 512
STATED_ELEMENTS: Final = 2**15
"""64 KiB in elements of 2 bytes: the size for which the text of section 2.3 states a ratio."""


def transfer_rows(devices: Sequence[Device]) -> list[Row]:
    """Figure 2(b)."""
    cpu, _, pim = devices
    rows: list[Row] = []
    for elements in ELEMENTS:
        tensor = Tensor("moved", (elements,), "FP32")
        to_pim_s, from_pim_s = transfer_cost_s(tensor, cpu, pim), transfer_cost_s(tensor, pim, cpu)
        rows.append(
            {
                "elements": elements,
                "bytes moved": 2 * elements,
                "CPU to PIM ms": 1e3 * to_pim_s,
                "PIM to CPU ms": 1e3 * from_pim_s,
                "ratio": from_pim_s / to_pim_s,
                "costs": MADE_FROM,
            }
        )
    return rows


def operator_rows(devices: Sequence[Device]) -> list[Row]:
    """Figure 8: (p x 512) + (p x 512), and (p x 512) x (512 x 512)."""
    rows: list[Row] = []
    for figure, op, second in (("8(a)", "Add", None), ("8(b)", "MatMul", (WIDTH, WIDTH))):
        for p in SEQUENCES:
            graph = _alone(op, (p, WIDTH), second or (p, WIDTH))
            cpu_s, cpu_p, pim = (operator_cost_s(graph, graph.operators[0], device) for device in devices)
            rows.append(
                {
                    "figure": figure,
                    "operator": op,
                    "p": p,
                    "CPU_S ms": 1e3 * cpu_s,
                    "CPU_P ms": 1e3 * cpu_p,
                    "PIM ms": 1e3 * pim,
                    "CPU_P over CPU_S": cpu_s / cpu_p,
                    "PIM over CPU_S": cpu_s / pim,
                    "PIM over CPU_P": cpu_p / pim,
                    "costs": MADE_FROM,
                }
            )
    return rows


def _alone(op: str, first: tuple[int, ...], second: tuple[int, ...]) -> Graph:
    """An operator of two matrices; its result is (p, WIDTH), like its first operand."""
    shapes = {"a": first, "b": second, "y": first}
    tensors = {name: Tensor(name, shape, "FP32") for name, shape in shapes.items()}
    operator = Operator(op, op, "", ("a", "b"), ("y",), {})
    return Graph(op, (operator,), (tensors["a"], tensors["b"]), (tensors["y"],), tensors, {})
