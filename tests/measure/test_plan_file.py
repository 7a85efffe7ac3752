"""Plans from files: what `plan --json` prints is taken, and anything else gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.plan_file import read_plan
from shisha_rt.papers.partitiontuner.partition_profile import processor_costs
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan, Stage
from tests.serving.identity_model import write_branching_identity_model
from tests.serving.placed import described, machine_of
from tests.wording import raised

FORK = Plan(
    (
        Stage(((0, 0),), (("cpu",),)),
        Stage(((1, 6),), (("npu",),), (0,)),
        Stage(((7, 9),), (("cpu",),), (0,)),
        Stage(((10, 11),), (("cpu",),), (1, 2)),
    )
)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> ModelOnMachine:
    """A convolution, three branches of three, a Concat (operator 10) and a convolution; the NPU runs convolutions."""
    folder = tmp_path_factory.mktemp("ready")
    devices = {"cpu": [described(folder, "general", 1e-3, "*")], "npu": [described(folder, "special", 1e-3, "Conv")]}
    machine = load_machine(str(machine_of(folder, **devices)))
    return make_ready(write_branching_identity_model(folder), machine, kind="operators")


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_written_is_read(ready: ModelOnMachine, whole: bool, tmp_path: Path) -> None:
    stages = written(FORK, service_s=[1, 2, 3, 4])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"stages": stages, "unused": [], "outcome": "feasible"} if whole else stages))
    assert read_plan(path, ready) == FORK


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON"),
        ("{}", "stages is missing"),
        ('{"stages": [{"first": 0}]}', "stages[0].places is missing"),
        ('[{"first": 0, "last": 11, "places": ["gpu"]}]', "on this machine: stage 0"),
        ('[{"first": 0, "last": 10, "places": ["cpu"]}]', "layer 11 is in no"),
        ('[{"first": 0, "last": 19, "places": ["cpu"]}]', "last one is 11"),
        ("[]", "stages = []"),
        ('[{"first": 0, "last": 11, "places": ["cpu"], "engin": "openvino"}]', "stages[0].engin: no such key"),
        ('[{"first": 0, "last": 11, "places": ["cpu"], "engine": "tvm"}]', "'tvm'; expected onnxruntime, "),
        (
            '[{"first": 0, "last": 9, "places": ["cpu"]}, {"first": 10, "last": 11, "places": ["npu"]}]',
            "stage 1 is on",
        ),
        ('[{"first": 0, "last": 10, "places": ["cpu"]}, {"first": 11, "last": 11, "places": ["npu"], "after": []}]',
         "stage 1 (layers 11-11) needs what layer 10 makes"),
    ],
)  # fmt: skip
def test_what_is_none(ready: ModelOnMachine, text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadInput) as raised:
        read_plan(path, ready)
    assert str(raised.value).startswith(f"{path}: ")
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(ready: ModelOnMachine, tmp_path: Path) -> None:
    with raised(BadInput, Error.UNREADABLE_FILE, match=r"cannot be read .*expected stages as plan --json prints them"):
        read_plan(tmp_path / "none.json", ready)


def test_groups_where_nothing_is_measured(ready: ModelOnMachine) -> None:
    with raised(BadInput, Error.DEVICE_UNFIT, match=r"^group Conv\+Relu: .* has no measured"):
        processor_costs(ready, groups=["Conv+Relu"])
    assert processor_costs(ready).measured == 0
