"""Simulated clusters of up to 10,000 places: `python -m benchmarks scale`. All figures are simulated or calculated.

Plans: clusters are drawn (`papers/simulate/clusters.py`), costs are a roofline's. Reported are CPU seconds of `exact`
with copies; the distance of its throughput from the proven bound, in percent; the throughput of one stage on the places
with room for the whole network, which is the least load for the router. The router: messages and bytes of the plan's
frames, and the frames per second at which the loop and a network card of 100 Gbit/s reach their limits
(`papers/simulate/router.py`).

The lifecycle: the real core in virtual time, with a copy of the model on each place (`rigs/virtual_daemon.py`). CPU
microseconds of the core per frame: with equal teams, with teams of five speeds, and while one place waits for its
worker. The loop: the same core behind a loop that takes measured times for events; frames per second, compared with
those of the places.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import matplotlib

matplotlib.use("Agg")

import typer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.paper_daemon import VirtualDaemon
from shisha_rt.core.lifecycle import events as ev
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.simulate.clusters import cluster, cluster_costs
from shisha_rt.papers.simulate.router import Router, most_frames_per_s, router_load
from shisha_rt.plan.rate import OBJECTIVES
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal

HOSTS: Final = (10, 30, 100, 300, 1000)
NETWORKS: Final = ("resnet50",)
ALL_NETWORKS: Final = ("resnet50", "vgg19", "densenet121", "shufflenet")
PLACES: Final = (10, 100, 1000)
ALL_PLACES: Final = (10, 100, 1000, 3000)
"""Starting is quadratic in the number of places: 10,000 would take minutes."""
SERVICE_S: Final = 0.1
"""Seconds of a frame on a place: about those of ResNet-50 on four cores."""
_FRAMES: Final = 1000
_LOST: Final = 200


def planned(network: str, hosts: int) -> Iterator[Row]:
    graph = read_model(resolve_model(f"zoo:{network}", print)).graph
    costs = cluster_costs(graph, group_layers(graph), cluster(hosts))
    for objective in OBJECTIVES:
        begun_s = time.process_time()
        solution = exact_plan(costs, Goal(replicate=True, objective=objective))
        taken_s = time.process_time() - begun_s
        if solution.plan is None or not solution.lower_bound_s:
            raise RuntimeError(f"{network} on {hosts} hosts: exact ended as {solution.outcome}")
        predicted = team_costs(costs)
        team_s = predicted.team_s(solution.plan)
        rate = predicted.rate(solution.plan)
        load = router_load(solution.plan, team_s, costs.tensors, costs.far)
        ends = load.ends(Router())
        per_s = 1 / rate.bottleneck_s
        yield {
            "network": network,
            "hosts": hosts,
            "places": len(costs.places),
            "kinds": len(kinds_of(costs)),
            "for": objective,
            "planner s": taken_s,
            "stages": len(solution.plan.stages),
            "places used": len(solution.plan.places),
            "frames/s": per_s,
            "in one stage, frames/s": _in_one_stage_per_s(costs) if objective == "throughput" else None,
            "latency ms": 1e3 * rate.latency_s,
            "from the bound %": 100 * (rate.value(objective) / solution.lower_bound_s - 1),
            "messages a frame": load.messages,
            "messages/s": load.messages * per_s,
            "out MB/s": load.out_bytes * per_s / 1e6,
            "in MB/s": load.in_bytes * per_s / 1e6,
            "loop ends at frames/s": ends["loop"],
            "card ends at frames/s": ends["card"],
            "512 frames end at frames/s": most_frames_per_s(Router().most_frames, rate.latency_s),
            "memory ends at places": load.most_places(Router())["memory"],
        }


def _in_one_stage_per_s(costs: Costs) -> float | None:
    """Frames per second of one stage; None: no place has room for the whole network."""
    plan = exact_plan(costs, Goal(most_stages=1, replicate=True)).plan
    return None if plan is None else 1 / team_costs(costs).rate(plan).bottleneck_s


def _nearly_equal(service_s: float, places: int) -> list[float]:
    """(places,): service times, up to 10% apart: with equal ones all places would end at the same moment each time."""
    return [service_s * (1 + index / places / 10) for index in range(places)]


def core_cost(places: int) -> Row:
    alike = VirtualDaemon(_nearly_equal(SERVICE_S, places))
    start_s = alike.begin()
    alike.serve(3 * places)
    alike_s = alike.serve(_FRAMES) / _FRAMES
    alike.lose()
    lost_s = alike.serve(_LOST) / _LOST
    unlike = VirtualDaemon([own * (1 + index % 5 / 2) for index, own in enumerate(_nearly_equal(SERVICE_S, places))])
    unlike.begin()
    unlike.serve(3 * places)
    unlike_s = unlike.serve(_FRAMES) / _FRAMES
    return {
        "places": places,
        "start, ms a place": 1e3 * start_s / places,
        "us a frame, alike": 1e6 * alike_s,
        "us a frame, of five speeds": 1e6 * unlike_s,
        "us a frame, one without a worker": 1e6 * lost_s,
    }


def saturated(places: int) -> Row:
    """Frames per second in virtual time, behind a loop that takes time for each event."""
    router = Router()
    loop_s: dict[type, float] = {ev.FrameArrived: router.frame_s, ev.PartDone: router.part_s}
    daemon = VirtualDaemon(_nearly_equal(SERVICE_S, places), loop_s)
    daemon.begin()
    daemon.serve(3 * places)
    begun_s, frames = daemon.now_s, max(_FRAMES, 4 * places)
    daemon.serve(frames)
    per_s = frames / (daemon.now_s - begun_s)
    return {
        "places": places,
        "places could, frames/s": sum(1 / own for own in _nearly_equal(SERVICE_S, places)),
        "loop could, frames/s": 1 / (router.frame_s + router.part_s),
        "served, frames/s": per_s,
    }


def _figure(plans: Sequence[Row], core: Sequence[Row], loop: Sequence[Row]) -> Figure:
    """The planner, its distance from the bound, the lifecycle's CPU time, and the limit of the loop."""
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


def scale(
    everything: Annotated[
        bool, typer.Option("--all", help="More networks, and the lifecycle with 3,000 places: ten minutes.")
    ] = False,
) -> None:
    """Clusters of up to 10,000 places, on paper: the planner, the lifecycle, and where one router ends."""
    report = Report("scale", {"simulated": "clusters, costs and time"})
    networks = ALL_NETWORKS if everything else NETWORKS
    plans = [row for network in networks for hosts in HOSTS for row in planned(network, hosts)]
    report.keep("Plans for clusters on paper (simulated)", plans, name="scale_plans")
    core = [core_cost(places) for places in (ALL_PLACES if everything else PLACES)]
    report.keep("The lifecycle's own CPU time, in virtual time", core, name="scale_core")
    loop = [saturated(places) for places in (10, 30, 60, 100, 150, 200, 300, 600, 1000)]
    report.keep("A loop that takes its time (simulated)", loop, name="scale_loop")
    report.save_figure("scale", _figure(plans, core, loop))
