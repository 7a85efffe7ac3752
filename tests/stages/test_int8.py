"""Networks of integers, cut and on both engines: the whole one's answers, within a step of the output's integers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.spans import groups_of
from stages.built.placed import PlacedStage
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from tests.measure.test_compile import answer
from tests.model.int8 import STEP, Parts, dynamic_network, qdq_network, qoperator_network, quantized_zoo
from tests.model.networks import Array, weight, write
from tests.processor import X86
from tests.stages.test_placed import SERIAL, model_of
from tests.stages.test_profile_devices import OPENVINO, WITHOUT_OPENVINO, job_of, profile

Build = Callable[[], onnx.ModelProto]


def plain_answers(path: Path, x: Array) -> dict[str, Array]:
    """Of ONNX Runtime on the file as it is."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (tensor,) = session.get_inputs()
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {tensor.name: x}), strict=True))


def cuts_of(compiled: Compiled) -> list[tuple[int, ...]]:
    """None, each alone, and all together."""
    legal = tuple(sorted(compiled.legal_cuts))
    return [(), *((cut,) for cut in legal), legal]


def in_placed_stages(compiled: Compiled, cuts: Sequence[int], given: Mapping[str, Array]) -> dict[str, Array]:
    model, values = model_of(compiled, (SERIAL,)), dict(given)
    for run in groups_of(len(compiled.layers), cuts):
        first, last = compiled.index.operators_of(*run)
        values |= model.stage((run,), [SERIAL.name] * (last - first + 1)).answers(values)
    return {tensor.name: values[tensor.name] for tensor in compiled.model.graph.outputs}


def check_every_cut(path: Path, step: float) -> Compiled:
    """Of the engine's own form exactly, of the cleaned graph within `step`; returns the former."""
    compiled, plain = compile_model(path), compile_model(path, plain="heavy")
    (tensor,) = compiled.model.graph.inputs
    x = weight(*tensor.shape, seed=7)
    expected = plain_answers(path, x)
    assert all(value.std() > 0 for value in expected.values())
    for cuts in cuts_of(compiled):
        answers = answer(compiled.engine_folder, [[run] for run in groups_of(len(compiled.layers), cuts)], x)
        for name, value in expected.items():
            np.testing.assert_array_equal(answers[name], value, err_msg=f"{name} at {cuts}")
    for cuts in cuts_of(plain):
        answers = in_placed_stages(plain, cuts, {tensor.name: x})
        for name, value in expected.items():
            np.testing.assert_allclose(answers[name], value, rtol=0, atol=1.01 * step, err_msg=f"{name} at {cuts}")
    return compiled


@pytest.mark.parametrize(("build", "cuts"), [(qdq_network, 3), (qoperator_network, 2), (dynamic_network, 1)])
def test_every_cut_of_small_networks(build: Build, cuts: int, tmp_path: Path) -> None:
    compiled = check_every_cut(write(build(), tmp_path), STEP)
    assert len(compiled.legal_cuts) == cuts == len(compiled.layers) - 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "form", "cuts"), [("squeezenet", "QDQ", 25), ("squeezenet", "QOperator", 25), ("shufflenet", "QDQ", 49)]
)
def test_every_cut_of_a_quantised_zoo_network(name: str, form: str, cuts: int, tmp_path: Path) -> None:
    """Integers cross them all, and no layer has more to hand on than a quarter of what floats were."""
    path = quantized_zoo(name, form, tmp_path)
    compiled = check_every_cut(path, 1 / 255)
    assert len(compiled.legal_cuts) == cuts
    assert {entry.tensor.datatype for entry in compiled.index.crossing} == {"UINT8"}
    floats = compile_model(path.with_name(f"{name}.onnx"), plain="heavy").layers
    for layer, before in zip(compiled.layers[:-1], floats, strict=False):
        assert layer.out_bytes <= before.out_bytes / 4
        assert (layer.weight, layer.macs) == (before.weight, before.macs)


@pytest.mark.long
def test_weights_of_depthwise_convolutions_are_packed_too(tmp_path: Path) -> None:
    """The engine writes of them what it cannot read: see `engines.onnxruntime.align`."""
    compiled = compile_model(quantized_zoo("shufflenet", "QDQ", tmp_path))
    assert compiled.index.form == "prepacked"
    graph = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False).graph
    packed = [any(entry.key.startswith("prepacked") for entry in array.external_data) for array in graph.initializer]
    assert any(packed)


