"""Outputs whose shape depends on the data, through a daemon: of a model that is served in two shapes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

from shisha_rt.client import Answer, Client, Internal
from shisha_rt.plan.plan import Plan
from tests.model.networks import network
from tests.serving.daemon_process import DaemonProcess, machine_file

CHANNELS = 4
ROOM_BYTES = 1024  # of 32 positions: four coordinates of eight bytes each
WIDTHS = (10, 100)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One output is the input, and `where` has the positions of what is above 0, found in its last layer."""
    unit = np.eye(CHANNELS, dtype=np.float32)[:, :, None, None]
    nodes = [
        helper.make_node("Conv", ["x", "one"], ["a"], name="one"),
        helper.make_node("Conv", ["a", "two"], ["y"], name="two"),
        helper.make_node("Conv", ["y", "three"], ["b"], name="three"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("NonZero", ["c"], ["where"]),
    ]
    weights: dict[str, npt.NDArray[Any]] = {"one": 2 * unit, "two": unit / 2, "three": 4 * unit}
    model = network(nodes, {"x": [1, CHANNELS, 1, "w"]}, {"y": [1, CHANNELS, 1, "w"]}, weights)
    model.graph.output.append(helper.make_tensor_value_info("where", onnx.TensorProto.INT64, [4, None]))
    file = tmp_path_factory.mktemp("found") / "found.onnx"
    onnx.save(model, file)
    return file


def frame(width: int, count: int, seed: int) -> npt.NDArray[np.float32]:
    values = -np.ones(CHANNELS * width, np.float32)
    values[np.random.default_rng(seed).choice(values.size, count, replace=False)] = seed + 1
    return values.reshape(1, CHANNELS, 1, width)


def check(outcome: Any, x: npt.NDArray[np.float32]) -> None:
    """Its positions, in the order of memory, or an error that says how many bytes they are."""
    where = np.array(np.nonzero(x > 0))
    if where.nbytes > ROOM_BYTES:
        assert isinstance(outcome, Internal)
        assert f"output 'where': {where.nbytes} bytes" in outcome.message
        assert "--max-output-bytes" in outcome.message
    else:
        assert isinstance(outcome, Answer)
        np.testing.assert_array_equal(outcome.outputs["where"], where)
        np.testing.assert_array_equal(outcome.outputs["y"], x)


def test_each_answer_has_its_own_shape_or_its_own_error(path: Path, tmp_path: Path) -> None:
    options = [part for width in WIDTHS for part in ("--shape", f"x=1x{CHANNELS}x1x{width}")]
    options += ["--max-output-bytes", str(ROOM_BYTES), "--machine", str(machine_file(tmp_path, ["a", "b"]))]
    sizes = [(10, 3), (100, 32), (100, 33), (10, 0), (100, 0), (10, 40), (100, 1), (10, 32), (100, 400), (10, 1)]
    frames = [frame(width, count, seed) for seed, (width, count) in enumerate(sizes)]
    with DaemonProcess(tmp_path, path, *options) as daemon, Client(daemon.endpoint) as client:
        model = client.metadata()["model"]
        shapes = {output["name"]: output["shape"] for output in model["outputs"]}
        assert shapes == {"y": [1, CHANNELS, 1, -1], "where": [4, -1]}
        for plan in (
            Plan.of([(0, 2, "a")]),
            Plan.of([(0, 0, "a"), (1, 2, "b")]),
            Plan.chain([(0, 1, [["a"]]), (2, 2, [["b"]])]),
            Plan.chain([(0, 2, [["a"], ["b"]])]),
        ):
            settled = client.set_plan(plan)
            assert settled["outcome"] == "live", settled
            with client.stream() as stream:
                for x, outcome in zip(frames, stream.run(frames, errors="return"), strict=True):
                    check(outcome, x)
        too_much = client.infer(frames[8], outputs=["y"])
        np.testing.assert_array_equal(too_much.output, frames[8])
        assert daemon.control.status()["frames"]["answered"]["INTERNAL"] == 3 * 4
