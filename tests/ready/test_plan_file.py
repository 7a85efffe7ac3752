"""Plans from files: what `plan --json` prints is taken, and anything else gets one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from shisha_rt.errors import BadInput
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.ready.model_on_machine import ModelOnMachine
from shisha_rt.ready.plan_file import read_plan

NEEDS = tuple(map(frozenset, ((), (0,), (0,), (1, 2))))
RULES = PlanRules(4, ("cpu", "npu"), needs=NEEDS)


class _Ready:
    """What is asked of a model on a machine."""

    rules = RULES

    def unable(self, plan: Plan) -> list[str]:
        return [f"stage {i} cannot" for i, stage in enumerate(plan.stages) if stage.place == "npu" and stage.first == 3]


READY = cast(ModelOnMachine, _Ready())
FORK = Plan(
    (
        Stage(((0, 0),), (("cpu",),)),
        Stage(((1, 1),), (("cpu",),), (0,)),
        Stage(((2, 2),), (("npu",),), (0,)),
        Stage(((3, 3),), (("cpu",),), (1, 2)),
    )
)


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_written_is_read(whole: bool, tmp_path: Path) -> None:
    stages = written(FORK, service_s=[1, 2, 3, 4])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"stages": stages, "unused": [], "outcome": "feasible"} if whole else stages))
    assert read_plan(path, READY) == FORK


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON"),
        ("{}", "stages is missing"),
        ('{"stages": [{"first": 0}]}', "stages[0].places is missing"),
        ('[{"first": 0, "last": 3, "places": ["gpu"]}]', "it does not fit the model on this machine: stage 0"),
        ('[{"first": 0, "last": 2, "places": ["cpu"]}]', "layer 3 is in no stage"),
        ('[{"first": 0, "last": 9, "places": ["cpu"]}]', "the last one is 3"),
        ("[]", "the plan has no stages"),
        (json.dumps(written(Plan.of([(0, 2, "cpu"), (3, 3, "npu")]))), "stage 1 cannot"),
        ('[{"first": 0, "last": 2, "places": ["cpu"]}, {"first": 3, "last": 3, "places": ["npu"], "after": []}]',
         "stage 1 (layers 3-3) needs what layer 1 makes"),
    ],
)  # fmt: skip
def test_what_is_none(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadInput) as raised:
        read_plan(path, READY)
    assert str(raised.value).startswith(f"{path}: ")
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read .*expected stages as plan --json prints them"):
        read_plan(tmp_path / "none.json", READY)
