"""Sessions of every engine and precision: bound once to arrays, run on what is in them, right in their precision."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.segments import segment, segments
from stages.built.clean_model import CleanModel
from stages.engines.bfloat16 import rounded
from stages.engines.device_session import build_session
from stages.engines.evaluate import evaluate
from stages.engines.openvino import session as openvino_session
from stages.engines.session import Threads, untimed
from tests.model.networks import Array, network, weight
from tests.processor import openvino_computes_bf16
from tests.stages.clean_models import (
    Arrays,
    branching,
    empty_outputs,
    evaluated,
    random_feeds,
    saved,
    saved_file,
    whole,
)

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO comes with the extra `openvino`"
)
ORT = Device("ort", "test", "onnxruntime", "ort", "fp32")
ORT_BF16 = Device("pim", "test", "onnxruntime", "pim", "bf16")
OPENVINO = Device("openvino", "test", "openvino", "openvino", "fp32")
OPENVINO_BF16 = Device("openvino_bf16", "test", "openvino", "openvino_bf16", "bf16")
EXACT = [ORT, pytest.param(OPENVINO, marks=needs_openvino)]
REALLY_BF16 = [ORT_BF16, pytest.param(OPENVINO_BF16, marks=needs_openvino)]
ALL = [*EXACT, *REALLY_BF16]


def by_name(device: object) -> str:
    return device.name if isinstance(device, Device) else ""


def require(device: Device) -> None:
    """Where the processor lacks the precision sessions are refused: see `tests/measure/test_profile_devices`."""
    if device is OPENVINO_BF16 and not openvino_computes_bf16():
        pytest.skip("OpenVINO has bfloat16 on processors with AVX-512 BF16 or AMX")


def run_placed(model: CleanModel, placement: Sequence[Device], feeds: Arrays, threads: int = 1) -> Arrays:
    """The graph's outputs, each segment on its device."""
    devices = {device.name: device for device in placement}
    values = dict(feeds)
    for part in segments(model.graph, 0, [device.name for device in placement]):
        session = build_session(model, part, devices[part.device], Threads(threads))
        assert [spec.name for spec in session.ends.both] == [*part.inputs, *part.outputs]
        values |= empty_outputs(model, part)
        session.bind(values)(untimed)
    return {tensor.name: values[tensor.name] for tensor in model.graph.outputs}


