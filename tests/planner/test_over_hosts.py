"""Which of alike places stages are on, against every choice; and costs with a part of a link for each place."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

import numpy as np

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostPlace, Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import HostLink
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.over_hosts import over_hosts, with_parts_of_links
from tests.planner.every_far_chain import random_far_costs

ROUNDING = 1e-9
SEEDS = 120


def drawn(rng: random.Random, most_places: int = 6) -> Costs:
    """Places of up to three hosts, most of them alike, and often all with equal links."""
    costs = random_far_costs(rng, rng.randint(3, 6), 1)
    hosts = [rng.choice(["h0", "h1", "h2"]) for _ in range(rng.randint(2, most_places))]
    ways = [OneWay(rng.random(), rng.choice([1.0, 3.0, 10.0])) for _ in range(3)]
    same = rng.random() < 0.8
    links = (HostLink(host, ways[0 if same else n], ways[1 if same else n]) for n, host in enumerate(sorted({*hosts})))
    columns = np.array([[rng.uniform(1, 20) for _ in costs.layers] for _ in range(2)]).T
    if rng.random() < 0.2:
        columns[rng.randrange(len(columns)), 1] = math.nan
    return replace(
        costs,
        places=tuple(CostPlace(f"p{at}", 1, None, host) for at, host in enumerate(hosts)),
        time_s=columns[:, [int(rng.random() < 0.2) for _ in hosts]],
        transfer_s=np.zeros(len(costs.layers) - 1),
        links=tuple(links),
    )


def drawn_plan(rng: random.Random, costs: Costs, *, copies: bool = True) -> Plan:
    names = [place.name for place in costs.places]
    chosen = rng.sample(names, rng.randint(1, len(names)))
    count = rng.randint(1, min(len(chosen), len(costs.layers)))
    starts = (0, *sorted(rng.sample(range(1, len(costs.layers)), count - 1)), len(costs.layers))
    firsts = (0, *sorted(rng.sample(range(1, len(chosen)), count - 1)), len(chosen))
    return Plan.chain(
        (begin, end - 1, [(name,) for name in chosen[first : last if copies else first + 1]])
        for (begin, end), (first, last) in zip(pairwise(starts), pairwise(firsts), strict=True)
    )


def on_alike_places(costs: Costs, plan: Plan) -> Iterator[Plan]:
    """The plan with each choice of places that are alike."""
    kinds = [[costs.places[index].name for index in kind] for kind in kinds_of(costs)]
    used = [[name for name in kind if name in plan.places] for kind in kinds]
    for chosen in product(*(permutations(kind, len(of_kind)) for kind, of_kind in zip(kinds, used, strict=True))):
        pairs = (pair for olds, news in zip(used, chosen, strict=True) for pair in zip(olds, news, strict=True))
        yield renamed(plan, dict(pairs))


def renamed(plan: Plan, new: Mapping[str, str]) -> Plan:
    return Plan.chain(
        (stage.first, stage.last, [(new.get(name, name),) for name in stage.places]) for stage in plan.stages
    )


def test_the_busiest_link_mostly_carries_as_little_as_on_any_alike_places() -> None:
    lowered = least = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        costs = drawn(rng)
        plan, predicted = drawn_plan(rng, costs), team_costs(costs)
        before = predicted.rate(plan)
        moved = over_hosts(costs, plan)
        after = predicted.rate(moved)
        assert len(set(moved.places)) == len(plan.places), seed
        assert after.period_s == before.period_s, seed
        assert moved == plan or after.link_s < before.link_s, seed
        least_s = min(predicted.rate(other).link_s for other in on_alike_places(costs, plan))
        lowered += after.link_s < before.link_s
        least += after.link_s <= least_s * (1 + ROUNDING)
    assert lowered > SEEDS / 10
    assert least > 0.95 * SEEDS


def test_no_two_alike_places_are_better_swapped() -> None:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        costs = drawn(rng, most_places=12)
        plan, predicted = drawn_plan(rng, costs), team_costs(costs)
        moved = over_hosts(costs, plan)
        if moved == plan:
            continue
        least_s = predicted.rate(moved).link_s * (1 - ROUNDING)
        for kind in kinds_of(costs):
            for pair in combinations([costs.places[index].name for index in kind], 2):
                swapped = renamed(moved, dict(zip(pair, reversed(pair), strict=True)))
                assert predicted.rate(swapped).link_s >= least_s, (seed, pair)


def test_no_chain_is_slower_with_the_link_shared_than_with_a_part_of_it_for_each_place() -> None:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        costs = drawn(rng)
        whole_s = dict(zip(costs.link_of, np.nan_to_num(costs.time_s.sum(axis=0), nan=math.inf).tolist(), strict=True))
        on = {link.host: [name for name in whole_s if costs.link_of[name].host == link.host] for link in costs.links}
        most = max(map(len, on.values()))
        for fewer in with_parts_of_links(costs):
            kept = {place.name for place in fewer.places}
            for names in on.values():
                assert len(kept.intersection(names)) == min(most, len(names)), seed
                assert all(whole_s[name] <= whole_s[other] for name in kept & {*names} for other in {*names} - kept)
            assert not fewer.mixed or len(kinds_of(costs)) <= 2, seed
            plan = drawn_plan(rng, fewer, copies=False)
            shared_s = team_costs(costs).rate(plan).bottleneck_s
            apart_s = max(team_costs(fewer).rate(plan).period_s)
            assert shared_s <= apart_s * (1 + ROUNDING), seed
            assert most > 1 or shared_s == apart_s, seed
            most //= 2
        assert most == 0, seed
