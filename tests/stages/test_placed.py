"""Stages on devices: what the whole model answers, however operators are placed, and what each segment takes.

Devices here are ONNX Runtime on one thread and on two, and described ones whose seconds can be worked out by hand.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.device import Device, Family, Fusion, Term, Transfer
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.layer_kinds import LAYER_KINDS, LayerKind
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.stage_problem import place_stage
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import NUMPY_OF
from stages.built.clean_model import CleanModel
from stages.built.placed import PlacedModel
from stages.engines.session import untimed
from tests.model.networks import network, write
from tests.stages.test_segments import blocked_and_plain, branches, early_output, random_stages, residual

Arrays = dict[str, npt.NDArray[Any]]

SERIAL = Device("serial", "", "onnxruntime", "serial", "fp32", threads=1)
PARALLEL = Device("parallel", "", "onnxruntime", "parallel", "fp32")
OPENVINO = Device("openvino", "", "openvino", "openvino", "fp32")

# Milliseconds of the network below, whose tensors have 8 elements: 2 on the host for each operator, 0.25 on the adder,
# whose 2 bytes an element go in in 2 and come out in 4.
HOST = Device("host", "", "onnxruntime", "dram", "fp32", 1e-3, (Family(frozenset(), (), (Term(1e-3),)),))
ADDER = Device(
    "adder",
    "",
    "onnxruntime",
    "own",
    "bf16",
    0.25e-3,
    (Family(frozenset({"Add"}), (), ()),),
    transfer_in=Transfer(1e-3, 16e3),
    transfer_out=Transfer(2e-3, 8e3),
)


def small(folder: Path) -> Path:
    """From x: a (Add) -> b (Relu) -> c (Add of what a and b make) -> y."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["ta"]),
        helper.make_node("Relu", ["ta"], ["tb"]),
        helper.make_node("Add", ["ta", "tb"], ["y"]),
    ]
    weights = {"w": np.array([1, -3], np.float32)}
    return write(network(nodes, {"x": [4, 2]}, {"y": [4, 2]}, weights), folder)


def model_of(
    compiled: Compiled, devices: Sequence[Device], threads: int = 2, speeds: Mapping[int, float] | None = None
) -> PlacedModel:
    speeds = speeds or {}
    model = CleanModel.read(compiled.model_folder)
    return PlacedModel(model, compiled.index, tuple(devices), threads, lambda device: speeds.get(device, 1.0))