class TestFp32:
    @pytest.mark.parametrize("device", EXACT, ids=by_name)
    @pytest.mark.parametrize("threads", [1, 2])
    def test_as_the_reference_has_it(self, device: Device, threads: int, tmp_path: Path) -> None:
        model = saved(branching(), tmp_path)
        feeds = random_feeds(model, whole(model))
        answers = run_placed(model, [device] * 8, feeds, threads)
        for name, expected in evaluated(model, whole(model), feeds).items():
            np.testing.assert_allclose(answers[name], expected, rtol=1e-4, atol=1e-5)

    @needs_openvino
    @pytest.mark.parametrize("period", [1, 2, 3])
    def test_engines_in_turns(self, period: int, tmp_path: Path) -> None:
        """Segments of several inputs and outputs, plain tensors between engines."""
        model = saved(branching(), tmp_path)
        feeds = random_feeds(model, whole(model))
        answers = run_placed(model, [(ORT, OPENVINO)[i // period % 2] for i in range(8)], feeds)
        for name, expected in evaluated(model, whole(model), feeds).items():
            np.testing.assert_allclose(answers[name], expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("device", EXACT, ids=by_name)
    def test_a_real_network_in_halves(self, device: Device, tmp_path: Path) -> None:
        model = saved_file(zoo_path("squeezenet"), tmp_path)
        feeds = random_feeds(model, whole(model))
        half = len(model.graph.operators) // 2
        other = Device("other", "test", device.engine, "other", "fp32")
        placement = [device if i < half else other for i in range(len(model.graph.operators))]
        answers = run_placed(model, placement, feeds)
        for name, expected in evaluated(model, whole(model), feeds).items():
            np.testing.assert_allclose(answers[name], expected, rtol=1e-4, atol=1e-6)
            assert expected.std() > 0


class TestBinding:
    @pytest.mark.parametrize("device", ALL, ids=by_name)
    def test_arrays_are_read_anew_and_written_in_place(self, device: Device, tmp_path: Path) -> None:
        """The arrays lie in one buffer, as in a slot: what surrounds them stays as it is."""
        require(device)
        model = saved(branching(), tmp_path)
        cut = segment(model.graph, 2, 4, "a")
        slot = np.full(4096, 77, np.float32)
        room = {}
        offset = 64
        for name in (*cut.inputs, *cut.outputs):
            shape = model.graph.tensors[name].shape
            room[name] = slot[offset : offset + int(np.prod(shape))].reshape(shape)
            offset += room[name].size + 64 - room[name].size % 64 + 64
        run = build_session(model, cut, device).bind(room)
        tolerance = 1e-4 if device.exact else 0.05
        for seed in (1, 2):
            feeds = random_feeds(model, cut, seed)
            for name, value in feeds.items():
                room[name][...] = value
            run(untimed)
            for name, expected in evaluated(model, cut, feeds).items():
                np.testing.assert_allclose(room[name], expected, atol=tolerance * np.abs(expected).max())
            for name, value in feeds.items():
                np.testing.assert_array_equal(room[name], value)
        for name in room:
            room[name][...] = 77
        assert (slot == 77).all()

    @pytest.mark.parametrize("device", ALL, ids=by_name)
    def test_two_bindings_of_one_session(self, device: Device, tmp_path: Path) -> None:
        require(device)
        model = saved(branching(), tmp_path)
        cut = whole(model)
        session = build_session(model, cut, device)
        bindings = []
        for seed in (1, 2):
            feeds, outputs = random_feeds(model, cut, seed), empty_outputs(model, cut)
            bindings.append((session.bind(feeds | outputs), outputs))
        for run, _ in bindings:
            run(untimed)
        (_, first), (_, other) = bindings
        assert all((first[name] != other[name]).any() for name in cut.outputs)
        before = {name: value.copy() for name, value in first.items()}
        bindings[0][0](untimed)
        for name, value in before.items():
            np.testing.assert_array_equal(first[name], value)

    @pytest.mark.parametrize("device", EXACT, ids=by_name)
    def test_arrays_that_do_not_fit_are_refused(self, device: Device, tmp_path: Path) -> None:
        model = saved(branching(), tmp_path)
        cut = segment(model.graph, 1, 1, "a")
        session = build_session(model, cut, device)
        right = np.zeros((1, 8, 12, 12), np.float32)
        for wrong in (right[0], right.astype(np.float64), right.transpose(0, 1, 3, 2), np.zeros((1, 8, 12, 13), "f")):
            with pytest.raises(ValueError, match="tensor 'a' is FP32"):
                session.bind({"a": wrong, "b": right})
            with pytest.raises(ValueError, match="tensor 'b' is FP32"):
                session.bind({"a": right, "b": wrong})

    @pytest.mark.parametrize("device", EXACT, ids=by_name)
    def test_other_datatypes_scalars_and_tensors_without_elements(self, device: Device, tmp_path: Path) -> None:
        model = saved(mixed(), tmp_path)
        cut = whole(model)
        feeds, outputs = random_feeds(model, cut), empty_outputs(model, cut)
        build_session(model, cut, device).bind(feeds | outputs)(untimed)
        datatypes = {tensor.name: tensor.datatype for tensor in model.graph.outputs}
        assert datatypes == {"total": "FP32", "above": "BOOL", "next": "INT64", "none": "FP32"}
        for name, expected in evaluated(model, cut, feeds).items():
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-5)


def mixed() -> onnx.ModelProto:
    """Integers, booleans, scalars in and out, and a tensor without elements."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "factor"], ["scaled"]),
        helper.make_node("ReduceSum", ["scaled"], ["total"], keepdims=0),
        helper.make_node("Greater", ["scaled", "factor"], ["above"]),
        helper.make_node("Add", ["ids", "one"], ["next"]),
        helper.make_node("Slice", ["scaled", "zero", "zero"], ["none"]),
    ]
    floats, integers = TensorProto.FLOAT, TensorProto.INT64
    inputs = {"ids": (integers, [3]), "factor": (floats, [])}
    outputs = {
        "total": (floats, []),
        "above": (TensorProto.BOOL, [3, 4]),
        "next": (integers, [3]),
        "none": (floats, [0, 4]),
    }
    weights = {"table": weight(2, 4), "one": np.array([1]), "zero": np.array([0])}
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info(name, *value) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def of_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with small whole numbers as weights: then every float32 sum is exact, in whatever order."""
    rng = np.random.default_rng(7)
    for constant in model.graph.initializer:
        values = rng.integers(-8, 9, constant.dims).astype(np.float32)
        constant.CopyFrom(numpy_helper.from_array(values, constant.name))
    return model


def rounded_by_hand(model: CleanModel, feeds: Arrays) -> Arrays:
    """Each operator by itself on rounded values and weights, its result rounded by numpy."""
    values = {name: rounded(value) for name, value in feeds.items()}
    for i in range(len(model.graph.operators)):
        part = segment(model.graph, i, i, "one")
        operator = model.with_weights(model.cut(part))
        for constant in operator.graph.initializer:
            constant.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(constant)), constant.name))
        made = evaluate(operator.SerializeToString(), {name: values[name] for name in part.inputs})
        values |= {name: rounded(value) for name, value in zip(part.outputs, made, strict=True)}
    return {tensor.name: values[tensor.name] for tensor in model.graph.outputs}


