"""The gain of another order of layers than the file's: `python -m benchmarks order`. By models only.

Each place has one stage, and cuts cost only what links do. "Gain": seconds per frame of the best chain over the file's
order, by `exact`, over those of the best chain that `ordered_plan` finds, with the limits of `plan --order best`; 1 if
it finds none that is better. "Proven": no order gains more. "At most": upper bound of the gain. Seconds are of CPU
time, of the search alone. Each row is for two to eight places, over a number of draws.

Networks of the zoo have the costs of a roofline. Drawn networks: a layer reads the one before it or another of the last
few, which gives parallel branches, and a third of the layers read one more from up to half of the network back (a long
skip); layers take a mean of 1 ms, lognormal (sigma 0.5), and make tensors of a mean of 0.4 MB, lognormal, too. Their
"file" order is arbitrary, unlike an exporter's.

Places are alike, or every other one takes twice as long, or they are alike and each on its own host behind a link of
1 Gbit/s and 0.2 ms each way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink, layer_needs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.spans import groups_of
from shisha_rt.model.zoo import resolve_model
from shisha_rt.papers.order.downsets import every_downset, group_needs
from shisha_rt.papers.order.ordered_plan import OrderLimits, ordered_plan
from shisha_rt.papers.simulate.clusters import tensors_of
from shisha_rt.papers.simulate.roofline import roofline_costs
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal

NETWORKS: Final = ("inception_v1", "inception_v2", "yolov3", "bert", "gpt2", "resnet50", "squeezenet", "densenet121")
PLACES: Final = (2, 3, 4, 6, 8)
KINDS: Final = ("alike", "unlike", "links")
DRAWN_LAYERS: Final = (20, 50, 100)
DRAWS: Final = 6
LIMITS: Final = OrderLimits(most_downsets=6000, most_work=1e9)
SEARCH_S: Final = 20.0
LINK: Final = OneWay(2e-4, 1.25e8)
BETTER: Final = 1 + 1e-6


class Worth(NamedTuple):
    """The gain for one network on some places. `most`: no order gains more."""

    gain: float
    most: float
    is_proven: bool
    seconds: float


def network_costs(name: str) -> Costs:
    """Costs of one place, from which `on_places` makes those of several."""
    graph = read_model(resolve_model(f"zoo:{name}", print)).graph
    layers = group_layers(graph)
    place = Place("p", cores=(), core_count=4, threads=4, speed=1.0, rank=1, memory="m", memory_bytes=None)
    costs = roofline_costs(graph, layers, Machine(name, "drawn", (Memory("m", 20e9),), (place,)))
    return replace(costs, transfer_s=np.zeros(len(layers) - 1), tensors=tensors_of(graph, layers))


def drawn_costs(layers: int, number: int) -> Costs:
    rng = np.random.default_rng([layers, number])
    readers: list[set[int]] = [set() for _ in range(layers)]
    inputs: set[int] = set()
    for layer in range(layers):
        reads = {layer - int(rng.geometric(0.5))}
        if rng.random() < 1 / 3:
            reads.add(layer - 2 - int(rng.integers(max(1, layers // 2))))
        for made in reads:
            (readers[made] if made >= 0 else inputs).add(layer)
    sizes = (4e5 * rng.lognormal(0, 0.5, layers + 1)).astype(int).tolist()
    made_by = [
        CostTensor(str(made), sizes[made], made, tuple(sorted(consumers)) or (layers,))
        for made, consumers in enumerate(readers)
    ]
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 0, 0) for i in range(layers)),
        places=(CostPlace("p", 1, None),),
        time_s=1e-3 * rng.lognormal(0, 0.5, (layers, 1)),
        transfer_s=np.zeros(layers - 1),
        tensors=(CostTensor("input", sizes[-1], AS_INPUT, tuple(sorted(inputs))), *made_by),
    )


def on_places(costs: Costs, count: int, kind: str) -> Costs:
    slower = [2.0 if kind == "unlike" and number % 2 else 1.0 for number in range(count)]
    hosts = [f"h{number}" if kind == "links" else None for number in range(count)]
    return replace(
        costs,
        places=tuple(CostPlace(f"p{number}", int(slower[number]), None, host) for number, host in enumerate(hosts)),
        time_s=costs.time_s[:, [0] * count] * np.array(slower),
        links=tuple(HostLink(host, LINK, LINK) for host in hosts if host is not None),
    )


def worth(costs: Costs) -> Worth:
    file_plan = exact_plan(costs).plan
    if file_plan is None:
        raise RuntimeError("exact found no chain")
    file_s = team_costs(costs).rate(file_plan).bottleneck_s
    begun_s = time.process_time()
    ordered = ordered_plan(
        costs,
        layer_needs(costs.tensors, len(costs.layers)),
        file_s,
        Goal(latency_states=0, should_stop=lambda: time.process_time() >= begun_s + SEARCH_S),
        limits=LIMITS,
    )
    seconds = time.process_time() - begun_s
    return Worth(file_s / ordered.bottleneck_s, file_s / ordered.lower_s, ordered.is_proven, seconds)


def row_of(name: str, drawn: Sequence[Costs], kind: str) -> Row:
    worths = [worth(on_places(costs, count, kind)) for costs in drawn for count in PLACES]
    gains, most, proven, seconds = zip(*worths, strict=True)
    return {
        "network": name,
        "layers": len(drawn[0].layers),
        "sets before cuts": median(map(_downsets, drawn)),
        "places": kind,
        "plans": len(worths),
        "another order is better": sum(gain > BETTER for gain in gains),
        "median gain": median(gains),
        "most gain": max(gains),
        "proven": sum(proven),
        "at most, median": median(most),
        "median s": median(seconds),
        "most s": max(seconds),
    }


def _downsets(costs: Costs) -> float:
    """Number of downsets, the sets of layers that can be before a cut; inf: more than are enumerated."""
    needs = layer_needs(costs.tensors, len(costs.layers))
    every = every_downset(group_needs(groups_of(len(costs.layers), costs.legal_cuts), needs), LIMITS.most_downsets)
    return float("inf") if every is None else len(every)


def _rows() -> Iterator[Row]:
    for name in NETWORKS:
        costs = network_costs(name)
        yield from (row_of(name, [costs], kind) for kind in KINDS)
    for layers in DRAWN_LAYERS:
        drawn = [drawn_costs(layers, number) for number in range(DRAWS)]
        yield from (row_of(f"drawn, {layers} layers", drawn, kind) for kind in KINDS)


def order() -> None:
    """On paper: by how much the best order of layers beats the file's, how often that is proven, and what it takes."""
    report = Report("order", {"simulated": "costs of a roofline, or drawn"})
    rows = []
    for row in _rows():
        print(f"{row['network']}, {row['places']}: up to {row['most gain']:.3f}", flush=True)
        rows.append(row)
    report.keep("Orders of layers, on paper", rows, ("gain: of frames a second; seconds of CPU time",))
