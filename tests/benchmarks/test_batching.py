"""Servers that batch get a model for any number of frames, and answer each frame as by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.rigs.batching import open_batch
from benchmarks.servers.network import SETTINGS, Network
from shisha_rt.measure.compile import compile_model
from tests.stages.test_segments import residual

COUNT = 3


def test_a_model_of_one_frame_runs_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = residual(tmp_path)
    opened = open_batch(compile_model(path).model_folder, tmp_path / "open.onnx")
    (given,) = onnx.load(path).graph.input
    shape = [axis.dim_value for axis in given.type.tensor_type.shape.dim]
    inputs = [{"name": given.name, "shape": shape, "dtype": "<f4"}]

    def network(of: Path) -> Network:
        monkeypatch.setenv(SETTINGS, json.dumps({"path": str(of), "inputs": inputs, "folder": str(tmp_path)}))
        return Network()

    bodies = [frame.tobytes() for frame in np.random.default_rng(0).random((COUNT, *shape), np.float32)]
    expected, answers = [network(path).run(body) for body in bodies], network(opened).run_together(bodies)
    assert len(answers) == COUNT
    for answer, right in zip(answers, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(answer, np.float32), np.frombuffer(right, np.float32), 1e-5, 1e-5)
