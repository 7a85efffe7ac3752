"""Networks of integers, cut and on both engines: the whole one's answers, within a step of the output's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from shisha_rt.graph.spans import groups_of
from shisha_rt.ready.compile import Compiled, compile_model
from stages.engines.onnxruntime.compile import MODEL_FILE
from tests.graph.int8 import STEP, dynamic_network, qdq_network, qoperator_network, quantized_zoo
from tests.graph.networks import Array, weight, write
from tests.ready.test_compile import answer
from tests.stages.test_placed import SERIAL, model_of

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
    model, found = model_of(compiled, (SERIAL,)), dict(given)
    for run in groups_of(len(compiled.layers), cuts):
        first, last = compiled.index.operators_of(*run)
        found |= model.stage((run,), [SERIAL.name] * (last - first + 1)).compute(found)
    return {tensor.name: found[tensor.name] for tensor in compiled.model.graph.outputs}


def check_every_cut(path: Path, step: float) -> Compiled:
    """Of the engine's own form exactly, of the cleaned graph within `step`; returns the former."""
    compiled, plain = compile_model(path), compile_model(path, plain=True)
    (tensor,) = compiled.model.graph.inputs
    x = weight(*tensor.shape, seed=7)
    expected = plain_answers(path, x)
    assert all(value.std() > 0 for value in expected.values())
    for cuts in cuts_of(compiled):
        found = answer(compiled.engine_folder, [[run] for run in groups_of(len(compiled.layers), cuts)], x)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name} at {cuts}")
    for cuts in cuts_of(plain):
        found = in_placed_stages(plain, cuts, {tensor.name: x})
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1.01 * step, err_msg=f"{name} at {cuts}")
    return compiled


@pytest.mark.parametrize(("build", "cuts"), [(qdq_network, 3), (qoperator_network, 2), (dynamic_network, 1)])
def test_every_cut_of_small_networks(build: Build, cuts: int, tmp_path: Path) -> None:
    compiled = check_every_cut(write(build(), tmp_path), STEP)
    assert len(compiled.legal_cuts) == cuts == len(compiled.layers) - 1


@pytest.mark.long
@pytest.mark.parametrize(("name", "cuts"), [("squeezenet", 25), ("shufflenet", 49)])
def test_every_cut_of_a_quantised_zoo_network(name: str, cuts: int, tmp_path: Path) -> None:
    """Integers cross them all, and no layer has more to hand on than a quarter of what floats were."""
    path = quantized_zoo(name, "QDQ", tmp_path)
    compiled = check_every_cut(path, 1 / 255)
    assert len(compiled.legal_cuts) == cuts
    assert {entry.tensor.datatype for entry in compiled.index.crossing} == {"UINT8"}
    floats = compile_model(path.with_name(f"{name}.onnx"), plain=True).layers
    for layer, before in zip(compiled.layers[:-1], floats, strict=False):
        assert layer.out_bytes <= before.out_bytes / 4
        assert (layer.weight, layer.macs) == (before.weight, before.macs)


@pytest.mark.long
def test_weights_of_depthwise_convolutions_are_packed_too(tmp_path: Path) -> None:
    """The engine writes of them what it cannot read: see `engines.onnxruntime.align`."""
    compiled = compile_model(quantized_zoo("shufflenet", "QDQ", tmp_path))
    assert compiled.index.form == "prepacked"
    graph = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False).graph
    packed = [any(entry.key.startswith("prepacked") for entry in its.external_data) for its in graph.initializer]
    assert any(packed)
