"""Models that the tests of this folder serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.daemon_process import machine_file
from tests.serving.identity_model import write_identity_model


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_identity_model(tmp_path_factory.mktemp("identity"))


@pytest.fixture
def two_places(tmp_path: Path) -> Path:
    return machine_file(tmp_path, ["fast0", "slow0"])


@pytest.fixture
def four_places(tmp_path: Path) -> Path:
    return machine_file(tmp_path, ["fast0", "fast1", "slow0", "slow1"])
