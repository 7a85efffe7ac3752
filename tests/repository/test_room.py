"""Memory that one more model takes is counted before it is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shisha_rt.core.dealer import Terms
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import FailedPrecondition
from shisha_rt.repository import versions
from shisha_rt.repository.entries import ModelEntry
from tests.wording import raised


def test_external_weights_and_the_limit_of_a_control_group_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"... location net.weights ...")
    for name in ("net.weights", "another.weights"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 100 << 20)
    entry = ModelEntry("net", "1", Settings(str(model)), Terms())
    monkeypatch.setattr(versions, "available_memory_bytes", lambda: 401 << 20)
    versions._check_room(entry)
    monkeypatch.setattr(versions, "available_memory_bytes", lambda: 400 << 20)
    with raised(FailedPrecondition, Error.LOAD_FAILED):
        versions._check_room(entry)


def test_a_file_beside_it_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"...")
    (tmp_path / "\udcff").touch()
    versions._check_room(ModelEntry("net", "1", Settings(str(model)), Terms()))
