"""Plans over hosts: time of `exact`, distance from its bound`: `python -m benchmarks links`.

Costs are drawn. Layer i passes a tensor to layer i + 1, and a third of the layers one to a later layer, too (a skip, up
to a quarter of the network); tensors have a mean of 0.4 MB, lognormal; layers take a mean of 1 ms, lognormal (sigma
0.3). Hosts have eight places each. Alike hosts have links of 1 Gbit/s and 0.2 ms; unlike ones links of 0.5 to 4 Gbit/s
and 0.1 to 1 ms, and their places take 1 to 2.4 times as long.

"Over the bound": seconds per frame (or the latency) of the plan over the lower bound, minus 1. Seconds are of CPU time,
in one thread.

Small instances of up to seven layers and four places are compared with all chains, for throughput: if `exact` states a
proven plan, whether it is the best; otherwise, how far it is from the bound, and from the true best.

"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.outcome import Outcome
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from tests.planner.every_far_chain import every_far_chain, random_far_costs

LAYER_S: Final = 1e-3
TENSOR_BYTES: Final = 400_000
GBIT_BYTES: Final = 1.25e8
INSTANCES: Final = 500
SAME: Final = 1e-9
PLACES_A_HOST: Final = 8


@dataclass(frozen=True, slots=True)
class LinkedSize:
    layers: int
    hosts: int
    alike: bool
    copies: bool = False
    objective: Objective = "throughput"
    draws: int = 3
    places: int = PLACES_A_HOST


SIZES: Final = tuple(
    LinkedSize(200, 8, alike, copies, objective)
    for alike in (True, False)
    for copies in (False, True)
    for objective in OBJECTIVES
)


def drawn(size: LinkedSize, number: int) -> Costs:
    rng = np.random.default_rng([size.layers, size.hosts, size.places, number])
    layers_s = LAYER_S * rng.lognormal(0, 0.3, size.layers)
    hosts = [f"host{host}" for host in range(size.hosts)]
    times = [1.0 if size.alike else 1 + 0.2 * host for host in range(size.hosts)]
    speeds = [(1.0, 2e-4) if size.alike else (2.0 ** rng.uniform(-1, 2), rng.uniform(1e-4, 1e-3)) for _ in hosts]
    ways = [OneWay(float(latency_s), float(gbit) * GBIT_BYTES) for gbit, latency_s in speeds]
    places = tuple(
        CostPlace(f"{host}.{place}", 1 + (0 if size.alike else at), None, host)
        for at, host in enumerate(hosts)
        for place in range(size.places)
    )
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 0, 0) for i in range(size.layers)),
        places=places,
        time_s=np.stack([layers_s * slowness for slowness in np.repeat(times, size.places)], axis=1),
        transfer_s=np.zeros(size.layers - 1),
        tensors=tuple(_tensors(size.layers, rng)),
        links=tuple(HostLink(host, way, way) for host, way in zip(hosts, ways, strict=True)),
    )


def _tensors(layers: int, rng: np.random.Generator) -> Iterator[CostTensor]:
    for made in range(AS_INPUT, layers):
        readers = {made + 1}
        if rng.random() < 1 / 3 and made + 2 < layers:
            readers.add(min(layers - 1, made + 2 + int(rng.integers(1 + layers // 4))))
        yield CostTensor(str(made), int(TENSOR_BYTES * rng.lognormal(0, 0.5)), made, tuple(sorted(readers)))


def measured_links(size: LinkedSize) -> Row:
    """Medians over draws."""
    taken_s, over, outcomes, link_bound = [], [], [], 0
    for number in range(size.draws):
        costs = drawn(size, number)
        begun_s = time.process_time()
        solution = exact_plan(costs, Goal(replicate=size.copies, objective=size.objective))
        taken_s.append(time.process_time() - begun_s)
        if solution.plan is None or solution.lower_bound_s is None:
            raise RuntimeError(f"{size}: exact ended as {solution.outcome}")
        rate = team_costs(costs).rate(solution.plan)
        over.append(rate.value(size.objective) / solution.lower_bound_s - 1)
        outcomes.append(solution.outcome)
        link_bound += rate.is_link_bound
    return {
        "layers": size.layers,
        "places": size.hosts * size.places,
        "hosts": size.hosts,
        "links": "alike" if size.alike else "unlike",
        "copies": "yes" if size.copies else "no",
        "objective": size.objective,
        "draws": size.draws,
        "seconds": median(taken_s),
        "most s": max(taken_s),
        "proven": f"{outcomes.count(Outcome.OPTIMAL)} of {size.draws}",
        "link the slowest": link_bound,
        "over the bound %": 100 * median(over),
        "most over %": 100 * max(over),
    }


def enumerated(instances: int, *, copies: bool) -> Row:
    """`exact` against every chain, over small instances; instances without a plan are drawn again."""
    proven = best = number = 0
    over_bound, over_best = [0.0], [0.0]
    for _ in range(instances):
        plan = None
        while plan is None:
            rng, number = random.Random(number), number + 1
            costs = random_far_costs(rng, rng.randint(1, 7), rng.randint(1, 4))
            solution = exact_plan(costs, Goal(replicate=copies))
            plan = solution.plan
        least_s = min(chain.period_s for chain in every_far_chain(costs, len(costs.places), copies=copies))
        found_s, bound_s = team_costs(costs).rate(plan).bottleneck_s, solution.lower_bound_s or 0.0
        is_best = found_s <= least_s * (1 + SAME)
        if solution.outcome is Outcome.OPTIMAL:
            proven, best = proven + 1, best + is_best
        else:
            over_bound.append(found_s / bound_s - 1 if bound_s else math.inf)
            over_best.append(0.0 if is_best else found_s / least_s - 1)
    return {
        "copies": "yes" if copies else "no",
        "instances": instances,
        "proven": proven,
        "of these the best": best,
        "not proven": instances - proven,
        "of these best, too": over_best[1:].count(0.0),
        "most over the bound %": 100 * max(over_bound),
        "most over the best %": 100 * max(over_best),
    }


def links() -> None:
    """Plans over hosts on paper: seconds of CPU time, the distance from the bound."""
    report = Report("links", {"costs": "drawn"})
    rows = [measured_links(size) for size in SIZES]
    small = [enumerated(INSTANCES, copies=copies) for copies in (False, True)]
    report.keep(
        "Plans over hosts", rows, ["drawn costs; over the bound: of the plan's value over a proven lower bound, less 1"]
    )
    report.keep(
        "Small instances, against every chain",
        small,
        ["for throughput; most over: of those that are not proven"],
        name="links_enumerated",
    )
