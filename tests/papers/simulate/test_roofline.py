"""Simulated costs against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.layers import group_layers
from shisha_rt.papers.simulate.roofline import Work, roofline_costs, work_of
from tests.costs.networks import chain


def one_conv(kernel: tuple[int, ...], out: tuple[int, ...], group: int = 1) -> Graph:
    tensors = {"x": Tensor("x", (1, 8, 6, 6), "FP32"), "y": Tensor("y", out, "FP32")}
    operators = (
        Operator("c", "Conv", "", ("x", "w", "b"), ("y",), {"group": group}),
        Operator("r", "Relu", "", ("y",), ("z",), {}),
    )
    tensors["z"] = Tensor("z", out, "FP32")
    constants = {"w": Tensor("w", kernel, "FP32"), "b": Tensor("b", kernel[:1], "FP32")}
    return Graph("one", operators, (tensors["x"],), (tensors["z"],), tensors, constants)


@pytest.mark.parametrize(
    ("kernel", "out", "group", "work"),
    [
        # 16 filters over a 72 x 16 matrix of windows: 8 channels of 3 x 3, 4 x 4 positions.
        (
            (16, 8, 3, 3),
            (1, 16, 4, 4),
            1,
            Work(4 * (288 + 72 * 16), 2 * 16 * 72 * 16, 4 * (16 * 72 + 16 + 72 * 16 + 256)),
        ),
        # In 4 groups each filter sees 2 channels, but all windows are still written.
        (
            (16, 2, 3, 3),
            (1, 16, 4, 4),
            4,
            Work(4 * (288 + 72 * 16), 2 * 16 * 18 * 16, 4 * (16 * 18 + 16 + 72 * 16 + 256)),
        ),
        # 1 x 1: the input is the matrix.
        ((16, 8, 1, 1), (1, 16, 6, 6), 1, Work(0, 2 * 16 * 8 * 36, 4 * (16 * 8 + 16 + 288 + 576))),
    ],
    ids=["3x3", "groups", "1x1"],
)
def test_a_convolution(kernel: tuple[int, ...], out: tuple[int, ...], group: int, work: Work) -> None:
    graph = one_conv(kernel, out, group)
    (layer,) = group_layers(graph)
    assert work_of(graph, layer) == work


def test_a_product_has_no_im2col() -> None:
    tensors = {"x": Tensor("x", (1, 20), "FP32"), "y": Tensor("y", (1, 10), "FP32")}
    graph = Graph(
        "fc",
        (Operator("g", "Gemm", "", ("x", "w"), ("y",), {}),),
        (tensors["x"],),
        (tensors["y"],),
        tensors,
        {"w": Tensor("w", (20, 10), "FP32")},
    )
    assert work_of(graph, group_layers(graph)[0]) == Work(0, 400, 4 * (200 + 20 + 10))


def test_no_heavy_operator_is_no_work() -> None:
    tensors = {name: Tensor(name, (1, 4), "FP32") for name in "xy"}
    relu = Operator("r", "Relu", "", ("x",), ("y",), {})
    graph = Graph("light", (relu,), (tensors["x"],), (tensors["y"],), tensors, {})
    assert work_of(graph, group_layers(graph)[0]) == Work(0, 0, 0)


@pytest.mark.parametrize(
    ("flops", "bandwidth", "expected_s"), [(100, 10, 0.5 + 2.0), (1000, 10, 0.5 + 0.7), (100, math.inf, 2.0)]
)
def test_gemm_takes_the_longer_of_operations_and_bytes(flops: float, bandwidth: float, expected_s: float) -> None:
    assert Work(im2col_bytes=5, gemm_operations=200, gemm_bytes=7).time_s(flops, bandwidth) == expected_s


def place(name: str, cores: int, speed: float, memory: str) -> Place:
    return Place(name, (), cores, cores, speed, 1, memory, memory_bytes=1000)


class TestCosts:
    GRAPH = chain([4, 8, 2])
    LAYERS = group_layers(GRAPH)
    MACHINE = Machine(
        "m",
        "test",
        (Memory("m0", 400.0), Memory("m1", 100.0), Memory("m2")),
        (
            place("a", 2, 1.0, "m0"),
            place("b", 1, 0.5, "m0"),
            place("c", 4, 1.0, "m1"),
            place("d", 1, 1.0, "m2"),
        ),
    )

    def test_rates_are_cores_times_speed_and_a_memory_is_shared(self) -> None:
        costs = roofline_costs(self.GRAPH, self.LAYERS, self.MACHINE, core_flops=10)
        work = work_of(self.GRAPH, self.LAYERS[0])
        assert costs.time_s.shape == (2, 4)
        assert costs.time_s[0].tolist() == [
            work.time_s(20, 200),
            work.time_s(5, 200),
            work.time_s(40, 100),
            work.time_s(10, math.inf),
        ]

    def test_entering_takes_the_latency_and_the_slowest_memory(self) -> None:
        costs = roofline_costs(self.GRAPH, self.LAYERS, self.MACHINE, entry_latency_s=3.0)
        assert costs.transfer_s.tolist() == [3.0 + 4 * 8 * 64 / 100]
        assert roofline_costs(self.GRAPH, self.LAYERS, self.MACHINE).transfer_s[0] == pytest.approx(20.48 + 20e-9)
        assert costs.legal_cuts == {0}

    def test_what_planners_need_besides(self) -> None:
        costs = roofline_costs(self.GRAPH, self.LAYERS, self.MACHINE)
        assert [layer.weight for layer in costs.layers] == [layer.weight for layer in self.LAYERS]
        assert [layer.weight_bytes for layer in costs.layers] == [4 * 8 * 9 * 4, 8 * 2 * 9 * 4]
        assert [layer.live_bytes for layer in costs.layers] == [8 * 64 * 4, 8 * 64 * 4]
        assert [(p.name, p.memory_bytes) for p in costs.places] == [(name, 1000) for name in "abcd"]
