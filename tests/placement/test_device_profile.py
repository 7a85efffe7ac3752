"""From runs to costs: runs made up from known costs give these back, and what runs cannot tell is not made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from shisha_rt.costs.device_costs import operator_cost_s, transfer_cost_s
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device, Family, Precision, Term, Transfer
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.placement.device_profile import (
    DeviceTimes,
    Run,
    SegmentTime,
    device_times,
    runs_to_profile,
    transfer_of,
    with_measured,
)
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segments
from tests.costs.networks import chain
from tests.wording import raised

Floats = npt.NDArray[np.float64]

PRICES = (Transfer(3e-5, 2e8), Transfer(1e-5, 5e7), Transfer(0.0, 1e8))


def measured(name: str, precision: Precision = "fp32") -> Device:
    return Device(name, f"{name}.toml", "onnxruntime", name, precision)


A, B, C = map(measured, "abc")


def skipping() -> Graph:
    """Tensors of three sizes, and one that is read twice, the second time together with another."""
    graph = chain([4, 8, 16, 8])
    end = Tensor("y", (1, 8, 8, 8), "FP32")
    add = Operator("add", "Add", "", ("t3", "t1"), ("y",), {})
    return replace(graph, operators=(*graph.operators, add), outputs=(end,), tensors={**graph.tensors, "y": end})


def random_costs(graph: Graph, devices: Sequence[Device]) -> Floats:
    return np.random.default_rng(7).uniform(1e-4, 9e-4, (len(graph.operators), len(devices)))


def taken(
    graph: Graph,
    devices: Sequence[Device],
    assignment: Sequence[int],
    time_s: Floats,
    prices: Sequence[Transfer],
    noise: Callable[[], float] = lambda: 1.0,
) -> Run:
    """What a run takes where nothing but these costs and prices counts; all is thrice as slow while it is watched."""
    times = []
    brought: set[tuple[str, int]] = set()
    for part in segments(graph, 0, [devices[device].name for device in assignment]):
        device = assignment[part.first]
        own_s = time_s[part.first : part.last + 1, device]
        made = [name for name in part.inputs if name in graph.producer]
        new = {(name, device) for name in made if assignment[graph.producer[name]] != device} - brought
        brought |= new
        price, tensors = prices[device], [graph.tensors[name] for name, _ in new]
        entry_s = sum(price.latency_s + tensor.size_bytes / price.bandwidth_bytes_per_s for tensor in tensors)
        total_s = noise() * (float(own_s.sum()) + entry_s)
        times.append(SegmentTime(part.device, part.first, part.last, total_s, tuple(3 * own_s)))
    return tuple(times)


def fitted(
    graph: Graph,
    devices: Sequence[Device],
    time_s: Floats,
    prices: Sequence[Transfer] = PRICES,
    noise: Callable[[], float] = lambda: 1.0,
) -> OperatorCosts:
    runs = runs_to_profile(graph, devices)
    node_runs, edge_runs = (
        [taken(graph, devices, run.assignment, time_s, prices, noise) for run in those]
        for those in (runs.node_runs, runs.edge_runs)
    )
    times = device_times(graph, devices, node_runs, edge_runs)
    return with_measured(graph, devices, {device.name: known for device, known in zip(devices, times, strict=True)})


@pytest.mark.parametrize("devices", [(A, B), (A, B, C)])
@pytest.mark.parametrize("graph", [chain([4, 8, 16, 8, 4]), skipping()])
def test_costs_and_prices_come_back(graph: Graph, devices: Sequence[Device]) -> None:
    time_s = random_costs(graph, devices)
    costs = fitted(graph, devices, time_s)
    np.testing.assert_allclose(costs.time_s, time_s)
    for device, price in zip(costs.devices, PRICES, strict=False):
        assert device.transfer_in is not None
        assert device.transfer_in.latency_s == pytest.approx(price.latency_s, rel=1e-6, abs=1e-12)
        assert device.transfer_in.bandwidth_bytes_per_s == pytest.approx(price.bandwidth_bytes_per_s, rel=1e-6)


def test_with_noise_other_runs_are_still_foretold() -> None:
    graph, devices = chain([4, 8, 16, 32, 16, 8, 4] * 4), (A, B)
    time_s = random_costs(graph, devices)
    generator = np.random.default_rng(3)
    costs = fitted(graph, devices, time_s, noise=lambda: float(generator.normal(1.0, 0.02)))
    for assignment in generator.integers(2, size=(20, len(graph.operators))).tolist():
        placed = segments(graph, 0, [devices[device].name for device in assignment])
        true_s = sum(part.time_s for part in taken(graph, devices, assignment, time_s, PRICES))
        assert sum(segment_times_s(graph, placed, costs)) == pytest.approx(true_s, rel=0.05)


def test_noisy_edge_runs_come_out_as_measured_in_all() -> None:
    graph, devices = skipping(), (A, B)
    time_s = random_costs(graph, devices)
    generator = np.random.default_rng(4)
    runs = runs_to_profile(graph, devices)
    node_runs = [taken(graph, devices, run.assignment, time_s, PRICES) for run in runs.node_runs]
    edge_runs = [
        taken(graph, devices, run.assignment, time_s, PRICES, lambda: float(generator.uniform(0.9, 1.2)))
        for run in runs.edge_runs
    ]
    times = device_times(graph, devices, node_runs, edge_runs)
    costs = with_measured(graph, devices, {device.name: known for device, known in zip(devices, times, strict=True)})
    foretold_s = sum(
        sum(segment_times_s(graph, segments(graph, 0, [costs.devices[d].name for d in run.assignment]), costs))
        for run in runs.edge_runs
    )
    assert foretold_s == pytest.approx(sum(part.time_s for run in edge_runs for part in run))


def test_one_device_has_its_node_run_alone() -> None:
    graph = skipping()
    runs = runs_to_profile(graph, [A])
    assert (len(runs.node_runs), runs.edge_runs) == (1, ())
    time_s = random_costs(graph, [A])
    costs = fitted(graph, [A], time_s)
    np.testing.assert_allclose(costs.time_s, time_s)
    assert transfer_cost_s(graph.tensors["t1"], B, costs.devices[0]) == pytest.approx(0, abs=1e-12)


def test_each_device_is_a_memory_of_its_own_while_it_is_measured() -> None:
    shared = [replace(device, memory="dram") for device in (A, B)]
    assert runs_to_profile(skipping(), shared) == runs_to_profile(skipping(), [A, B])


def with_indices() -> Graph:
    """Its last operator makes whole numbers."""
    graph = chain([4, 8, 4, 16])
    end = Tensor("y", (1, 1, 8, 8), "INT64")
    last = Operator("last", "ArgMax", "", ("t3",), ("y",), {"axis": 1})
    return replace(graph, operators=(*graph.operators, last), outputs=(end,), tensors={**graph.tensors, "y": end})


def test_an_operator_that_a_device_cannot_run() -> None:
    graph, devices = with_indices(), (A, replace(B, datatypes=frozenset({"FP32"})))
    time_s = random_costs(graph, devices)
    time_s[-1, 1] = math.inf
    costs = fitted(graph, devices, time_s)
    np.testing.assert_allclose(costs.time_s, time_s)


def test_an_operator_that_none_can_run() -> None:
    devices = [replace(device, datatypes=frozenset({"FP32"})) for device in (A, B)]
    with raised(BadInput, Error.DEVICE_UNFIT, match=r"operator ArgMax \('last'\): no device .* a, b"):
        runs_to_profile(with_indices(), devices)


def test_no_price_is_below_zero() -> None:
    """Segments that take less than their operators did: the rest of the network is not made cheaper by it."""
    graph, devices = skipping(), (A, B)
    runs = runs_to_profile(graph, devices)
    time_s = random_costs(graph, devices)
    node_runs, edge_runs = (
        [taken(graph, devices, run.assignment, time_s * factor, [transfer_of(0, 0)] * 2) for run in those]
        for those, factor in ((runs.node_runs, 1.0), (runs.edge_runs, 0.5))
    )
    for times in device_times(graph, devices, node_runs, edge_runs):
        assert times.entry.latency_s == 0
        assert 2048 / times.entry.bandwidth_bytes_per_s == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("price", [Transfer(3e-5, 1e18), Transfer(0.0, 1e8)])
def test_one_size_tells_nothing_of_others_but_its_own_price(price: Transfer) -> None:
    graph, devices = chain([4, 4, 4, 4]), (A, B)
    costs = fitted(graph, devices, random_costs(graph, devices), (price, price))
    tensor = graph.tensors["t1"]
    expected_s = price.latency_s + tensor.size_bytes / price.bandwidth_bytes_per_s
    for source, target in (costs.devices, costs.devices[::-1]):
        assert transfer_cost_s(tensor, source, target) == pytest.approx(expected_s, rel=1e-6)


def test_bytes_are_counted_as_the_devices_precision_has_them() -> None:
    """Both in the fit and in the forecast, so it cancels."""
    graph, devices = chain([4, 8, 16, 8, 4]), (A, measured("b", "bf16"))
    costs = fitted(graph, devices, random_costs(graph, devices))
    tensor = graph.tensors["t2"]
    expected_s = PRICES[1].latency_s + tensor.size_bytes / PRICES[1].bandwidth_bytes_per_s
    assert transfer_cost_s(tensor, *costs.devices) == pytest.approx(expected_s, rel=1e-6)


def test_operators_that_the_profiler_did_not_see_share_alike() -> None:
    graph = chain([4, 4])
    (times,) = device_times(graph, [A], [(SegmentTime("a", 0, 1, 6e-4, (0.0, 0.0)),)], [])
    np.testing.assert_allclose(times.operators_s, [3e-4, 3e-4])


def test_described_devices_keep_their_formulas_and_all_their_order() -> None:
    graph = chain([4, 8])
    families = (Family(frozenset({"Conv"}), (), (Term(2e-9, (("elements_out", 1),)),)),)
    described = replace(C, families=families, transfer_in=PRICES[0], transfer_out=PRICES[1])
    times = DeviceTimes(np.array([1e-4, 2e-4]), transfer_of(1e-6, 1e-9))
    costs = with_measured(graph, (described, B), {"b": times})
    assert costs.devices == (described, replace(B, transfer_in=times.entry))
    expected = [[operator_cost_s(graph, operator, described)] for operator in graph.operators]
    np.testing.assert_allclose(costs.time_s, np.hstack([expected, [[1e-4], [2e-4]]]))
