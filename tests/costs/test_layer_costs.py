"""Costs of layers and of stages, against numbers worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import stage_service_s
from shisha_rt.costs.costs_file import costs_object, parse_costs
from shisha_rt.costs.layer_costs import LayerCosts, RawCosts, RawTimes
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import CostTensor, HostLink, Links
from shisha_rt.machine.machine import Machine, Memory, Place, Remote
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import group_layers, operators_of
from shisha_rt.model.spans import groups_of, moved_bytes
from tests.costs.networks import chain

GRAPH = chain([4, 4, 8, 8, 4])
LAYERS = group_layers(GRAPH)
CPU_S = (1e-3, 2e-3, 3e-3, 4e-3)
TENSOR_BYTES = 4 * 8 * 8 * 4  # four channels


def place(name: str, *, speed: float = 1.0, memory: str = "ram", threads: int = 1) -> Place:
    return Place(name, (0,), 1, threads, speed, rank=1 if speed == 1 else 2, memory=memory)


def machine(*places: Place, time_scale: float = 1.0) -> Machine:
    memories = (Memory("ram"), Memory("narrow", 1e6))
    return Machine("test", "test.toml", memories, places, time_scale=time_scale)


def moved(graph: Graph, first: int, last: int) -> int:
    return moved_bytes(graph, *operators_of(LAYERS, first, last))


def raw(*places: Place, cuts: tuple[int, ...] = (0, 1, 2), cpu_s: tuple[float, ...] = CPU_S) -> RawCosts:
    """By the clock everything takes a tenth longer than its CPU time."""
    times = {p.name: RawTimes(p.threads, np.array(cpu_s), np.array(cpu_s) * 1.1, 1.0) for p in places}
    return RawCosts(GRAPH, LAYERS, groups_of(4, cuts), times)


def test_speed_and_time_scale_apply_on_use() -> None:
    fast, slow = place("fast"), place("slow", speed=0.25)
    plain = LayerCosts(raw(fast, slow), machine(fast, slow))
    np.testing.assert_allclose(plain.costs().time_s, np.array([CPU_S, np.array(CPU_S) * 4]).T)
    assert plain.modelled_s(1, 2, "slow") == pytest.approx(20e-3)
    assert plain.segment_cpu_s(1, 2, "slow") == pytest.approx(5e-3)
    scaled = LayerCosts(raw(fast, slow), machine(fast, slow, time_scale=3))
    np.testing.assert_allclose(scaled.costs().time_s, 3 * plain.costs().time_s)


def test_power_of_an_emulated_machine_is_less_so_that_joules_are_the_same() -> None:
    described = replace(place("told"), power_w=12.0)
    costs = LayerCosts(raw(described, place("other")), machine(described, place("other"), time_scale=3)).costs()
    assert [measured.power_w for measured in costs.places] == [4.0, None]


def test_batches_take_their_part_of_single_frames_times() -> None:
    fast = place("fast")
    measured = replace(raw(fast), shared_ratio={4: {"fast": np.array([0.5, 0.5, 1.0, math.nan])}})
    costs = LayerCosts(measured, machine(fast)).costs()
    assert [batch.frames for batch in costs.batches] == [4]
    np.testing.assert_allclose(costs.batches[0].time_s[:, 0], [0.5e-3, 1e-3, 3e-3, math.nan])


def test_without_a_limited_bandwidth_the_sum_is_the_stage() -> None:
    slow = place("slow", speed=0.3)
    layer_costs = LayerCosts(raw(slow), machine(slow))
    for first, last in ((0, 0), (0, 3), (1, 2)):
        assert stage_service_s(layer_costs.costs(), first, last, 0) == pytest.approx(
            layer_costs.modelled_s(first, last, "slow")
        )


def test_several_threads_take_the_time_by_the_clock_but_are_paced_by_their_cpu_time() -> None:
    two, slow = place("two", threads=2), place("slow", speed=0.25, threads=2)
    layer_costs = LayerCosts(raw(two, slow), machine(two, slow))
    assert layer_costs.modelled_s(0, 0, "two") == pytest.approx(1.1e-3)
    assert layer_costs.modelled_s(0, 0, "slow") == pytest.approx(1e-3 / 2 / 0.25)


def test_a_narrow_memory_makes_a_stage_wait_for_its_bytes() -> None:
    narrow = place("narrow", memory="narrow")
    layer_costs = LayerCosts(raw(narrow), machine(narrow))
    whole_bytes = sum(weight.size_bytes for weight in GRAPH.constants.values()) + 2 * TENSOR_BYTES
    assert layer_costs.modelled_s(0, 3, "narrow") == pytest.approx(max(10e-3, whole_bytes / 1e6))


def test_inner_tensors_of_a_stage_are_not_moved() -> None:
    weights = [GRAPH.constants[f"w{i}"].size_bytes for i in range(1, 5)]
    assert moved(GRAPH, 0, 0) == weights[0] + 2 * TENSOR_BYTES
    assert moved(GRAPH, 1, 2) == weights[1] + weights[2] + TENSOR_BYTES + 2 * TENSOR_BYTES
    apart = sum(moved(GRAPH, i, i) for i in range(4))
    assert moved(GRAPH, 0, 3) < apart


def test_a_tensor_that_passes_by_is_not_moved_and_one_used_twice_once() -> None:
    operators = list(GRAPH.operators)
    operators[4] = replace(operators[4], inputs=("t2", "w3", "t1"))  # layer 2 reads t1 too
    skipping = replace(GRAPH, operators=tuple(operators))
    assert moved(skipping, 1, 1) == moved(GRAPH, 1, 1)
    assert moved(skipping, 2, 2) == moved(GRAPH, 2, 2) + TENSOR_BYTES
    assert moved(skipping, 1, 2) == moved(GRAPH, 1, 2)


def test_where_bandwidth_limits_everything_a_sum_lies_between_the_whole_and_its_parts() -> None:
    """What a cut costs cannot be told in times of layers: the fit takes the middle between long runs and short."""
    narrow = place("narrow", memory="narrow")
    layer_costs = LayerCosts(raw(narrow, cpu_s=(1e-4,) * 4), machine(narrow))
    whole_s = stage_service_s(layer_costs.costs(), 0, 3, 0)
    assert (
        layer_costs.modelled_s(0, 3, "narrow") < whole_s < sum(layer_costs.modelled_s(i, i, "narrow") for i in range(4))
    )


def test_where_bandwidth_limits_single_layers_only_long_runs_are_exact() -> None:
    """24 layers: alone their tensors make them wait, any run of at least four has enough to compute meanwhile."""
    graph = chain([4] * 25)
    layers = group_layers(graph)
    narrow = place("narrow", memory="narrow")
    times = RawTimes(1, np.full(24, 1.5e-3), np.full(24, 1.5e-3), 1.0)
    layer_costs = LayerCosts(RawCosts(graph, layers, groups_of(24, range(23)), {"narrow": times}), machine(narrow))
    assert layer_costs.modelled_s(3, 3, "narrow") > 1.7 * 1.5e-3
    np.testing.assert_allclose(layer_costs.costs().time_s[:, 0], 1.5e-3, rtol=1e-6)


def test_a_joined_group_is_divided_by_weight_and_its_cuts_are_nan() -> None:
    fast = place("fast")
    layer_costs = LayerCosts(raw(fast, cuts=(0, 2), cpu_s=(1e-3, 6e-3, 4e-3)), machine(fast))
    assert [layer.weight for layer in LAYERS[1:3]] == [LAYERS[1].weight, 2 * LAYERS[1].weight]
    costs = layer_costs.costs()
    np.testing.assert_allclose(costs.time_s[:, 0], [1e-3, 2e-3, 4e-3, 4e-3])
    assert costs.legal_cuts == {0, 2}
    assert math.isnan(costs.transfer_s[1])
    assert costs.transfer_s[0] == costs.transfer_s[2] == 0


def test_a_group_without_weight_is_divided_equally() -> None:
    fast = place("fast")
    unweighted = tuple(replace(layer, weight=0) for layer in LAYERS)
    costs = LayerCosts(replace(raw(fast, cuts=(), cpu_s=(4e-3,)), layers=unweighted), machine(fast)).costs()
    np.testing.assert_allclose(costs.time_s[:, 0], [1e-3] * 4)


def test_bytes_and_weights_of_layers_and_memory_of_places() -> None:
    fast = replace(place("fast"), memory_bytes=12345)
    costs = LayerCosts(raw(fast), machine(fast)).costs()
    assert [layer.weight for layer in costs.layers] == [layer.weight for layer in LAYERS]
    assert [layer.weight_bytes for layer in costs.layers] == [layer.weight_bytes for layer in LAYERS]
    assert [layer.live_bytes for layer in costs.layers] == [TENSOR_BYTES * n for n in (1, 2, 2, 2)]
    assert costs.places[0].memory_bytes == 12345


def test_the_object_is_what_the_reader_reads() -> None:
    fast, slow = place("fast"), place("slow", speed=0.25)
    costs = LayerCosts(raw(fast, slow, cuts=(0, 2), cpu_s=CPU_S[:3]), machine(fast, slow)).costs()
    again = parse_costs(json.dumps(costs_object(costs)), "test")
    assert (again.layers, again.places) == (costs.layers, costs.places)
    np.testing.assert_array_equal(again.time_s, costs.time_s)
    np.testing.assert_array_equal(again.transfer_s, costs.transfer_s)


def test_a_team_costs_what_it_took_by_the_clock() -> None:
    first, other = place("one"), place("other")
    together = RawTimes(2, np.array(CPU_S) * 1.2, np.array(CPU_S) * 0.6, 1.0)
    costs = LayerCosts(replace(raw(first, other), teams={("one", "other"): together}), machine(first, other)).costs()
    (team,) = costs.teams
    assert team.places == ("one", "other")
    np.testing.assert_allclose(team.time_s, np.array(CPU_S) * 0.6)
    assert costs.time_s.shape == (4, 2)
    assert LayerCosts(raw(first, other), machine(first, other)).costs().teams == ()


def test_places_on_other_hosts_and_what_it_takes_to_get_there() -> None:
    here = place("here")
    far = [replace(place(name), remote=Remote(1)) for name in ("near", "apart", "unknown")]
    way = OneWay(1e-3, 1e6)
    tensors = (CostTensor("x", 100, -1, (0,)), CostTensor("y", 10, 3, (4,)))
    links = Links(tensors, {"near": HostLink("rack", way, way), "apart": HostLink("rack", way, way)})
    costs = LayerCosts(raw(here, *far), machine(here, *far), links).costs()
    assert [cost_place.host for cost_place in costs.places] == [None, "rack", "rack", "unknown"]
    assert (costs.tensors, costs.links) == (tensors, (HostLink("rack", way, way),))
    assert [cost_place.host for cost_place in LayerCosts(raw(here, *far), machine(here, *far)).costs().places][1:] == [
        "near",
        "apart",
        "unknown",
    ]
