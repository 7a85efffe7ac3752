"""Stages against every placement of theirs, each counted by hand; what each segment pays; and the margin."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import ELEMENT_BYTES, Device, Family, Transfer
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.outcome import Outcome
from shisha_rt.placement.check import cost
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segments
from shisha_rt.placement.stage_problem import place_stage, stage_problem
from tests.costs.networks import chain
from tests.wording import raised, says

INF: Final = math.inf

DESCRIBED: Final = (Family(frozenset(), (), ()),)
CPU: Final = Device("cpu", "cpu.toml", "onnxruntime", "dram", "fp32", families=DESCRIBED)
CORES: Final = replace(CPU, name="cores", source="cores.toml")
PIM: Final = Device(
    "pim",
    "pim.toml",
    "onnxruntime",
    "pim",
    "bf16",
    families=DESCRIBED,
    transfer_in=Transfer(1.0, 16.0),
    transfer_out=Transfer(2.0, 8.0),
)
NPU: Final = Device(
    "npu",
    "npu.toml",
    "onnxruntime",
    "npu",
    "fp32",
    families=DESCRIBED,
    transfer_in=Transfer(0.25, 32.0),
    transfer_out=Transfer(0.125, 16.0),
)
ONE: Final = Device("one", "one.toml", "onnxruntime", "one", "fp32", transfer_in=Transfer(0.5, 32.0))
OTHER: Final = Device("other", "other.toml", "openvino", "other", "fp32", transfer_in=Transfer(0.125, 64.0))

PLACES: Final = (
    (CPU,),
    (PIM,),
    (CPU, PIM),
    (CPU, CORES, PIM, NPU),
    (ONE, OTHER),
    (ONE, PIM),
    (OTHER, CPU, PIM),
)


def random_graph(rng: random.Random) -> Graph:
    """One to seven operators that read one or two tensors of any before them; some make a second, some is unread."""
    count = rng.randint(1, 7)
    tensors = {"x": Tensor("x", (4,), "FP32")}
    operators = []
    for i in range(count):
        read = rng.sample(sorted(tensors), k=min(len(tensors), rng.randint(1, 2)))
        made = [f"t{i}", f"u{i}"][: rng.choice((1, 1, 2))]
        operators.append(Operator(f"op{i}", "Add", "", (*read, "w"), tuple(made), {}))
        tensors |= {name: Tensor(name, (rng.choice((2, 4, 8)),), "FP32") for name in made}
    outputs = [tensor for name, tensor in tensors.items() if name == f"t{count - 1}" or rng.random() < 0.2]
    ends = [tensor for tensor in outputs if tensor.name != "x"]
    constants = {"w": Tensor("w", (1,), "FP32")}
    return Graph("net", tuple(operators), (tensors["x"],), tuple(ends), tensors, constants)


def random_costs(rng: random.Random, graph: Graph, devices: Sequence[Device]) -> OperatorCosts:
    """Eighths of a second, some of them 0; a device may not be able to run an operator, but one is."""
    time_s = np.array([[rng.choice((0, 1, 2, 4, 8, 24)) / 8 for _ in devices] for _ in graph.operators])
    able = rng.randrange(len(devices))
    for row in time_s:
        row[[device != able and rng.random() < 0.2 for device in range(len(devices))]] = INF
    return OperatorCosts(tuple(devices), time_s)


def random_stages(devices: Sequence[Device], count: int = 40) -> Iterator[tuple[Graph, int, int, OperatorCosts]]:
    """Of up to four operators."""
    rng = random.Random("+".join(device.name for device in devices))
    for _ in range(count):
        graph = random_graph(rng)
        first = rng.randrange(len(graph.operators))
        last = rng.randint(first, min(len(graph.operators), first + 4) - 1)
        yield graph, first, last, random_costs(rng, graph, devices)


def leg_s(transfer: Transfer | None, tensor: Tensor, device: Device) -> float:
    if transfer is None:
        return 0.0
    size_bytes = ELEMENT_BYTES[device.precision] * math.prod(tensor.shape)
    return transfer.latency_s + size_bytes / transfer.bandwidth_bytes_per_s


def by_hand_s(graph: Graph, first: int, last: int, costs: OperatorCosts, placed: Sequence[int]) -> float:
    """What a placement of a stage costs, told as a story of its tensors rather than as a problem."""
    on = {first + i: costs.devices[device] for i, device in enumerate(placed)}
    total_s = sum(float(costs.time_s[first + i, device]) for i, device in enumerate(placed))
    outputs = {tensor.name for tensor in graph.outputs}
    for name, tensor in graph.tensors.items():
        consumers = graph.consumers.get(name, ())
        readers = {on[i].memory: on[i] for i in consumers if i in on}
        maker = on.get(graph.producer.get(name, -1))
        if maker is None:  # it lies in the host's memory already, and is plain
            total_s += sum(leg_s(device.transfer_in, tensor, device) for device in readers.values() if device.described)
            continue
        readers.pop(maker.memory, None)
        out_s = leg_s(maker.transfer_out, tensor, maker)
        total_s += sum(out_s + leg_s(device.transfer_in, tensor, device) for device in readers.values())
        leaves = name in outputs or any(i > last for i in consumers)
        if leaves and "dram" not in readers:  # else it has come out already
            total_s += out_s
    return total_s


@pytest.mark.parametrize("devices", PLACES, ids=lambda devices: "+".join(device.name for device in devices))
class TestAgainstEveryPlacement:
    def test_the_problem_counts_as_by_hand_and_exact_finds_the_least(self, devices: tuple[Device, ...]) -> None:
        for graph, first, last, costs in random_stages(devices):
            problem = stage_problem(graph, first, last, costs)
            host = len(devices)
            able = [np.flatnonzero(np.isfinite(row)).tolist() for row in costs.time_s[first : last + 1]]
            every = {placed: by_hand_s(graph, first, last, costs, placed) for placed in itertools.product(*able)}
            for placed, cost_s in every.items():
                assert cost(problem, (host, *placed, host)).total_s == cost_s
            placement = place_stage(graph, first, last, costs, margin=0.0)
            assert placement.cost_s == min(every.values())
            assert placement.lower_bound_s == pytest.approx(placement.cost_s)
            assert placement.outcome is Outcome.OPTIMAL

    def test_segments_add_up_to_what_their_placement_costs(self, devices: tuple[Device, ...]) -> None:
        names = [device.name for device in devices]
        for graph, first, last, costs in random_stages(devices):
            exact = place_stage(graph, first, last, costs)
            als = place_stage(graph, first, last, costs, "als")
            for placement in (exact, als):
                assert len(placement.devices) == last - first + 1
                placed = [names.index(name) for name in placement.devices]
                assert placement.cost_s == by_hand_s(graph, first, last, costs, placed)
                assert len(placement.segments_s) == len(segments(graph, first, placement.devices))
                assert math.fsum(placement.segments_s) == pytest.approx(placement.cost_s, abs=1e-12)


def grouped_chains(devices: Sequence[Device], count: int = 30) -> Iterator[tuple[Graph, int, int, OperatorCosts]]:
    """Of six operators, and up to five groups of two or three, which may overlap; some run only in those."""
    rng = random.Random(len(devices))
    graph = chain([4, 4, 4, 4])
    for _ in range(count):
        costs = random_costs(rng, graph, devices)
        spans = [(first, first + rng.choice((2, 3))) for first in rng.sample(range(4), k=rng.randint(1, 4))]
        groups = tuple(
            GroupCost(tuple(range(*span)), rng.randrange(len(devices)), rng.choice((0, 1, 4, 16)) / 8)
            for span in (*spans, rng.choice(spans))
        )
        first = rng.randrange(3)
        yield graph, first, rng.randint(first + 1, 5), replace(costs, groups=groups)


def with_groups_s(costs: OperatorCosts, first: int, placed: Sequence[int]) -> float:
    """Of operators alone or in groups, by trying every set of groups that are disjoint and where they have to be."""
    on = dict(enumerate(placed, start=first))
    there = [group for group in costs.groups if all(on.get(index) == group.device for index in group.operators)]
    totals_s = []
    for chosen in itertools.product((False, True), repeat=len(there)):
        used = [group for group, is_chosen in zip(there, chosen, strict=True) if is_chosen]
        members = [index for group in used for index in group.operators]
        if len(members) == len(set(members)):
            alone_s = (float(costs.time_s[index, device]) for index, device in on.items() if index not in members)
            totals_s.append(sum(group.time_s for group in used) + sum(alone_s))
    return min(totals_s)


class TestGroups:
    @pytest.mark.parametrize("devices", [(CPU, PIM), (ONE, PIM, CPU)], ids=len)
    def test_several_devices(self, devices: tuple[Device, ...]) -> None:
        """The least of all placements; what a placement takes is the same to checker, segments and by hand."""
        for graph, first, last, costs in grouped_chains(devices):
            problem, host = stage_problem(graph, first, last, costs), len(devices)
            free = replace(costs, time_s=np.zeros_like(costs.time_s), groups=())
            least_s = INF
            for placed in itertools.product(range(len(devices)), repeat=last - first + 1):
                moving_s = by_hand_s(graph, first, last, free, placed)
                expected_s = with_groups_s(costs, first, placed) + moving_s
                assert cost(problem, (host, *placed, host)).total_s == expected_s
                parts = segments(graph, first, [devices[device].name for device in placed])
                assert math.fsum(segment_times_s(graph, parts, costs)) == expected_s
                least_s = min(least_s, expected_s)
            placement = place_stage(graph, first, last, costs, margin=0.0)
            assert (placement.cost_s, math.fsum(placement.segments_s)) == (least_s, least_s)
            assert place_stage(graph, first, last, costs, "als").cost_s >= least_s

    def test_one_device_runs_in_groups_what_it_cannot_alone(self) -> None:
        graph = chain([4, 4, 4])  # 1 KiB a tensor: 512 bytes at 16 a second and a second in, at 8 and two out
        time_s = np.array([[1.0], [INF], [1.0], [INF]])
        pairs = GroupCost((0, 1), 0, 1.5), GroupCost((2, 3), 0, 1.5)
        costs = OperatorCosts((PIM,), time_s, pairs)
        placement = place_stage(graph, 0, 3, costs)
        assert (placement.devices, placement.outcome) == (("pim",) * 4, Outcome.OPTIMAL)
        assert placement.cost_s == placement.lower_bound_s == 3.0 + 33 + 66
        assert placement.segments_s == (placement.cost_s,)
        for first, last in ((1, 3), (1, 1)):
            with raised(BadInput, Error.DEVICE_UNFIT, match=r"operator Relu \('relu1'\): no device can"):
                place_stage(graph, first, last, costs)
        overlapping = replace(costs, time_s=np.full((4, 1), INF), groups=(*pairs[:1], GroupCost((1, 2), 0, 1.0)))
        with raised(BadInput, Error.DEVICE_UNFIT, match="operators 'conv1' to 'conv2': pim cannot run"):
            place_stage(graph, 0, 2, overlapping)

    def test_of_several_devices_one_must_run_each_operator_alone(self) -> None:
        costs = OperatorCosts((PIM, CPU), np.array([[1.0, 1.0], [INF, INF]]), (GroupCost((0, 1), 0, 1.5),))
        with raised(BadInput, Error.DEVICE_UNFIT, match="no device can"):
            place_stage(chain([4, 4]), 0, 1, costs)


def net() -> Graph:
    """Tensor x -> a -> ta -> b -> tb -> c -> y, each of 8 elements; c reads x, too."""
    tensors = {name: Tensor(name, (8,), "FP32") for name in ("x", "ta", "tb", "y")}
    operators = (
        Operator("a", "Add", "", ("x", "w"), ("ta",), {}),
        Operator("b", "Relu", "", ("ta",), ("tb",), {}),
        Operator("c", "Add", "", ("tb", "x"), ("y",), {}),
    )
    constants = {"w": Tensor("w", (8,), "FP32")}
    return Graph("net", operators, (tensors["x"],), (tensors["y"],), tensors, constants)


def costs_of(*columns: tuple[Device, tuple[float, ...]]) -> OperatorCosts:
    return OperatorCosts(tuple(device for device, _ in columns), np.array([time_s for _, time_s in columns], float).T)


class TestWhoPays:
    """16 bytes into the PIM take 1 + 16/16, out of it 2 + 16/8; 32 into ONE 0.5 + 32/32, into OTHER 0.125 + 32/64."""

    def test_the_way_in_is_the_reader_s_and_the_way_out_the_maker_s(self) -> None:
        costs = costs_of((CPU, (1, INF, 4)), (PIM, (INF, 0.5, INF)))
        placement = place_stage(net(), 0, 2, costs)
        assert placement.devices == ("cpu", "pim", "cpu")
        assert placement.segments_s == (1.0, 0.5 + 2 + 4, 4.0)
        assert placement.cost_s == 11.5

    def test_a_stage_behind_a_link_pays_to_enter_and_to_leave(self) -> None:
        costs = costs_of((CPU, (INF, INF, INF)), (PIM, (0.25, 0.5, 1.0)))
        assert place_stage(net(), 1, 1, costs).segments_s == (0.5 + 2 + 4,)
        # x, which two operators read, comes in once; nothing between them leaves.
        assert place_stage(net(), 0, 2, costs).segments_s == (1.75 + 2 + 4,)

    def test_a_tensor_that_is_read_beside_the_host_has_left_already(self) -> None:
        graph = replace(net(), outputs=(net().tensors["tb"], net().tensors["y"]))
        costs = costs_of((CPU, (INF, INF, 4)), (PIM, (0.25, 0.5, INF)))
        assert place_stage(graph, 0, 2, costs).segments_s == (0.75 + 2 + 4, 4.0)
        assert place_stage(graph, 0, 1, costs).segments_s == (0.75 + 2 + 4,)

    def test_measured_devices_pay_for_what_comes_from_another_alone(self) -> None:
        costs = costs_of((ONE, (1, INF, 4)), (OTHER, (INF, 0.5, INF)))
        placement = place_stage(net(), 0, 2, costs)
        assert placement.segments_s == (1.0, 0.5 + 0.625, 4 + 1.5)  # x enters both, for nothing

    def test_from_behind_a_link_to_an_engine_of_this_host(self) -> None:
        costs = costs_of((ONE, (1, INF, 4)), (PIM, (INF, 0.5, INF)))
        assert place_stage(net(), 0, 2, costs).segments_s == (1.0, 0.5 + 2 + 4, 4 + 1.5)

    def test_a_second_segment_on_a_memory_finds_there_what_the_first_has_fetched(self) -> None:
        costs = costs_of((PIM, (1, INF, 1)), (CPU, (INF, 0.5, INF)))
        # x for a, and later for c; ta out to b; tb in to c; y out to the next stage.
        assert place_stage(net(), 0, 2, costs).segments_s == (1 + 2 + 4, 0.5, 1 + 2 + 4)


class TestTheMargin:
    """Alone each device takes 3; together they take 2 and a transfer of 0.92."""

    TRANSFER: Final = Transfer(0.92, 1e30)
    MEASURED: Final = (replace(ONE, transfer_in=TRANSFER), replace(OTHER, transfer_in=TRANSFER))
    HALF: Final = Transfer(0.46, 1e30)
    LINKED: Final = replace(PIM, transfer_in=HALF, transfer_out=HALF)

    def test_several_measured_devices_have_to_be_worth_it(self) -> None:
        first, other = self.MEASURED
        costs = costs_of((first, (1, 2, 9)), (other, (2, 1, 9)))
        both = place_stage(net(), 0, 1, costs, margin=0.02)
        assert (both.devices, both.outcome) == (("one", "other"), Outcome.OPTIMAL)
        assert both.cost_s == pytest.approx(2.92)
        single = place_stage(net(), 0, 1, costs)
        assert len(set(single.devices)) == 1
        assert (single.cost_s, single.segments_s, single.outcome) == (3.0, (3.0,), Outcome.FEASIBLE)
        assert single.lower_bound_s == pytest.approx(2.92)

    def test_described_devices_cost_what_they_cost(self) -> None:
        both = costs_of((CPU, (1, 2, 9)), (self.LINKED, (2, 1, 9)))
        assert place_stage(net(), 0, 1, both, margin=0.5).devices == ("cpu", "pim")
        with_measured = costs_of((CPU, (1, 2, 9)), (self.LINKED, (2, 1, 9)), (ONE, (INF, INF, INF)))
        assert place_stage(net(), 0, 1, with_measured, margin=0.5).devices == ("cpu", "cpu")

    def test_one_device_that_cannot_run_all_is_no_rival(self) -> None:
        first, other = self.MEASURED
        costs = costs_of((first, (1, INF, 9)), (other, (INF, 1, 9)))
        assert place_stage(net(), 0, 1, costs, margin=10.0).devices == ("one", "other")


def test_the_operators_stand_between_entry_and_exit() -> None:
    problem = stage_problem(net(), 1, 2, costs_of((CPU, (1, 2, 3)), (PIM, (INF, INF, 4))))
    assert [node.name for node in problem.nodes] == ["entry", "b", "c", "exit"]
    assert [node.cost_s for node in problem.nodes[1:-1]] == [(2, INF, INF), (3, 4, INF)]
    assert problem.memories == ("dram", "pim")  # the host's is that of the CPU
    assert [(tensor.name, tensor.producer, tensor.consumers) for tensor in problem.tensors] == [
        ("ta", 0, (1,)),
        ("x", 0, (2,)),
        ("tb", 1, (2,)),
        ("y", 2, (3,)),
    ]


def test_an_operator_that_no_device_can_run() -> None:
    costs = costs_of((CPU, (1, INF, 1)), (PIM, (1, INF, 1)))
    assert place_stage(net(), 2, 2, costs).devices == ("cpu",)
    with raised(BadInput, Error.DEVICE_UNFIT) as caught:
        place_stage(net(), 0, 2, costs)
    assert str(caught.value) == says("net: operator Relu ('b'): no device can …")
