"""A model served in several shapes at once: frames of all of them through one plan after another, and deaths between.

The network answers each frame with its input, bit for bit, whatever its width.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

from shisha_rt.client import Answer, Client, InvalidArgument
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.plan.plan import Plan
from tests.serving.changed_plans import Kills
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import CHANNELS, frame_of, write_branching_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import shared_runs
from tests.serving.random_plans import Cuttable
from tests.stages.test_profile_devices import WITHOUT_OPENVINO

PLACES: Final = ("a", "b", "c", "d")
SHAPES: Final = ((1, CHANNELS, 4, 4), (1, CHANNELS, 4, 9), (1, CHANNELS, 4, 1))
OPTIONS: Final = [part for shape in SHAPES for part in ("--shape", f"x={'x'.join(map(str, shape))}")]
KILL_EVERY: Final = 10


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_branching_identity_model(tmp_path_factory.mktemp("wide"))
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[3].dim_param = "width"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def daemon(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("shapes")
    with DaemonProcess(folder, wide, *OPTIONS, "--machine", machine_file(folder, PLACES)) as process:
        yield process


def frames_by_shape(status: dict[str, Any]) -> dict[tuple[int, ...], int]:
    return {tuple(shape["inputs"]["x"]): shape["frames"] for shape in status["model"]["shapes"]}


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.long)])
def test_mixed_frames_through_changing_plans_and_deaths(daemon: DaemonProcess, wide: Path, count: int) -> None:
    compiled = compile_shapes(wide, [InputSizes(shapes={"x": shape}) for shape in SHAPES])
    cuttable = Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.needs)
    rng, kills = random.Random(count), Kills(daemon, PLACES)
    before = daemon.control.status()
    loads = [Load(daemon.endpoint, i, streams=2, shape=shape) for i, shape in enumerate(SHAPES)]
    with loads[0], loads[1], loads[2]:
        for number in range(count):
            if number % KILL_EVERY == KILL_EVERY - 1:
                kills.kill_next()
            end = daemon.control.set_plan(cuttable.random_plan(rng, PLACES))
            assert end["outcome"] in ("live", "dropped"), end
            for load in loads:
                load.wait_for_answers(2)
    assert_kept(*loads)
    kills.wait_until_noticed()
    after = daemon.control.status()
    counted = {shape: frames - frames_by_shape(before)[shape] for shape, frames in frames_by_shape(after).items()}
    assert counted == {shape: load.results for shape, load in zip(SHAPES, loads, strict=True)}


def test_a_client_learns_the_shapes_and_may_mix_them(daemon: DaemonProcess) -> None:
    daemon.wait_for_workers()
    with Client(daemon.endpoint) as client:
        model = client.metadata()["model"]
        assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, CHANNELS, 4, -1]}]
        assert model["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, CHANNELS, 4, -1]}]
        assert model["shapes"] == [{"x": list(shape)} for shape in SHAPES]
        assert client.set_plan(Plan.of([(0, 0, "a"), (1, 10, "b")]))["outcome"] == "live"
        frames = [frame_of(number, SHAPES[number % 3]) for number in range(30)]
        with client.stream() as stream:
            for frame, answer in zip(frames, stream.run(frames), strict=True):
                assert isinstance(answer, Answer)
                np.testing.assert_array_equal(answer.output, frame)
        served = ", ".join(OPTIONS[1::2])
        with pytest.raises(
            InvalidArgument, match=f"shapes 'x=1x{CHANNELS}x4x2' are not served; expected one of {served}"
        ):
            client.infer(frame_of(0, (1, CHANNELS, 4, 2)))
        assert client.infer(frame_of(1, SHAPES[1])).output.shape == SHAPES[1]


@WITHOUT_OPENVINO
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_frames_of_every_shape_share_runs_on_openvino(wide: Path, tmp_path: Path) -> None:
    """With copies, and with a team of two. In the largest network for several frames, whose number is open."""
    with DaemonProcess(tmp_path, wide, *OPTIONS, "--batch", 12) as daemon:
        names = list(daemon.wait_for_workers())[:2]
        for places in names, [names]:
            stage = {"first": 0, "last": 10, "places": places, "engine": "openvino", "batch": 12}
            before = shared_runs(daemon.metrics)
            end = daemon.control.set_plan([stage])
            assert end["outcome"] == "live", end
            loads = [Load(daemon.endpoint, i, streams=4, depth=8, shape=shape) for i, shape in enumerate(SHAPES)]
            with loads[0], loads[1], loads[2]:
                for load in loads:
                    load.wait_for_answers(40)
            assert_kept(*loads)
            runs, frames = (now["0"] - then["0"] for now, then in zip(shared_runs(daemon.metrics), before, strict=True))
            assert frames > runs > 0
