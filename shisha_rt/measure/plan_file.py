"""A plan from a file: the object that `plan --json` prints, or its `stages` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.checked import convert, decode_json
from shisha_rt.errors import BadInput
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan import form
from shisha_rt.plan.plan import Plan

_EXPECTED: Final = "stages as plan --json prints them"


class _Planned(msgspec.Struct, frozen=True):
    """Further keys are ignored: what a plan takes, for one, says nothing of what it is."""

    stages: tuple[form.WrittenStage, ...]


def read_plan(path: Path, ready: ModelOnMachine) -> Plan:
    """Raises BadInput for what cannot be read, is no plan, or is none of this model on this machine."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}), expected {_EXPECTED}") from None
    raw = decode_json(text, str(path), _EXPECTED)
    plan = form.read(convert({"stages": raw} if isinstance(raw, list) else raw, _Planned, str(path)).stages)
    problems = ready.rules.problems(plan) or ready.unable(plan)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadInput(f"{path}: it does not fit the model on this machine: {problems[0]}{more}")
    return plan
