"""A plan from a file: the object that `plan --json` prints, or its `stages` alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Final

import msgspec

from shisha_rt.checked import convert, decode_json, refuse
from shisha_rt.errors import BadInput, Error
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.layers import layer_of_operator, operators_of
from shisha_rt.model.split import Split
from shisha_rt.placement.shard_costs import split_stage_s
from shisha_rt.plan import form
from shisha_rt.plan.plan import Plan, Stage

_EXPECTED: Final = "stages as plan --json prints them"


class _Planned(msgspec.Struct, frozen=True):
    """Unknown keys are ignored, such as a plan's times; but not keys that are nearly right, which may be misspelt."""

    stages: Annotated[tuple[form.WrittenStage, ...], msgspec.Meta(min_length=1, max_length=form.MOST_STAGES)]


def plan_of_file(path: Path) -> Plan:
    """Raises BadInput for what cannot be read, or is no plan."""
    try:
        text = path.read_bytes()
    except OSError as error:
        why = f"{path}: cannot be read ({error.strerror}), expected {_EXPECTED}"
        raise BadInput(why, Error.UNREADABLE_FILE) from None
    raw = decode_json(text, str(path), _EXPECTED)
    raw = {"stages": raw} if isinstance(raw, list) else raw
    stages = convert(raw, _Planned, str(path)).stages
    assert isinstance(raw, dict)
    misspelt = (
        f"stages[{number}].{key}: no such key, expected {meant}"
        for number, stage in enumerate(raw["stages"])
        for key, meant in form.misspelt(stage)
    )
    refuse(misspelt, str(path), Error.WRONG_VALUE)
    return form.read(stages)


def read_plan(path: Path, ready: ModelOnMachine) -> Plan:
    """Raises BadInput as `plan_of_file` does, and for a plan that does not fit this model on this machine."""
    plan = plan_of_file(path)
    problems = ready.rules.problems(plan) or _unable(ready, plan)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadInput(f"{path}: it does not fit the model on this machine: {problems[0]}{more}", Error.PLAN_UNFIT)
    return plan


def _unable(ready: ModelOnMachine, plan: Plan) -> list[str]:
    """Faults of a plan that passes the rules: stages that their places' devices cannot run."""
    faults = []
    for index, stage in enumerate(plan.stages):
        for place in stage.leads if ready.operator_costs else ():
            if stage.split is not None:
                faults += _unable_shard(ready, index, stage, stage.split, place)
                continue
            for run in stage.work:
                first, last = operators_of(ready.compiled.layers, *run)
                able = ready.operator_costs[place].part(first, last).capable
                if not able.all():
                    operator = ready.compiled.model.graph.operators[first + able.tolist().index(False)]
                    what = f"{operator.op_type} ({operator.name!r})"
                    faults.append(f"stage {index} is on {place}, which cannot run its operator {what}")
    return faults


def _unable_shard(ready: ModelOnMachine, index: int, stage: Stage, split: Split, place: str) -> list[str]:
    (device,) = ready.devices[place]
    layers = layer_of_operator(ready.compiled.layers)
    seconds = split_stage_s(ready.compiled.model.graph, layers, split, stage.work, device)
    if seconds is None or math.isfinite(seconds):
        return []
    return [f"stage {index} is on {place}, which cannot run {split} of layers {split.span[0]}-{split.span[1]}"]
