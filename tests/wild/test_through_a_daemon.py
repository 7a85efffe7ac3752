"""The oddest of them as a user has them served: a daemon of two places, the whole on one, then cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.measure.compile import compile_model
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.wild.odd_networks import RATE, SERVED, two_rates
from tests.wild.test_odd_networks import FRAMES, made_up, plain, saved


def test_random_frames_have_the_number_that_the_network_asks_for(tmp_path: Path) -> None:
    path = saved(two_rates(), tmp_path, "two_rates")
    with DaemonProcess(tmp_path, path, "--machine", machine_file(tmp_path, ["fast0"])) as daemon:
        metadata = daemon.control.call("model_metadata")
        assert metadata["inputs"][1] == {"name": "rate", "datatype": "INT64", "shape": [], "made_up": RATE}
        with daemon.control.stream() as stream:
            answers = list(stream.run(random_frames(model_inputs(metadata), 3, seed=0)))
        assert [answer.outputs["y"].shape for answer in answers] == [(1, 4)] * 3


@pytest.mark.parametrize(
    "name",
    [
        "suppressed_boxes",
        "inputs_of_all_types",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("strange_names", "lstm_with_state", "if_in_if")),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("nothing_out", "scalar_input", "straight_through")),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("narrow_weights", "sequence_inside")),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("trees_and_scalers", "constant_output")),
    ],
)
def test_answers(name: str, tmp_path: Path) -> None:
    path = saved(SERVED[name](), tmp_path, name)
    compiled = compile_model(path)
    frames = [{spec.name: made_up(spec, seed) for spec in compiled.index.inputs} for seed in range(FRAMES)]
    unread = {"unused": np.zeros(2, np.int64)} if name == "straight_through" else {}
    expected = plain(path, [frame | unread for frame in frames])
    last, cut = len(compiled.layers) - 1, compiled.index.legal_cuts[0]
    whole = Plan.of([(0, last, "fast0")])
    halves = Plan.of([(0, cut, "slow0"), (cut + 1, last, "fast0")])
    with DaemonProcess(tmp_path, path, "--machine", machine_file(tmp_path, ["fast0", "slow0"])) as daemon:
        for plan in (whole, halves):
            settled = daemon.control.set_plan(plan)
            assert settled["outcome"] == "live", settled["reason"]
            with daemon.control.stream() as stream:
                answers = list(stream.run(frames))
            for answer, right in zip(answers, expected, strict=True):
                assert answer.outputs.keys() == right.keys()
                for output, value in right.items():
                    assert answer.outputs[output].dtype == value.dtype
                    assert answer.outputs[output].shape == value.shape
                    np.testing.assert_allclose(answer.outputs[output], value, rtol=1e-2, atol=1e-2)