def inputs_of(compiled: Compiled, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {s.name: rng.standard_normal(s.shape).astype(NUMPY_OF[s.datatype]) for s in compiled.index.inputs}


def whole(compiled: Compiled, inputs: Arrays) -> Arrays:
    """What ONNX Runtime makes of the cleaned model in one piece."""
    session = ort.InferenceSession(str(compiled.model_folder / "clean.onnx"), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in compiled.index.outputs]
    return dict(zip(names, session.run(names, inputs), strict=True))


@contextmanager
def arena_for(compiled: Compiled, slot_count: int = 1) -> Iterator[Arena]:
    arena = Arena.create(layouts_of([compiled.index.tensors]), slot_count, place_count=1)
    try:
        yield arena
    finally:
        arena.close()


def put(arena: Arena, slot: int, inputs: Arrays) -> None:
    for name, value in inputs.items():
        arena.view(slot, arena.layout.regions[name])[...] = value


def outputs_in(arena: Arena, slot: int, compiled: Compiled) -> Arrays:
    return {s.name: arena.view(slot, arena.layout.regions[s.name]).copy() for s in compiled.index.outputs}


def assert_close(answers: Arrays, expected: Arrays) -> None:
    assert answers.keys() == expected.keys()
    for name, value in expected.items():
        assert value.std() > 0
        np.testing.assert_allclose(answers[name], value, rtol=1e-3, atol=1e-4 * np.abs(value).max(), err_msg=name)


def check(
    compiled: Compiled, cuts: Sequence[int], placement: Sequence[str], seed: int = 0, other: Device = PARALLEL
) -> int:
    """Stages between `cuts` on SERIAL and another device, all operators placed; returns how many segments they have."""
    model = model_of(compiled, [SERIAL, other])
    frames = [inputs_of(compiled, seed), inputs_of(compiled, seed + 1)]
    segment_count = 0
    with arena_for(compiled, slot_count=2) as arena:
        for slot, inputs in enumerate(frames):
            put(arena, slot, inputs)
        for first, last in itertools.pairwise([-1, *cuts, len(compiled.layers) - 1]):
            start, end = compiled.layers[first + 1].first_operator, compiled.layers[last].last_operator
            stage = model.stage(((first + 1, last),), placement[start : end + 1])
            for slot in (0, 1):
                assert len(stage.on_slot(arena, slot)(untimed)) == len(stage.segments)
            segment_count += len(stage.segments)
        for slot, inputs in enumerate(frames):
            assert_close(outputs_in(arena, slot, compiled), whole(compiled, inputs))
    return segment_count


@pytest.mark.parametrize("build", [residual, early_output, blocked_and_plain])
def test_each_operator_on_another_device_than_the_one_before(build: Callable[[Path], Path], tmp_path: Path) -> None:
    compiled = compile_model(build(tmp_path), plain="heavy")
    operators = len(compiled.model.graph.operators)
    placement = [("serial", "parallel")[i % 2] for i in range(operators)]
    assert check(compiled, [], placement) == operators
    for cut in sorted(compiled.legal_cuts):
        check(compiled, [cut], placement)
    check(compiled, sorted(compiled.legal_cuts), placement)


@pytest.mark.parametrize("build", [residual, early_output, blocked_and_plain])
def test_random_placements_and_cuts(build: Callable[[Path], Path], tmp_path: Path) -> None:
    compiled = compile_model(build(tmp_path), plain="heavy")
    rng = random.Random(build.__name__)
    for seed in range(6):
        cuts = [cut for cut in sorted(compiled.legal_cuts) if rng.random() < 0.5]
        check(compiled, cuts, rng.choices(["serial", "parallel"], k=len(compiled.model.graph.operators)), seed)


@pytest.mark.parametrize("kind", LAYER_KINDS)
@pytest.mark.parametrize("build", [branches, early_output])
def test_stages_of_several_runs(build: Callable[[Path], Path], kind: LayerKind, tmp_path: Path) -> None:
    compiled = compile_model(build(tmp_path), plain=kind)
    model = model_of(compiled, [SERIAL, PARALLEL])
    inputs = inputs_of(compiled, seed=0)
    expected = whole(compiled, inputs)
    rng = random.Random(0)
    for count in (2, 3, 4):
        with arena_for(compiled) as arena:
            put(arena, 0, inputs)
            for work in random_stages(compiled, min(count, len(compiled.layers)), rng):
                runs = [compiled.index.operators_of(*run) for run in work]
                operators = sum(last - first + 1 for first, last in runs)
                stage = model.stage(work, rng.choices(["serial", "parallel"], k=operators))
                assert sum(part.last - part.first + 1 for part in stage.segments) == operators
                stage.on_slot(arena, 0)(untimed)
            assert_close(outputs_in(arena, 0, compiled), expected)


@pytest.mark.parametrize("build", [residual, early_output, blocked_and_plain])
def test_two_engines(build: Callable[[Path], Path], tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    compiled = compile_model(build(tmp_path), plain="heavy")
    operators = len(compiled.model.graph.operators)
    placement = [("serial", "openvino")[i % 2] for i in range(operators)]
    assert check(compiled, [0], placement, other=OPENVINO) == operators


def test_a_network_of_the_zoo() -> None:
    compiled = compile_model(zoo_path("squeezenet"), plain="heavy")
    operators = len(compiled.model.graph.operators)
    rng = random.Random(0)
    assert check(compiled, [3, 11], [("serial", "parallel")[i % 2] for i in range(operators)]) == operators
    for seed in range(2):
        cuts = sorted(rng.sample(sorted(compiled.legal_cuts), 2))
        check(compiled, cuts, rng.choices(["serial", "parallel"], k=operators), seed)


def test_what_a_frame_moves_and_on_what_each_segment_runs(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path), plain="heavy")
    layers = compiled.layers
    operators = layers[1].last_operator - layers[0].first_operator + 1
    stage = model_of(compiled, [SERIAL, PARALLEL]).stage(((0, 1),), ["parallel"] + ["serial"] * (operators - 1))
    weight_bytes = layers[0].weight_bytes + layers[1].weight_bytes
    assert stage.frame_bytes == weight_bytes + layers[0].in_bytes + layers[1].out_bytes
    assert [device.name for device in stage.devices] == ["parallel", "serial"]
    assert [segment.device for segment in stage.segments] == ["parallel", "serial"]


class TestTimes:
    """Seconds of segments: CPU time goes one second ahead each time it is read, and the wall clock three."""

    @pytest.fixture(autouse=True)
    def _wall_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stages.built.placed.time.perf_counter", itertools.count(step=3).__next__)

    @pytest.fixture
    def compiled(self, tmp_path: Path) -> Compiled:
        return compile_model(small(tmp_path), plain="heavy")

    def _times_s(self, compiled: Compiled, model: PlacedModel, placement: Sequence[str]) -> tuple[float, ...]:
        clock = itertools.count().__next__
        with arena_for(compiled) as arena:
            return model.stage(((0, 0),), placement).on_slot(arena, 0)(clock)

    def test_an_engine_s_are_cpu_seconds_on_one_thread_and_by_the_clock_on_several(self, compiled: Compiled) -> None:
        model = model_of(compiled, [SERIAL, PARALLEL], threads=2)
        assert self._times_s(compiled, model, ["serial", "parallel", "parallel"]) == (1.0, 3.0)
        alone = model_of(compiled, [SERIAL, PARALLEL], threads=1)
        assert self._times_s(compiled, alone, ["serial", "parallel", "serial"]) == (1.0, 1.0, 1.0)

    def test_a_described_device_s_are_its_formulas_and_transfers(self, compiled: Compiled) -> None:
        model = model_of(compiled, [HOST, ADDER])
        # x in and out to the host; in again and out of the stage
        assert self._times_s(compiled, model, ["adder", "host", "adder"]) == pytest.approx((6.25e-3, 2e-3, 6.25e-3))
        assert self._times_s(compiled, model, ["host", "host", "host"]) == pytest.approx((6e-3,))

    def test_a_described_device_hands_out_what_an_engine_reads(self, compiled: Compiled) -> None:
        model = model_of(compiled, [ADDER, SERIAL])
        assert self._times_s(compiled, model, ["adder", "serial", "serial"]) == pytest.approx((6.25e-3, 1.0))

    def test_a_price_measured_for_an_engine_s_way_in_is_in_its_time_already(self, compiled: Compiled) -> None:
        priced = replace(SERIAL, transfer_in=Transfer(100.0, 1.0))
        model = model_of(compiled, [PARALLEL, priced])
        assert self._times_s(compiled, model, ["parallel", "serial", "parallel"]) == (3.0, 1.0, 3.0)

    def test_all_are_divided_by_what_speed_the_device_has_at_the_time(self, compiled: Compiled) -> None:
        speeds = {0: 1.0, 1: 1.0}
        model = model_of(compiled, [SERIAL, ADDER], speeds=speeds)
        stage = model.stage(((0, 0),), ["serial", "serial", "adder"])
        with arena_for(compiled) as arena:
            times = []
            for serial, adder in ((1.0, 1.0), (0.5, 1.0), (0.5, 0.25)):
                speeds.update({0: serial, 1: adder})
                times.append(stage.on_slot(arena, 0)(itertools.count().__next__))
        into_and_out_s = 0.25e-3 + 2e-3 + 2e-3 + 4e-3
        expected = [(1.0, into_and_out_s), (2.0, into_and_out_s), (2.0, into_and_out_s / 0.25)]
        assert times == [pytest.approx(pair) for pair in expected]

    def test_what_a_device_runs_as_one_takes_what_the_planner_says(self, tmp_path: Path) -> None:
        """To the last bit, though the device can run no Relu by itself."""
        nodes = [
            helper.make_node("Add", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Add", ["b", "w"], ["c"]),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        weights = {"w": np.array([1, -3], np.float32)}
        compiled = compile_model(
            write(network(nodes, {"x": [4, 2]}, {"y": [4, 2]}, weights), tmp_path), plain="operators"
        )
        graph = compiled.model.graph
        fuser = replace(ADDER, fusions=(Fusion(("Add", "Relu"), (Term(1e-5, (("elements_out", 1),)),)),))
        costs = described_costs(graph, [fuser])
        model = model_of(compiled, [fuser])
        with arena_for(compiled) as arena:
            put(arena, 0, inputs_of(compiled, 0))
            for first, last, fused, alone in ((0, 1, 1, 0), (0, 3, 2, 0), (2, 3, 1, 0), (0, 2, 1, 1)):
                segments_s = model.stage(((first, last),), ["adder"] * (last - first + 1)).on_slot(arena, 0)(untimed)
                assert segments_s == place_stage(graph, first, last, costs).segments_s
                assert segments_s[0] == pytest.approx(6e-3 + fused * (0.25e-3 + 8e-5) + alone * 0.25e-3)
        with pytest.raises(ValueError, match="cannot run operators 1 to 2"):
            model.stage(((1, 2),), ["adder"] * 2)

    def test_how_much_a_device_s_precision_changes_is_known_when_the_stage_is_built(self, compiled: Compiled) -> None:
        rounding = replace(SERIAL, name="rounding", precision="bf16")
        model = model_of(compiled, [SERIAL, rounding])
        assert model.stage(((0, 0),), ["serial"] * 3).difference == 0
        assert 1e-5 < model.stage(((0, 0),), ["serial", "rounding", "serial"]).difference < 2**-7

    def test_an_output_that_a_device_s_precision_makes_nan_behind_one_that_it_does_not_change(
        self, tmp_path: Path
    ) -> None:
        nodes = [
            helper.make_node("Relu", ["s"], ["first"]),
            helper.make_node("Add", ["x", "large"], ["a"]),
            helper.make_node("Sub", ["a", "a"], ["second"]),
        ]
        nodes.insert(0, helper.make_node("Sign", ["x"], ["s"]))
        weights = {"large": np.full(2, 3.4e38, np.float32)}  # infinite in bfloat16
        graph = network(nodes, {"x": [4, 2]}, {"first": [4, 2], "second": [4, 2]}, weights)
        compiled = compile_model(write(graph, tmp_path), plain="heavy")
        rounding = replace(SERIAL, name="rounding", precision="bf16")
        stage = model_of(compiled, [rounding]).stage(((0, 0),), ["rounding"] * len(nodes))
        assert np.isnan(stage.difference)

    def test_a_stage_that_hands_on_whole_numbers_alone(self, tmp_path: Path) -> None:
        """What is said of it is the share that is another: of many values, rounded, another may be the largest."""
        node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)
        graph = network([node], {"x": [200, 4096]}, {"y": [200]})
        graph.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
        compiled = compile_model(write(graph, tmp_path), plain="heavy")
        rounding = replace(SERIAL, name="rounding", precision="bf16")
        stage = model_of(compiled, [rounding]).stage(((0, 0),), ["rounding"])
        assert 0 < stage.difference < 0.1
        frame = np.eye(200, 4096, k=7, dtype=np.float32)
        with arena_for(compiled) as arena:
            put(arena, 0, {"x": frame})
            stage.on_slot(arena, 0)(untimed)
            np.testing.assert_array_equal(outputs_in(arena, 0, compiled)["y"], frame.argmax(axis=1))

    def test_what_is_paced(self, compiled: Compiled) -> None:
        speeds = {0: 1.0, 1: 0.5, 2: 1.0}
        model = model_of(compiled, [SERIAL, PARALLEL, HOST], speeds=speeds)
        real, slowed, described = (model.stage(((0, 0),), [name] * 3) for name in ("serial", "parallel", "host"))
        assert [stage.paced for stage in (real, slowed, described)] == [False, True, True]
        assert [stage.described for stage in (real, slowed, described)] == [False, False, True]
        speeds[1] = 1.0
        assert not slowed.paced

    @pytest.mark.parametrize(
        ("placement", "expected"),
        [
            (["host", "host"], "2 devices for operators 0 to 2"),
            (["host", "adder", "host"], "cannot run operators 1 to 1"),
        ],
    )
    def test_a_placement_that_does_not_fit(self, compiled: Compiled, placement: list[str], expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            model_of(compiled, [HOST, ADDER]).stage(((0, 0),), placement)
