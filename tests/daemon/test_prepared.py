"""What a daemon and the process that prepares its model say to each other: all of it arrives, and as it was."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shisha_rt.daemon.prepare import prepare
from shisha_rt.daemon.prepared import (
    FROM_PREPARER,
    TO_PREPARER,
    ModelPrepared,
    NoAccess,
    Preparation,
    PreparedModel,
    Refused,
)
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.host.cores import usable_cores
from tests.serving.identity_model import write_identity_model

PLACES: Final = "".join(
    f"[[place]]\nname = {name!r}\ncores = [{usable_cores()[0]}]\nspeed = {speed}\n{{devices}}"
    for name, speed in (("fast", 0.5), ("slow", 0.25))
)


def asked(folder: Path, head: str = "", devices: str = "", **settings: Any) -> Preparation:
    machine = parse_machine(head + PLACES.format(devices=devices), name="unlike", source="unlike")
    return Preparation(
        Settings(str(write_identity_model(folder)), **settings), machine, True, (logging.INFO, "%(message)s")
    )


def passed(order: Preparation) -> tuple[PreparedModel, PreparedModel]:
    """A prepared model, and what arrives of it."""
    arrived = TO_PREPARER.decode(TO_PREPARER.encode(order))
    assert arrived == order
    prepared = prepare(arrived, lambda _: None).for_serving
    ready = FROM_PREPARER.decode(FROM_PREPARER.encode(ModelPrepared(prepared)))
    assert isinstance(ready, ModelPrepared)
    return prepared, ready.model


def test_a_prepared_model_arrives_as_it_was(tmp_path: Path) -> None:
    prepared, arrived = passed(asked(tmp_path))
    assert arrived == prepared
    assert arrived.ready.rules == prepared.ready.rules


def test_so_do_costs_that_pace_a_machine_and_the_tuner_s_first_messages(tmp_path: Path) -> None:
    prepared, arrived = passed(asked(tmp_path, head='timing = "modelled"\n', strategy="shisha"))
    assert prepared.told_first
    assert arrived.told_first == prepared.told_first
    assert prepared.pacing is not None
    assert arrived.pacing is not None
    assert arrived.pacing.segment_cpu_s(0, 3, "fast") == prepared.pacing.segment_cpu_s(0, 3, "fast") > 0


def test_so_do_costs_of_operators_on_devices(tmp_path: Path) -> None:
    prepared, arrived = passed(asked(tmp_path, devices='devices = ["cpu_s", "pim"]\n', precision="any"))
    assert [*arrived.ready.operator_costs] == ["fast", "slow"]
    for place, costs in prepared.ready.operator_costs.items():
        assert arrived.ready.operator_costs[place].devices == costs.devices
        np.testing.assert_array_equal(arrived.ready.operator_costs[place].time_s, costs.time_s)
    assert arrived.ready.rules == prepared.ready.rules


@pytest.mark.parametrize(
    "error",
    [
        BadInput("x: expected y", Error.WRONG_VALUE),
        Failure("no worker", Error.CHILD_DIED),
    ],
)
def test_an_error_is_raised_as_it_was(error: BadInput | Failure) -> None:
    refused = FROM_PREPARER.decode(FROM_PREPARER.encode(Refused(isinstance(error, BadInput), str(error), error.kind)))
    assert isinstance(refused, Refused)
    raised = refused.error
    assert (type(raised), str(raised), raised.kind) == (type(error), str(error), error.kind)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file or directory", "/nowhere"), OSError("torn")])
def test_so_is_one_of_the_system(error: OSError) -> None:
    refused = FROM_PREPARER.decode(
        FROM_PREPARER.encode(NoAccess(error.errno, error.strerror or str(error), error.filename))
    )
    assert isinstance(refused, NoAccess)
    raised = refused.error
    assert (type(raised), str(raised), raised.filename) == (type(error), str(error), error.filename)
