"""What every worker pays for at its start: there may be one for each of very many cores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.process.child import start_child
from tests.stages.test_profile_devices import WITHOUT_OPENVINO

PROGRAM = """
import json, os, sys
import stages.worker
print(json.dumps({"modules": list(sys.modules), "threads": len(os.listdir("/proc/self/task"))}))
"""
ON_OPENVINO = """
import json, sys
from stages.engines.openvino.session import load_openvino
load_openvino()
print(json.dumps({"modules": list(sys.modules)}))
"""


def reported(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a child that runs this program says."""
    (folder / "started.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    child = start_child("started", stdout=subprocess.PIPE)
    assert child.stdout is not None
    report: dict[str, Any] = json.loads(child.stdout.readline())
    child.end()
    return report


def test_a_worker_imports_what_it_needs_and_has_no_threads_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a compiler or a place with devices needs would be half of its start and of its private memory."""
    report = reported(PROGRAM, tmp_path, monkeypatch)
    roots = {module.partition(".")[0] for module in report["modules"]}
    assert {"numpy", "onnxruntime"} <= roots
    assert not roots & {"onnx", "google", "openvino", "scipy", "zmq", "typer", "prometheus_client"}
    assert report["threads"] == 1


@WITHOUT_OPENVINO
def test_openvino_is_loaded_without_what_converts_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than half of its import, and 14 MB, were a converter of other frameworks' models, with its telemetry."""
    modules = reported(ON_OPENVINO, tmp_path, monkeypatch)["modules"]
    assert "openvino" in modules
    assert not {"openvino_telemetry", "urllib.request"} & set(modules)
