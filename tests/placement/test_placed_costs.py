"""Layer costs where places have devices: against single placements of stages, and numbers worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from shisha_rt.costs.costs import stage_service_s
from shisha_rt.costs.costs_file import costs_object, parse_costs
from shisha_rt.costs.fit import spans_to_measure
from shisha_rt.costs.operator_costs import OperatorCosts, described_costs
from shisha_rt.machine.device import Device, Family, Fusion, Term, Transfer
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.layers import group_layers
from shisha_rt.model.spans import groups_of
from shisha_rt.placement import placed_costs
from shisha_rt.placement.placed_costs import PlacedCosts
from shisha_rt.placement.stage_problem import place_stage
from tests.costs.networks import chain

LAYER_COUNT: Final = 12
GRAPH: Final = chain([4] * (LAYER_COUNT + 1))  # Conv and Relu in each layer; tensors of 1 KiB
LAYERS: Final = group_layers(GRAPH)
OPERATOR_COUNT: Final = len(GRAPH.operators)

IN: Final = Transfer(20e-6, 100e6)  # 30 us for each of the tensors
ONE: Final = Device("one", "one.toml", "onnxruntime", "one", "fp32", transfer_in=IN)
OTHER: Final = Device("other", "other.toml", "openvino", "other", "fp32", transfer_in=IN)
PIM: Final = Device(
    "pim",
    "pim.toml",
    "onnxruntime",
    "pim",
    "bf16",
    families=(Family(frozenset(), (), ()),),
    transfer_in=IN,
    transfer_out=IN,
)


def place(name: str, *, speed: float = 1.0, threads: int = 1, memory: str = "ram") -> Place:
    return Place(name, (0,), 1, threads, speed, rank=1 if speed == 1 else 2, memory=memory)


def machine(*places: Place, time_scale: float = 1.0) -> Machine:
    return Machine("test", "test.toml", (Memory("ram"), Memory("narrow", 1e5)), places, time_scale=time_scale)


def costs_on(*devices: Device) -> OperatorCosts:
    """0.2 to 1 ms for each operator on each device, in no order."""
    generator = np.random.default_rng(len(devices))
    return OperatorCosts(devices, generator.uniform(0.2e-3, 1e-3, (OPERATOR_COUNT, len(devices))))


def placed(costs: OperatorCosts, *places: Place, time_scale: float = 1.0) -> PlacedCosts:
    return PlacedCosts(GRAPH, LAYERS, machine(*places, time_scale=time_scale), {on.name: costs for on in places})


def stage_s(costs: OperatorCosts, first: int, last: int) -> float:
    return place_stage(GRAPH, LAYERS[first].first_operator, LAYERS[last].last_operator, costs).cost_s


def test_a_stage_takes_what_its_placement_takes_slowed_as_its_place_is() -> None:
    costs = costs_on(ONE, OTHER)
    predictions = placed(costs, place("fast"), place("slow", speed=0.25, threads=2), time_scale=3.0)
    whole_s = stage_s(costs, 2, 7)
    assert predictions.modelled_s(2, 7, "fast") == pytest.approx(3 * whole_s)
    assert predictions.modelled_s(2, 7, "slow") == pytest.approx(3 * whole_s / 0.25)
    assert predictions.segment_cpu_s(2, 7, "fast") == pytest.approx(whole_s)
    assert predictions.segment_cpu_s(2, 7, "slow") == pytest.approx(2 * whole_s)


def test_a_narrow_memory_makes_a_stage_wait_for_its_bytes() -> None:
    predictions = placed(costs_on(ONE), place("narrow", memory="narrow"))
    weights_bytes = LAYER_COUNT * 4 * 4 * 3 * 3 * 4
    assert predictions.modelled_s(0, LAYER_COUNT - 1, "narrow") == pytest.approx((weights_bytes + 2 * 1024) / 1e5)


def test_with_one_device_layers_add_up_exactly() -> None:
    costs = costs_on(ONE)
    layer_costs = placed(costs, place("slow", speed=0.5)).costs()
    np.testing.assert_allclose(layer_costs.time_s[:, 0], 2 * costs.time_s[:, 0].reshape(LAYER_COUNT, 2).sum(axis=1))
    assert layer_costs.transfer_s.tolist() == [0.0] * (LAYER_COUNT - 1)
    assert [layer.name for layer in layer_costs.layers] == [layer.name for layer in LAYERS]


def test_a_device_that_runs_a_relu_only_behind_its_conv() -> None:
    """A layer is both; where each operator is a layer of its own, the Relu's cannot be run by itself."""
    npu = replace(PIM, families=(Family(frozenset({"Conv"}), (), (Term(1e-3),)),), fusions=(Fusion(("Conv", "Relu")),))
    costs = {"npu": described_costs(GRAPH, [npu])}
    whole = PlacedCosts(GRAPH, LAYERS, machine(place("npu")), costs)
    moving_s = 2 * (20e-6 + 512 / 100e6)
    assert whole.modelled_s(0, 0, "npu") == pytest.approx(1e-3 + moving_s)
    assert whole.modelled_s(2, 7, "npu") == pytest.approx(6e-3 + moving_s)
    assert np.isfinite(whole.costs().time_s).all()
    parted = PlacedCosts(GRAPH, group_layers(GRAPH, "operators"), machine(place("npu")), costs)
    assert parted.modelled_s(2, 5, "npu") == pytest.approx(2e-3 + moving_s)
    assert parted.modelled_s(3, 5, "npu") == math.inf
    assert np.isfinite(parted.costs().time_s[:, 0]).tolist() == [True, False] * LAYER_COUNT


