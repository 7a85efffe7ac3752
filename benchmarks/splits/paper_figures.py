"""The GP paper's figures, each with its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.report.results import Row
from benchmarks.splits.single_layer import KS, LayerTrace, by_device

_COLOURS: Final[Mapping[str, str]] = {"cpu": "tab:red", "gpu": "tab:green", "fpga": "tab:blue"}
_EMULATED: Final = "devices described, on paper"


def tightening_figure(traces: Sequence[LayerTrace]) -> Figure:
    """Figures 3 to 5: shares, alpha by alpha, and the cost without the penalty."""
    figure = _new(13, 3.8 * len(traces))
    for row, trace in zip(figure.subplots(len(traces), 2, squeeze=False), traces, strict=True):
        steps = [int(str(its["step"])) for its in trace.steps]
        below = np.zeros(len(steps))
        for name, units in by_device(trace).items():
            row[0].bar(steps, units, bottom=below, color=_COLOURS[name], label=name)
            below = below + np.array(units)
        row[0].axhline(trace.problem.layers[0].units, color="red", linewidth=1)
        row[0].set_ylabel("channels")
        row[0].set_title(f"Figure {trace.title} ({_EMULATED})")
        row[1].plot(steps, [float(str(its["cost us"])) for its in trace.steps], color="tab:purple")
        row[1].set_ylabel("cost without penalty, µs")
        row[1].set_ylim(bottom=0)
        for axes in row:
            axes.axvline(len(trace.found.steps), color="tab:orange", linestyle="--", label="first that will do")
            axes.set_xlabel("step of alpha")
            axes.legend(fontsize=8)
    return figure


def weights_figure() -> Figure:
    """Figures 7 and 8."""
    figure = _new(12, 4.2)
    left, right = figure.subplots(1, 2)
    x = np.linspace(0, 1, 500)
    for k in KS:
        left.plot(x, x ** (2 * k), label=f"k = {k}")
    left.plot([0, 1, 1], [0, 0, 1], color="red", linewidth=2, label="step")
    left.set_title("Figure 7: S(x) = x^2k")
    left.set_xlabel("x")
    left.legend(fontsize=8)
    every_k = np.arange(1, 201)
    right.plot(every_k, 1 / np.sqrt(4 * every_k + 1), label="L2 norm of S - H")
    right.plot([100], [0.12], "x", color="red", label="printed: about 0.12")
    right.set_title("Figure 8: error")
    right.set_xlabel("k")
    right.set_ylim(bottom=0)
    right.legend(fontsize=8)
    return figure


def networks_figure(networks: Mapping[str, Sequence[Row]]) -> Figure:
    """Figure 9: shares of filters in percent, and speedup over the CPU alone."""
    figure = _new(13, 4.2 * len(networks))
    for (axes,), (network, rows) in zip(
        figure.subplots(len(networks), 1, squeeze=False), networks.items(), strict=True
    ):
        below = np.zeros(len(rows))
        for name, colour in _COLOURS.items():
            heights = np.array([float(str(row[f"{name} %"])) for row in rows])
            axes.bar(range(len(rows)), heights, bottom=below, color=colour, alpha=0.6, label=name)
            below = below + heights
        axes.set_xticks(range(len(rows)), [str(row["layer"]) for row in rows], rotation=30, fontsize=8)
        axes.set_ylabel("filters, %")
        axes.set_title(f"Figure 9: {network}, k = 100, one FPGA a layer, in sequence ({_EMULATED})")
        ups = axes.twinx()
        ups.plot(range(len(rows)), [float(str(row["over the CPU"])) for row in rows], "*-", color="black")
        ups.set_ylim(bottom=0)
        ups.set_ylabel("times as fast as the CPU alone (line)")
        axes.legend(fontsize=8, loc="lower left")
    return figure


def _new(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
