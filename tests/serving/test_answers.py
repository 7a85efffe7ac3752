"""Answers through pipelines of two, three and four processes against one session of the whole model.

Bit for bit against the optimised graph that the stages are cuts of, and within a tolerance against the cleaned model
as it stands. A Softmax hides much of what is wrong before it, so its input is made an output of the model as well.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.zoo import SHIPPED, zoo_path
from shisha_rt.plan.plan import Plan
from shisha_rt.tensors import NUMPY_OF
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from stages.engines.onnxruntime.options import as_built_options
from tests.serving.daemon_process import DaemonProcess

Array = npt.NDArray[Any]

MODELS: Final = (
    "squeezenet",
    *(pytest.param(name, marks=pytest.mark.long) for name in SHIPPED if name != "squeezenet"),
)
PLACES: Final = ("fast0", "slow0", "fast1", "slow1")
FRAMES: Final = 3
SEED: Final = 4


@pytest.mark.parametrize("name", MODELS)
def test_every_pipeline_answers_as_the_whole_model(name: str, four_places: Path, tmp_path: Path) -> None:
    compiled = compile_model(_with_logits(name, tmp_path))
    frames = [_frame(compiled, seed) for seed in range(FRAMES)]
    whole = [_run_whole(compiled, frame) for frame in frames]
    for outputs, unoptimised in zip(whole, [_run_clean(compiled, frame) for frame in frames], strict=True):
        for key, value in outputs.items():
            np.testing.assert_allclose(value, unoptimised[key], rtol=1e-4, atol=_atol(unoptimised[key]))
    rng = random.Random(SEED)
    with DaemonProcess(tmp_path, tmp_path / f"{name}.onnx", "--machine", four_places) as daemon:
        for stage_count in (2, 3, 4):
            plan = _random_plan(compiled, stage_count, rng)
            settled = daemon.control.set_plan(plan)
            assert settled["outcome"] == "live", settled["reason"]
            with daemon.control.stream() as stream:
                answers = list(stream.run(frames))
            assert {answer.epoch for answer in answers} == {settled["epoch"]}
            for answer, outputs in zip(answers, whole, strict=True):
                assert answer.outputs.keys() == outputs.keys()
                for key, value in outputs.items():
                    np.testing.assert_array_equal(answer.outputs[key], value, err_msg=f"{key} under {plan}")


def _with_logits(name: str, folder: Path) -> Path:
    """The network with what goes into its final Softmax, if it has one, as a second output."""
    model = onnx.load(zoo_path(name))
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        shape = [entry.dim_value for entry in model.graph.output[0].type.tensor_type.shape.dim]
        logits = helper.make_tensor_value_info(last.input[0], TensorProto.FLOAT, shape)
        model.graph.output.append(logits)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def _atol(values: Array) -> float:
    """1e-5, for outputs whose values go up to about 1; logits reach 15, and float32 rounds in proportion."""
    return 1e-5 * max(1.0, float(np.abs(values).max()))


def _random_plan(compiled: Compiled, stage_count: int, rng: random.Random) -> Plan:
    cuts = sorted(rng.sample(sorted(compiled.legal_cuts), stage_count - 1))
    firsts, lasts = [0, *(cut + 1 for cut in cuts)], [*cuts, len(compiled.layers) - 1]
    return Plan.of(zip(firsts, lasts, rng.sample(PLACES, stage_count), strict=True))


def _frame(compiled: Compiled, seed: int) -> Array:
    (tensor,) = compiled.model.graph.inputs
    values = np.random.default_rng(seed).standard_normal(tensor.shape)
    return values.astype(NUMPY_OF[tensor.datatype])


def _run_whole(compiled: Compiled, frame: Array) -> dict[str, Array]:
    options = as_built_options(str(compiled.engine_folder))
    return _run(compiled.engine_folder / MODEL_FILE, options, frame)


def _run_clean(compiled: Compiled, frame: Array) -> dict[str, Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return _run(compiled.model_folder / "clean.onnx", options, frame)


def _run(path: Path, options: ort.SessionOptions, frame: Array) -> dict[str, Array]:
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names: Sequence[str] = [value.name for value in session.get_outputs()]
    results = session.run(names, {session.get_inputs()[0].name: frame})
    return {name: np.asarray(value) for name, value in zip(names, results, strict=True)}