@pytest.mark.parametrize("devices", [(ONE, OTHER), (ONE, PIM), (ONE, OTHER, PIM)])
def test_layers_add_up_to_what_stages_of_them_are_predicted_to_take(devices: tuple[Device, ...]) -> None:
    costs = costs_on(*devices)
    layer_costs = placed(costs, place("fast")).costs()
    errors = [
        stage_service_s(layer_costs, first, last, 0) / stage_s(costs, first, last) - 1
        for first in range(LAYER_COUNT)
        for last in range(first + 2, LAYER_COUNT)
    ]
    assert abs(float(np.median(errors))) < 0.01
    assert max(map(abs, errors)) < 0.05
    assert errors[LAYER_COUNT - 3] == pytest.approx(0, abs=0.01)  # the whole model


def test_places_that_are_alike_are_solved_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def counted(graph: Any, first: int, last: int, costs: Any) -> Any:
        asked.append((first, last))
        return place_stage(graph, first, last, costs)

    monkeypatch.setattr(placed_costs, "place_stage", counted)
    first = costs_on(ONE, OTHER)
    again = OperatorCosts(first.devices, first.time_s.copy())
    places = place("fast"), place("slow", speed=0.5)
    predictions = PlacedCosts(GRAPH, LAYERS, machine(*places), {"fast": first, "slow": again})
    time_s = predictions.costs().time_s
    np.testing.assert_allclose(time_s[:, 1], 2 * time_s[:, 0])
    assert len(asked) == len(set(asked)) == len(spans_to_measure(groups_of(LAYER_COUNT, range(LAYER_COUNT - 1))))


def test_a_layer_that_no_device_of_a_place_can_run() -> None:
    costs = costs_on(ONE, OTHER)
    costs.time_s[2 * 5 + 1] = math.inf  # the Relu of layer 5
    predictions = PlacedCosts(GRAPH, LAYERS, machine(place("a"), place("b")), {"a": costs, "b": costs_on(ONE)})
    time_s = predictions.costs().time_s
    assert np.flatnonzero(np.isnan(time_s[:, 0])).tolist() == [5]
    assert not np.isnan(time_s[:, 1]).any()
    assert time_s[:5, 0].sum() == pytest.approx(stage_s(costs, 0, 4), rel=0.05)
    assert time_s[6:, 0].sum() == pytest.approx(stage_s(costs, 6, 11), rel=0.05)
    assert predictions.modelled_s(4, 5, "a") == predictions.segment_cpu_s(0, 11, "a") == math.inf
    assert predictions.modelled_s(6, 11, "a") < math.inf


def test_the_object_is_what_the_reader_reads() -> None:
    costs = costs_on(ONE)
    costs.time_s[0] = math.inf
    layer_costs = placed(costs, replace(place("a"), memory_bytes=4096)).costs()
    again = parse_costs(json.dumps(costs_object(layer_costs)), "test")
    np.testing.assert_array_equal(again.time_s, layer_costs.time_s)
    assert (again.layers, again.places) == (layer_costs.layers, layer_costs.places)


def test_operators_that_take_no_time() -> None:
    costs = OperatorCosts((ONE,), np.zeros((OPERATOR_COUNT, 1)))
    time_s = placed(costs, place("a")).costs().time_s
    assert ((time_s > 0) & (time_s < 1e-8)).all()


def test_a_team_costs_what_the_best_placement_takes_on_its_devices() -> None:
    first, other = place("one"), place("other")
    alone, together = costs_on(ONE, OTHER), costs_on(ONE)
    layer_costs = PlacedCosts(
        GRAPH, LAYERS, machine(first, other), {"one": alone, "other": alone}, {("one", "other"): together}
    ).costs()
    (team,) = layer_costs.teams
    assert team.places == ("one", "other")
    np.testing.assert_array_equal(team.time_s, placed(together, first).costs().time_s[:, 0])
    np.testing.assert_array_equal(layer_costs.time_s, placed(alone, first, other).costs().time_s)
