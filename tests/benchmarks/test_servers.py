"""The network that other servers serve, by the settings of one of several networks and of one alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.network import SETTINGS, Network
from tests.serving.identity_model import SHAPE, frame_of, write_identity_model


@pytest.mark.parametrize("name", ["alone", "first", "second"])
def test_the_network_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Ray Serve's settings have no further networks: `cluster serve` ended with that."""
    inputs = [{"name": "x", "shape": SHAPE, "dtype": "<f4"}]
    path = str(write_identity_model(tmp_path))
    workers = tmp_path / "workers"
    workers.mkdir()
    settings: dict[str, Any] = {"path": path, "inputs": inputs, "folder": str(workers)}
    if name != "alone":
        absent = {"path": str(tmp_path / "absent.onnx"), "inputs": inputs}
        further = absent if name == "first" else {"path": path, "inputs": inputs}
        settings |= {"further": {"second": further}} | (absent if name == "second" else {})
    monkeypatch.setenv(SETTINGS, json.dumps(settings))
    frame = frame_of(1)
    network = Network("second") if name == "second" else Network()
    assert network.run(frame.tobytes()) == frame.tobytes()
    assert [file.name for file in workers.iterdir()] == [str(os.getpid())]
