"""Figures 3, 4 and 5 of the GP paper: the tightening of one layer, alpha by alpha; Figures 7 and 8: S(x)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.report.results import Row
from benchmarks.splits.networks import board_devices
from shisha_rt.papers.gp.geometric.geometric import GeometricSplit, geometric_split
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.papers.gp.shared import split_layer

LAYER: Final = SplitLayer("conv", {"H": 112.0, "W": 112.0, "C": 16.0, "k": 1.0, "N": 32.0, "s": 1.0}, "C")
"""The layer of Figure 3."""
KS: Final = (1, 2, 5, 10, 17, 50, 100, 200, 1000)
_RUNS: Final = 5


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """`wall_s`: the least wall time of `found`."""

    title: str
    problem: SplitProblem
    found: GeometricSplit
    again: GeometricSplit
    wall_s: float


def layer_traces() -> list[LayerTrace]:
    """Figure 3 on two and Figure 5 on three of the board's devices; and with the ratio of costs implied by the paper's
    14 to 2.
    """
    board = board_devices()
    implied = (_proportional("fpga", 1e-6), _proportional("gpu", 7e-6))
    return [
        _traced("3: FPGA and GPU of the board", (board["fpga"], board["gpu"])),
        _traced("3: a GPU of 7 times the FPGA's cost", implied),
        _traced("5: CPU, GPU and FPGA of the board", (board["cpu"], board["gpu"], board["fpga"])),
        _traced("5: costs 14, 7 and 1", (_proportional("cpu", 14e-6), implied[1], implied[0])),
    ]


def trace_row(trace: LayerTrace) -> Row:
    """A row for one trace: GP, condensed again, and the best whole shares."""
    best = split_layer(trace.problem, trace.problem.layers[0])
    answers = (("GP", trace.found), ("condensed again", trace.again))
    layer = trace.problem.layers[0]
    costs = {
        name: layer_cost(trace.problem, layer, answer.rounded.shares[0])
        for name, answer in answers
        if answer.rounded is not None
    }
    assert best is not None
    return {
        "figure": trace.title,
        "devices": "/".join(device.name for device in trace.problem.devices),
        "steps": len(trace.found.steps),
        "alpha": f"{trace.found.steps[-1].alpha[0]:.3g}",
        "wall ms": 1e3 * trace.wall_s,
        **{f"{name}: shares": _shares(its) for name, its in answers},
        "rounds": trace.again.rounds,
        "best whole shares": "/".join(map(str, best[0])),
        **{f"{name} us": 1e6 * cost for name, cost in costs.items()},
        "best us": 1e6 * best[1].value,
    }


def weights_rows() -> list[Row]:
    """Figure 8: norms of S - H on [0, 1], where H is 0 except at 1."""
    return [
        {
            "k": k,
            "L1": 1 / (2 * k + 1),
            "L2": 1 / math.sqrt(4 * k + 1),
            "L2 of 10 points": float(np.linalg.norm(np.linspace(0, 1, 10, endpoint=False) ** (2 * k))),
            "L2 of 1000 points": float(np.linalg.norm(np.linspace(0, 1, 1000, endpoint=False) ** (2 * k))),
            "S(0.98)": 0.98 ** (2 * k),
            "paper": 0.12 if k == 100 else None,
        }
        for k in KS
    ]


def _proportional(name: str, each_s: float) -> SplitDevice:
    return SplitDevice(name, (Formula(Posynomial((Monomial(each_s, {"C": 1.0}),))),))


def _traced(title: str, devices: tuple[SplitDevice, ...]) -> LayerTrace:
    problem = SplitProblem((LAYER,), devices)
    wall_s = math.inf
    for _ in range(_RUNS):
        started = perf_counter()
        found = geometric_split(problem)
        wall_s = min(wall_s, perf_counter() - started)
    again = geometric_split(problem, again=True)
    return LayerTrace(title, problem, found, again, wall_s)


def _shares(found: GeometricSplit) -> str:
    if found.real is None or found.rounded is None:
        return str(found.reason)
    whole = "/".join(map(str, found.rounded.shares[0]))
    return f"{'/'.join(f'{units:.2f}' for units in found.real[0])} -> {whole}"
