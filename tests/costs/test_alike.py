"""Which places are taken for the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shisha_rt.costs.alike import among, first_alike, kinds_of
from shisha_rt.costs.costs import CostTeam
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.machine.device import Device, Family, Term
from tests.planner.evaluators import costs_of


def test_places_that_nothing_tells_apart_are_of_a_kind() -> None:
    costs = costs_of([[1, 2, 1, 1], [2, 2, 2, None]], ranks=(1, 2, 2, 1))
    assert kinds_of(costs) == ((0, 2), (1,), (3,))


def test_only_a_memory_too_small_for_the_model_tells_places_apart() -> None:
    costs = costs_of([[1, 1, 1]], ranks=(1, 1, 1))
    layers = (replace(costs.layers[0], weight_bytes=8, live_bytes=2),)
    memories = (None, 10, 9)
    places = tuple(replace(p, memory_bytes=size) for p, size in zip(costs.places, memories, strict=True))
    assert kinds_of(replace(costs, layers=layers, places=places)) == ((0, 1), (2,))


def test_the_costs_of_some_places() -> None:
    team = CostTeam(("p0", "p1"), np.array([0.5]))
    costs = replace(costs_of([[1, 1, 1, 1, 2]], ranks=(1,) * 5), teams=(team,))
    fewer = among(costs, ["p4", "p1", "p2", "p3"], [1.0, 3.0, 1.0, 1.0])
    assert ([place.name for place in fewer.places], fewer.time_s.tolist()) == (["p4", "p1", "p2", "p3"], [[2, 3, 1, 1]])
    # p1 is emulated now, and p0 is not there: others of their kind are as good a team.
    assert [(kept.places, kept.time_s.tolist()) for kept in fewer.teams] == [(("p2", "p3"), [0.5])]
    assert among(costs, ["p0", "p4"], [1.0, 1.0]).teams == ()


def test_places_of_the_same_devices_and_costs() -> None:
    device = Device("one", "one.toml", "onnxruntime", "dram", "fp32", 1.0, (Family(frozenset(), (), (Term(2.0),)),))
    costs = OperatorCosts((device, replace(device, name="other")), np.array([[1.0, np.inf], [2.0, 4.0]]))
    same = OperatorCosts(costs.devices, costs.time_s.copy())
    others = {"slower": costs.slowed({"one": 2.0}), "fewer": OperatorCosts(costs.devices[:1], costs.time_s[:, :1])}
    others["fused"] = replace(costs, groups=(GroupCost((0, 1), 0, 2.5),))
    assert first_alike({"a": costs, **others, "b": same}) == {"a": "a", "b": "a"} | {name: name for name in others}
