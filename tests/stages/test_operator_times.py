"""Times per operator by the engines' own profilers: one for each, in their places, fused ones with their hosts."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import onnx
import pytest
from onnx import helper

from shisha_rt.machine.device import Device, Family
from shisha_rt.model.zoo import zoo_path
from shisha_rt.placement.segments import segment
from stages.built.clean_model import CleanModel
from stages.engines.operator_times import operator_times
from stages.engines.session import Threads
from tests.model.networks import network, weight
from tests.stages.clean_models import saved, saved_file

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO comes with the extra `openvino`"
)
ORT = Device("ort", "test", "onnxruntime", "ort", "fp32")
OPENVINO = Device("openvino", "test", "openvino", "openvino", "fp32")
ENGINES = [pytest.param(ORT, id="ort"), pytest.param(OPENVINO, id="openvino", marks=needs_openvino)]
ROUNDS = 3
MOST_PROFILES = 30


def heavy_and_light() -> onnx.ModelProto:
    """Operators: 0 MaxPool, 1 Conv (76 million products), 2 Relu (fused into it), 3 pool, 4 Flatten, 5 Relu, and on.

    Inputs have 32 channels, to be seen by every engine as worth a blocked format.
    """
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("GlobalMaxPool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    weights = {"w": weight(64, 32, 3, 3), "v": weight(64, 10)}
    return network(nodes, {"x": (1, 32, 128, 128)}, {"y": (1, 10)}, weights)


def times(
    model: CleanModel, device: Device, first: int, last: int, threads: int = 1, heaviest: int | None = None
) -> tuple[float, ...]:
    """The least of two profiles, as a pause of the host may hit any operator.

    Of more, if `heaviest` is told, until that one takes most: on a busy host pauses hit most profiles.
    """
    part = segment(model.graph, first, last, device.name)
    least = [math.inf] * (last - first + 1)
    for number in range(1, MOST_PROFILES + 1):
        profile = operator_times(model, part, device, Threads(threads), ROUNDS)
        least = [min(times_s) for times_s in zip(least, profile, strict=True)]
        if number >= 2 and (heaviest is None or least[heaviest] == max(least)):
            break
    return tuple(least)


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("threads", [1, 2])
def test_one_for_each_operator_and_the_heavy_one_takes_most(device: Device, threads: int, tmp_path: Path) -> None:
    model = saved(heavy_and_light(), tmp_path)
    times_s = times(model, device, 0, 7, threads, heaviest=1)
    assert len(times_s) == 8
    assert min(times_s) >= 0
    assert times_s[1] == max(times_s)
    assert times_s[1] > 10 * times_s[5]


@pytest.mark.parametrize("device", ENGINES)
def test_a_fused_operators_time_is_its_hosts(device: Device, tmp_path: Path) -> None:
    model = saved(heavy_and_light(), tmp_path)
    assert times(model, device, 0, 7)[2] == 0
    assert times(model, device, 2, 7)[0] > 0


@pytest.mark.parametrize("device", ENGINES)
def test_operators_are_numbered_from_the_segments_first(device: Device, tmp_path: Path) -> None:
    model = saved(heavy_and_light(), tmp_path)
    times_s = times(model, device, 1, 3, heaviest=0)
    assert len(times_s) == 3
    assert max(times_s) == times_s[0] > 0


@pytest.mark.parametrize("device", ENGINES)
def test_a_real_networks_convolutions_take_most(device: Device, tmp_path: Path) -> None:
    model = saved_file(zoo_path("squeezenet"), tmp_path)
    operators = model.graph.operators
    times_s = times(model, device, 0, len(operators) - 1)
    by_type: dict[str, float] = {}
    for operator, time_s in zip(operators, times_s, strict=True):
        by_type[operator.op_type] = by_type.get(operator.op_type, 0.0) + time_s
    assert by_type["Conv"] > 0.5 * sum(times_s)
    convolutions = [i for i, operator in enumerate(operators) if operator.op_type == "Conv"]
    assert all(times_s[i] > 0 for i in convolutions)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(heavy_and_light(), tmp_path)
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    before = sorted(tmp_path.rglob("*"))
    times(model, ORT, 0, 7)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(Device("cpu", "test", "onnxruntime", "dram", "fp32", families=(Family(frozenset(), (), ()),))),
        pytest.param(Device("odd", "test", "onnxruntime", "dram", "bf16")),
    ],
    ids=["described", "emulated precision"],
)
def test_only_engines_of_this_host_are_profiled(device: Device, tmp_path: Path) -> None:
    model = saved(heavy_and_light(), tmp_path)
    with pytest.raises(ValueError, match=device.name):
        times(model, device, 0, 7)


@pytest.mark.parametrize("device", ENGINES)
def test_a_product_that_takes_in_what_surrounds_it_keeps_its_time(device: Device, tmp_path: Path) -> None:
    """Engines name such a node after the addition, or begin it at the transposition."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Add", ["b", "v"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["c", "d"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    weights = {"w": weight(512, 512), "v": weight(512)}
    model = saved(network(nodes, {"x": (1, 512, 64)}, {"y": (1, 64, 64)}, weights), tmp_path)
    times_s = times(model, device, 0, 5, heaviest=1)
    assert max(times_s) == times_s[1]
    assert times_s[2] == 0
    assert times_s[4] > 0
