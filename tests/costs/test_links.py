"""What stages on other hosts take, by hand; and that the planners' tables say the same."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shisha_rt.costs.alike import among, kinds_of
from shisha_rt.costs.costs import Costs, why_no_other_order
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.costs_file import costs_object, parse_costs
from shisha_rt.costs.link_speed import LinkSpeed, OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, Crossings, HostLink, StageTraffic, layer_needs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.split import Split
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.plan import Plan
from tests.costs.linked import linked
from tests.wording import raised, says


def parse(value: object) -> Costs:
    return parse_costs(json.dumps(value), "C.json")


COSTS = parse(linked())


BASE = LinkSpeed(OneWay(1e-3, 1e8), OneWay(1e-3, 1e8))


@pytest.mark.parametrize(
    ("other", "unlike"),
    [
        (BASE, False),
        (LinkSpeed(OneWay(2.9e-3, 1e8), OneWay(1e-3, 1e8)), False),  # not twice as long
        (LinkSpeed(OneWay(3.1e-3, 1e8), OneWay(1e-3, 1e8)), True),
        (LinkSpeed(OneWay(1e-6, 1e8), OneWay(1e-6, 1e8)), False),  # less than 2 ms apart
        (LinkSpeed(OneWay(1e-3, 2e7), OneWay(1e-3, 1e8)), True),
        (LinkSpeed(OneWay(1e-3, 1e8), OneWay(1e-3, 2e7)), True),
    ],
)
def test_a_link_that_takes_far_longer_is_another(other: LinkSpeed, unlike: bool) -> None:
    assert BASE.is_unlike(other) == other.is_unlike(BASE) == unlike


def test_there_and_back() -> None:
    speed = HostLink("x", OneWay(1.0, 10.0), OneWay(0.5, 20.0)).speed
    assert speed.takes_s(100, 40) == 1.5 + 10 + 2
    assert speed.fields == {
        "there_latency_s": 1.0,
        "there_bytes_per_s": 10.0,
        "back_latency_s": 0.5,
        "back_bytes_per_s": 20.0,
    }


def test_another_order_needs_to_know_who_reads_what_and_cuts_that_cost_nothing() -> None:
    needs = layer_needs(COSTS.tensors, 4)
    assert list(map(sorted, needs)) == [[], [0], [1], [0, 2]]
    assert layer_needs((), 4) == ()
    assert why_no_other_order(COSTS, needs) is None
    assert why_no_other_order(COSTS, ())
    assert why_no_other_order(replace(COSTS, transfer_s=np.array([0, 0.1, 0])), needs)


class TestTraffic:
    @pytest.mark.parametrize(
        ("work", "there", "back"),
        [
            ([(0, 0)], 100, 10),
            ([(0, 1)], 100, 30),
            ([(1, 1)], 10, 20),
            ([(1, 3)], 10, 45),
            ([(3, 3)], 50, 5),
            ([(0, 3)], 100, 45),
            ([(0, 0), (3, 3)], 140, 15),
            ([(1, 1), (3, 3)], 50, 25),
        ],
    )
    def test_what_a_stage_reads_of_others_and_others_of_it(
        self, work: list[tuple[int, int]], there: int, back: int
    ) -> None:
        assert COSTS.crossings.of(tuple(work)) == StageTraffic(there, back)

    def test_the_table_of_all_runs_agrees(self) -> None:
        rng = random.Random(1)
        for _ in range(20):
            layers = rng.randint(1, 8)
            tensors = [
                CostTensor(
                    str(made),
                    rng.randint(0, 50),
                    made,
                    tuple(sorted(rng.sample(range(made + 1, layers + 1), rng.randint(1, layers - made)))),
                )
                for made in range(AS_INPUT, layers)
            ]
            starts = (0, *(cut for cut in range(1, layers) if rng.random() < 0.7), layers)
            crossings = Crossings(tensors)
            there, back = crossings.between(starts)
            for begin in range(len(starts) - 1):
                for end in range(begin + 1, len(starts)):
                    work = ((starts[begin], starts[end] - 1),)
                    assert crossings.of(work) == (there[begin, end], back[begin, end])


class TestTeams:
    def test_busy_for_the_longest_of_three_and_alone_for_their_sum(self) -> None:
        teams, plan = team_costs(COSTS), Plan.of([(0, 0, "l0"), (1, 2, "x0"), (3, 3, "y0")])
        assert teams.team_s(plan) == ((1.0,), (2.5,), (6.0,))  # back 0.5 + 40 / 20; there 1 + 50 / 10
        assert teams.alone_s(plan) == ((1.0,), (2.0 + 2.0 + 2.5,), (6.0 + 1.0 + 0.75,))
        rate = teams.rate(plan)
        assert (rate.bottleneck_s, rate.latency_s) == (6.0, 15.25)
        assert (rate.link_s, rate.link, rate.is_link_bound) == (5.0, "to y", False)

    def test_places_of_a_host_share_its_link(self) -> None:
        teams = team_costs(COSTS)
        copies = Plan.chain([(0, 3, (("x0",), ("x1",)))])
        rate = teams.rate(copies)  # each is sent every other frame: 100 bytes a frame
        assert rate.period_s == (5.5,)
        assert (rate.link_s, rate.link, rate.bottleneck_s) == (10.0, "to x", 10.0)
        assert rate.is_link_bound
        spread = teams.rate(Plan.chain([(0, 3, (("x0",), ("y0",)))]))
        assert (spread.link_s, spread.bottleneck_s) == (5.0, 5.5)
        # The place here serves 11 of 15 frames.
        shared = teams.rate(Plan.chain([(0, 3, (("x0",), ("l0",)))]))
        assert shared.link_s == pytest.approx(10 * 4 / 15)

    def test_what_was_measured_instead(self) -> None:
        teams, plan = team_costs(COSTS), Plan.of([(0, 2, "l0"), (3, 3, "y0")])
        assert teams.rate(plan, teams.team_s(plan)) == teams.rate(plan)
        slower = teams.rate(plan, [[3.0], [12.0]])
        assert slower.bottleneck_s == 12.0
        assert slower.latency_s == 3.0 + 2 * 7.75

    def test_a_far_place_is_in_no_team_and_has_no_shards(self) -> None:
        teams = team_costs(COSTS)
        assert teams.team_s(Plan.chain([(0, 3, (("x0", "x1"),))])) == ((math.inf,),)
        assert teams.shard_s(Split((1, 1), "channels", (1, 1), 0), ("x0",)) == math.inf
        assert teams.shard_s(Split((1, 1), "channels", (1, 1), 0), ("l0",)) < math.inf

    def test_a_host_without_a_link_costs_nothing(self) -> None:
        free = replace(COSTS, links=())
        assert team_costs(free).team_s(Plan.of([(0, 3, "x0")])) == ((4.0,),)
        assert kinds_of(free) == ((0,), (1, 2, 3))

    def test_an_evaluator_counts_links(self) -> None:
        plan = Plan.of([(0, 1, "x0"), (2, 3, "x1")])
        measurement = CostsEvaluator(COSTS).measurement_of(plan)
        assert measurement.service_s == (11.0, 4.0)
        assert (measurement.bottleneck_s, measurement.latency_s) == (13.0, 11 + 2 + 2 + 4 + 2 + 2.75)  # 130 bytes to x
        simulated = SimulatedEvaluator(COSTS).measure(Proposal(plan, ""))
        assert (simulated.bottleneck_s, simulated.latency_s) == (measurement.bottleneck_s, measurement.latency_s)
        assert simulated.took_s == 32 * 13.0 + measurement.latency_s


class TestKinds:
    def test_places_of_hosts_with_equal_links_are_alike(self) -> None:
        assert kinds_of(COSTS) == ((0,), (1, 2, 3))
        slower = linked()
        slower["links"][1]["back"]["latency_s"] = 0.6
        assert kinds_of(parse(slower)) == ((0,), (1, 2), (3,))

    def test_places_that_are_left_keep_their_links(self) -> None:
        fewer = among(COSTS, ["l0", "y0"], [1.0, 2.0])
        assert [link.host for link in fewer.links] == ["y"]
        assert fewer.tensors == COSTS.tensors
        assert [place.host for place in fewer.places] == [None, "y"]
        assert parse(costs_object(fewer)).links == fewer.links


class TestFile:
    def test_what_is_written_is_read_again(self) -> None:
        again = parse(costs_object(COSTS))
        assert (again.tensors, again.links, again.places) == (COSTS.tensors, COSTS.links, COSTS.places)

    @pytest.mark.parametrize(
        ("path", "value", "expected"),
        [
            (["places", 1, "host"], "", 'places[1].host = ""'),
            (["tensors"], [], "has `links` without `tensors`"),
            (["tensors", 1, "made"], 4, "tensors[1].made = 4: expected a layer, 0-3, or -1 for an input"),
            (["tensors", 1, "made"], -2, "tensors[1].made = -2"),
            (["tensors", 1, "readers"], [], "tensors[1].readers = []"),
            (
                ["tensors", 2, "readers"],
                [1],
                "tensors[2].readers has 1",
            ),
            (
                ["tensors", 2, "readers"],
                [5],
                "tensors[2].readers has 5",
            ),
            (["tensors", 1, "readers"], [1, 1], "tensors[1].readers has 1 twice"),
            (["tensors", 1, "name"], "image", 'tensors[1].name = "image": used twice, … tensors[0], expected …'),
            (["tensors", 1, "size_bytes"], -1, "tensors[1].size_bytes = -1"),
            (["links", 0, "host"], "z", 'links[0].host = "z": no place is'),
            (["links", 1, "host"], "x", 'links[1].host = "x": used twice'),
            (["links", 0, "there", "bytes_per_s"], 0, "links[0].there.bytes_per_s = 0: expected a number >= 1.0"),
            (["links", 0, "back", "latency_s"], -1, "links[0].back.latency_s = -1: expected a number >= 0.0"),
            (
                ["links", 0, "back", "extra"],
                1,
                "links[0].back.extra = 1: unknown key",
            ),
            (
                ["teams"],
                [{"places": ["x0", "x1"], "time_s": [1, 1, 1, 1]}],
                'teams[0].places has "x0", which is on',
            ),
        ],
    )
    def test_one_line_for_each_mistake(self, path: list[Any], value: object, expected: str) -> None:
        whole: Any = json.loads(json.dumps(linked()))
        at = whole
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        with raised(BadInput, Error.WRONG_VALUE) as caught:
            parse(whole)
        assert str(caught.value) == says(f"C.json: {expected}…")
