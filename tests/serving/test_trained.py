"""The zoo's trained networks through a daemon, under plans of copies, teams and branches: as plain ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest

from shisha_rt.measure.compile import compile_model
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import zoo_path
from tests.model.networks import run
from tests.real import REAL, drawn_text
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.random_plans import Cuttable

pytestmark = REAL

PLACES: Final = ("a", "b", "c", "d")
TEXTS: Final = ("copy 24", "a team", "Branches", "11:45")


@pytest.mark.parametrize(
    ("name", "dims", "count"),
    [
        ("text_classifier", {}, 3),
        pytest.param("text_classifier", {"width": 96}, 40, marks=pytest.mark.long),
        pytest.param("text_detector", {"height": 96}, 40, marks=pytest.mark.long),
        pytest.param("text_recogniser", {}, 40, marks=pytest.mark.long),
    ],
)
def test_random_plans_answer_as_plain_onnx_runtime(
    name: str, dims: Mapping[str, int], count: int, tmp_path: Path
) -> None:
    compiled = compile_model(zoo_path(name), InputSizes(dims))
    (tensor,) = compiled.model.graph.inputs
    frames = [{tensor.name: drawn_text(tensor.shape, text)} for text in TEXTS]
    network = onnx.load(zoo_path(name))
    expected = [run(network, frame)[0] for frame in frames]
    cuttable = Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs)
    options = [word for axis, size in dims.items() for word in ("--dim", f"{axis}={size}")]
    rng = random.Random(count)
    with DaemonProcess(tmp_path, f"zoo:{name}", *options, "--machine", machine_file(tmp_path, PLACES)) as daemon:
        for _ in range(count):
            plan = cuttable.random_plan(rng, PLACES)
            settled = daemon.control.set_plan(plan)
            assert settled["outcome"] == "live", settled["reason"]
            with daemon.control.stream() as stream:
                answers = list(stream.run(frames))
            assert {answer.epoch for answer in answers} == {settled["epoch"]}
            for answer, value in zip(answers, expected, strict=True):
                np.testing.assert_allclose(answer.output, value, rtol=1e-4, atol=1e-5, err_msg=str(plan))