@WITHOUT_OPENVINO
@pytest.mark.parametrize("build", [qdq_network, dynamic_network])
def test_another_engine_is_a_step_apart_at_most_and_its_stages_say_so(build: Build, tmp_path: Path) -> None:
    """In what is left to it: on x86 processors without VNNI engines saturate, and that is not for it."""
    plain = compile_model(write(build(), tmp_path), plain="heavy")
    (tensor,) = plain.model.graph.inputs
    x = weight(*tensor.shape, seed=7)
    expected = plain_answers(tmp_path / "tiny.onnx", x)
    model = model_of(plain, (SERIAL, OPENVINO))
    whole = ((0, len(plain.layers) - 1),)
    operators = range(len(plain.model.graph.operators))

    def is_near(stage: PlacedStage) -> bool:
        answers = stage.answers({tensor.name: x})
        return all(np.allclose(answers[name], value, rtol=2e-2, atol=1.01 * STEP) for name, value in expected.items())

    _, profiled = profile(job_of(plain, (SERIAL, OPENVINO)))
    left_out = profiled.incapable[1] if profiled.incapable else ()
    stage = model.stage(whole, [SERIAL.name if i in left_out else OPENVINO.name for i in operators])
    assert is_near(stage)
    assert stage.difference < 0.05
    alone = model.stage(whole, [OPENVINO.name for _ in operators])
    assert is_near(alone) == (not left_out)
    assert model.stage(whole, [SERIAL.name for _ in operators]).difference == 0


@WITHOUT_OPENVINO
@X86
def test_what_an_engine_saturates_is_not_for_it_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that has VNNI too OpenVINO can be kept from it."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    plain = compile_model(write(qdq_network(), tmp_path), plain="heavy")
    _, profiled = profile(job_of(plain, (SERIAL, OPENVINO)))
    for_onnxruntime, left_out = profiled.incapable
    assert for_onnxruntime == ()
    types = [operator.op_type for operator in plain.model.graph.operators]
    assert {types[i] for i in left_out} <= {"Conv", "Gemm"}
    assert left_out[0] == types.index("Conv")  # ten steps of 255 apart
    assert profiled.reasons[0] == ""
    first = plain.model.graph.operators[left_out[0]].name
    assert re.fullmatch(
        rf".* device openvino: .* Conv '{first}' are \d+\.\d% .* 1\.6%(, and so .* for \d more)?",
        profiled.reasons[1],
    )


def grouped(folder: Path) -> Path:
    """A convolution between integers in groups of 68 channels: too much for OpenVINO 2026.4, or computed wrong."""
    net = Parts()
    floats = net.rounded("x")
    result = net.add("Conv", [floats, net.weight_floats("w", 272, 68, 1, 1)], "a", group=4)
    net.add("Identity", [net.rounded(result)], "y")
    return write(net.network({"x": [1, 272, 14, 14]}, {"y": [1, 272, 14, 14]}), folder)


@WITHOUT_OPENVINO
def test_what_another_engine_cannot_make_or_makes_wrong_is_not_for_it(tmp_path: Path) -> None:
    """Whatever it can on this processor. By itself it computes the convolution, as floats."""
    compiled = compile_model(grouped(tmp_path), plain="heavy")
    (tensor,) = compiled.model.graph.inputs
    x = weight(*tensor.shape, seed=7)
    (expected,) = plain_answers(tmp_path / "tiny.onnx", x).values()
    operators = compiled.model.graph.operators
    try:
        stage = model_of(compiled, (OPENVINO,)).stage(((0, 0),), [OPENVINO.name] * len(operators))
        (output,) = stage.answers({tensor.name: x}).values()
        is_right = bool(np.abs(output - expected).max() < 2.5 * STEP)
    except RuntimeError:
        is_right = False
    _, profiled = profile(job_of(compiled, (SERIAL, OPENVINO)))
    convolution = next(i for i, operator in enumerate(operators) if operator.op_type == "Conv")
    assert profiled.incapable == (() if is_right else ((), (convolution,)))


@WITHOUT_OPENVINO
def test_operators_that_another_engine_cannot_read_are_not_for_it(tmp_path: Path) -> None:
    """QLinearConv with a scale for each filter, in OpenVINO 2026.4. Without VNNI it computes QLinearMatMul wrong."""
    compiled = compile_model(write(qoperator_network(), tmp_path), plain="heavy")
    _, profiled = profile(job_of(compiled, (SERIAL, OPENVINO)))
    kinds = [compiled.model.graph.operators[i].op_type for left_out in profiled.incapable for i in left_out]
    assert set(kinds) <= {"QLinearConv", "QLinearMatMul"}
