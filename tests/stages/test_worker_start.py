"""What every worker pays for at its start: there may be one for each of very many cores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from shisha_rt.process.child import start_child

PROGRAM = """
import json, os, sys
import stages.worker
print(json.dumps({"modules": list(sys.modules), "threads": len(os.listdir("/proc/self/task"))}))
"""


def test_a_worker_imports_what_it_needs_and_has_no_threads_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a compiler or a place with devices needs would be half of its start and of its private memory."""
    (tmp_path / "started.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    child = start_child("started", stdout=subprocess.PIPE)
    assert child.stdout is not None
    report = json.loads(child.stdout.readline())
    child.end()
    roots = {module.partition(".")[0] for module in report["modules"]}
    assert {"numpy", "onnxruntime"} <= roots
    assert not roots & {"onnx", "google", "openvino", "scipy", "zmq", "typer", "prometheus_client"}
    assert report["threads"] == 1
