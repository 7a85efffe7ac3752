"""The figure of simulated clusters: the planner, its distance from the bound, the lifecycle's CPU, the loop's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

Rows = Sequence[Mapping[str, object]]


def scale_figure(plans: Rows, core: Rows, loop: Rows) -> Figure:
    """Draw rows of `benchmarks/paper/scale.py`."""
    figure = Figure(figsize=(11, 8.5), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.95)))
    figure.suptitle("Simulated: clusters, costs and time on paper")
    ((planner, gap), (cpu, end)) = figure.subplots(2, 2)
    for network in dict.fromkeys(row["network"] for row in plans):
        own = [row for row in plans if row["network"] == network and row["for"] == "throughput"]
        places = [row["places"] for row in own]
        planner.loglog(places, [row["planner s"] for row in own], "o-", label=str(network))
        gap.semilogx(places, [row["from the bound %"] for row in own], "o-", label=str(network))
    planner.set_ylabel("CPU time of the planner, s")
    planner.set_title("exact, throughput, with copies")
    gap.set_ylabel("seconds a frame above the bound, %")
    gap.set_ylim(bottom=0)
    gap.set_title("How near its plans are")
    for name in list(core[0])[2:]:
        cpu.loglog([row["places"] for row in core], [row[name] for row in core], "o-", label=name.partition(", ")[2])
    cpu.set_ylabel("CPU time of the lifecycle, us a frame")
    cpu.set_title("The lifecycle, in virtual time")
    for name in list(loop[0])[1:]:
        marks = "o" if name.startswith("served") else "-"
        end.loglog([row["places"] for row in loop], [row[name] for row in loop], marks, label=name.partition(",")[0])
    end.set_ylabel("frames a second")
    end.set_title("One loop, 621 us a frame, places of 100 ms a frame")
    for axes in (planner, gap, cpu, end):
        axes.set_xlabel("places")
        axes.grid(which="major", color="0.9")
        axes.legend(fontsize=8)
    return figure