class TestBfloat16:
    def test_rounding_is_to_nearest_even(self) -> None:
        bits = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32)
        halves = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000  # every tie there is
        for values in (bits.view(np.float32), halves.view(np.float32)):
            with np.errstate(invalid="ignore"):
                expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
            np.testing.assert_array_equal(rounded(values), expected)

    @pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
    def test_rounding_keeps_shape_and_datatype(self, shape: tuple[int, ...]) -> None:
        values = rounded(np.full(shape, 1.001, np.float32))
        assert (values.shape, values.dtype) == (shape, np.dtype("f"))
        assert (values == 1.0).all()

    def test_specials(self) -> None:
        values = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(np.float32).max], np.float32)
        np.testing.assert_array_equal(rounded(values), np.array([np.nan, np.inf, -np.inf, -0.0, np.inf], np.float32))
        payload = np.array([0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
        assert np.isnan(rounded(payload)).all()
        assert np.isnan(rounded(payload[:1].reshape(()))).all()

    @pytest.mark.parametrize("opset", [12, 17])
    def test_each_value_of_a_network_is_rounded_bit_for_bit(self, opset: int, tmp_path: Path) -> None:
        """On whole numbers, so that only roundings can make a difference, and all of them do."""
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Relu", ["c"], ["d"]),
            helper.make_node("Conv", ["d", "k"], ["e"], pads=[1, 1]),
            helper.make_node("Relu", ["e"], ["f"]),
            helper.make_node("Add", ["f", "d"], ["y"]),
        ]
        weights = {"w": weight(4, 32, 32), "b": weight(32), "k": weight(32, 32, 3)}
        tiny = network(nodes, {"x": (4, 32, 32)}, {"c": (4, 32, 32), "y": (4, 32, 32)}, weights, opset=opset)
        model = saved(of_integers(tiny), tmp_path)
        feeds: Arrays = {"x": np.random.default_rng(1).integers(-600, 600, (4, 32, 32)).astype(np.float32)}
        answers = run_placed(model, [ORT_BF16] * 6, feeds)
        exact = evaluated(model, whole(model), feeds)
        for name, expected in rounded_by_hand(model, feeds).items():
            np.testing.assert_array_equal(answers[name], expected)
            assert np.mean(answers[name] != rounded(exact[name])) > 0.1

    def test_ties_infinities_and_nan_in_the_engine(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Mul", ["x", "two"], ["y"])]
        model = saved(network(nodes, {"x": (9,)}, {"y": (9,)}, {"two": np.array(2, np.float32)}), tmp_path)
        tie = 2.0**-8
        values = [1 + tie, 1 + 3 * tie, -1 - tie, 1 + tie + 2**-20, np.inf, -np.inf, np.nan, 1e-40, 3.4e38]
        feeds: Arrays = {"x": np.array(values, np.float32)}
        answer = run_placed(model, [ORT_BF16], feeds)["y"]
        np.testing.assert_array_equal(answer, rounded(rounded(feeds["x"]) * np.float32(2)))
        np.testing.assert_array_equal(answer[:4], np.array([2.0, 2 + 8 * tie, -2.0, 2 + 4 * tie]))

    @pytest.mark.parametrize("opset", [12, 17])
    def test_a_layer_norm_is_rounded_inside(self, opset: int, tmp_path: Path) -> None:
        """The engine would fuse its nine operators into one, and round once."""
        model = saved(layer_norm(opset), tmp_path)
        feeds = random_feeds(model, whole(model))
        answer = run_placed(model, [ORT_BF16] * len(model.graph.operators), feeds)["y"]
        expected = rounded_by_hand(model, feeds)["y"]
        exact = evaluated(model, whole(model), feeds)["y"]
        # A mean may be summed in another order, and then be rounded to the neighbour.
        assert np.mean(answer == expected) > 0.9
        assert np.mean(answer == rounded(exact)) < 0.9

    @pytest.mark.parametrize("device", REALLY_BF16, ids=by_name)
    def test_a_real_network_is_near_fp32_and_not_the_same(self, device: Device, tmp_path: Path) -> None:
        require(device)
        model = saved_file(zoo_path("squeezenet"), tmp_path)
        cut = segment(model.graph, 0, len(model.graph.operators) - 2, "a")  # without the Softmax
        feeds, outputs = random_feeds(model, cut), empty_outputs(model, cut)
        build_session(model, cut, device).bind(feeds | outputs)(untimed)
        for name, expected in evaluated(model, cut, feeds).items():
            difference = np.abs(outputs[name] - expected)
            assert 1e-4 < difference.max() / np.abs(expected).max() < 0.1


def layer_norm(opset: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Pow", ["centred", "two"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["variance"], axes=[-1]),
        helper.make_node("Add", ["variance", "epsilon"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["deviation"]),
        helper.make_node("Div", ["centred", "deviation"], ["normed"]),
        helper.make_node("Mul", ["normed", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["y"]),
    ]
    weights: dict[str, Array] = {
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "scale": weight(64, seed=1),
        "shift": weight(64, seed=2),
    }
    return network(nodes, {"x": (8, 64)}, {"y": (8, 64)}, weights, opset=opset)


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino_session._core.cache_clear()
    model = saved(branching(), tmp_path)
    with pytest.raises(Failure, match=r"expected the extra: pip install 'shisha-rt\[openvino\]'"):
        build_session(model, whole(model), OPENVINO)
