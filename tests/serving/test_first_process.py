"""A daemon, or the host process of several, as the first process of a container: all orphans there are its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.test_interrupt import AT_AN_IMPORT
from tests.serving.daemon_process import DaemonProcess
from tests.serving.host_process import HostProcess
from tests.serving.identity_model import write_identity_model
from tests.waiting import PATIENCE_S, until

_WITHIN = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if (
        shutil.which("nsenter") is None
        or subprocess.run([*_WITHIN, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs root, for a namespace of processes (unshare --pid, nsenter)")


@pytest.mark.parametrize("kind", [DaemonProcess, HostProcess])
def test_it_reaps_orphans_and_ends_as_it_is_told(identity: Path, tmp_path: Path, kind: type[DaemonProcess]) -> None:
    models = [identity, write_identity_model(tmp_path, name="other")][: 1 + (kind is HostProcess)]
    with kind(tmp_path, *models, within=_WITHIN) as daemon:
        (first,) = psutil.Process(daemon.pid).children()
        worker = next(p for p in first.children(recursive=True) if "stages.worker" in _seen(p)["cmdline"])
        worker.kill()
        subprocess.run(
            ["nsenter", "--target", str(first.pid), "--pid", "sh", "-c", "for i in 1 2 3; do sleep 0.1 & done"],
            check=True,
        )
        until(lambda: not any(_seen(p)["status"] == "zombie" or _seen(p)["name"] == "sleep" for p in first.children()))
        first.terminate()
        assert daemon.popen.wait(PATIENCE_S) == 0, daemon.stderr()
        daemon.assert_nothing_left()


def test_it_ends_as_it_is_told_while_it_imports(tmp_path: Path) -> None:
    """The kernel keeps a signal that nothing handles from the first process."""
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT)
    said = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "SIGNAL": "SIGTERM", "INTERRUPTED_AT": "typer"}
    ended = subprocess.run(
        [*_WITHIN, sys.executable, "-m", "shisha_rt", "--version"],
        env=os.environ | said,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGTERM, b"", b"")


def _seen(process: psutil.Process) -> dict[str, Any]:
    """The name, the state and the command line of a process, the last empty if it has ended; all if it is gone."""
    try:
        return process.as_dict(["name", "status", "cmdline"], ad_value=[])
    except psutil.NoSuchProcess:
        return {"name": "", "status": "", "cmdline": []}
