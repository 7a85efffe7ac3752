"""What a router carries, counted by hand."""

from __future__ import annotations

import pytest

from shisha_rt.costs.links import AS_INPUT, CostTensor
from shisha_rt.papers.simulate.router import Router, RouterLoad, most_frames_per_s, router_load
from shisha_rt.plan.plan import Plan

TENSORS = (
    CostTensor("input", 100, AS_INPUT, (0,)),
    CostTensor("a", 10, 0, (1,)),
    CostTensor("skip", 1, 0, (1, 2)),
    CostTensor("output", 1000, 2, (3,)),
)


def test_a_chain_over_two_remote_places() -> None:
    plan = Plan.of([(0, 0, "h.0"), (1, 2, "g.0")])
    load = router_load(plan, ((1.0,), (1.0,)), TENSORS, frozenset(plan.places))
    # In: the request, what the first makes, what the second makes; out: what each reads, and the answer.
    assert load == RouterLoad(6, 2, 100 + 11 + 1000, 1000 + 100 + 11, 1111)


def test_copies_on_this_host_and_another_share_the_frames_by_their_speed() -> None:
    plan = Plan.chain([(0, 2, ["own", "h.0"])])
    load = router_load(plan, ((1.0, 3.0),), TENSORS, frozenset({"h.0"}))
    assert load == RouterLoad(4, 1, 100 + 1000 / 4, 1000 + 100 / 4, 1100)


def test_where_it_ends() -> None:
    router = Router(
        frame_s=0.3, part_s=0.1, card_bytes_per_s=100, memory_bytes=1000, relay_bytes=60, most_files=40, place_files=4
    )
    load = RouterLoad(6, 2, 10, 20, 20)
    assert load.ends(router) == pytest.approx({"loop": 2, "card": 5})
    assert load.most_places(router) == {"memory": 9, "files": 10}
    assert RouterLoad(4, 1, 0, 0, 1).ends(router)["card"] == float("inf")
    assert most_frames_per_s(512, 0.25) == 2048
