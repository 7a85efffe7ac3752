"""Ctrl-C at any moment of a command leaves its exit status, and nothing to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.daemon_process import DaemonProcess
from tests.waiting import PATIENCE_S, until

AT_AN_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])

sys.meta_path.insert(0, Interrupting())
"""


def submitting(daemon: DaemonProcess, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shisha_rt", "submit", "--endpoint", daemon.endpoint, "--frames", "1000000"]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def assert_interrupted(process: subprocess.Popen[str]) -> None:
    try:
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, "")


@pytest.mark.parametrize(
    "module", ["typing", "shisha_rt.cli", "typer", "shisha_rt.cli.submit", "numpy", "zmq.sugar.socket"]
)
def test_while_it_imports(daemon: DaemonProcess, tmp_path: Path, module: str) -> None:
    """Half a second, in which no handler of the command's own is there at first."""
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with submitting(daemon, PYTHONPATH=path, SIGNAL="SIGINT", INTERRUPTED_AT=module) as process:
        assert_interrupted(process)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("module", ["typer", "shisha_rt.cli.serve", "shisha_rt.daemon.host_share"])
@pytest.mark.parametrize("models", [("zoo:squeezenet",), ("zoo:squeezenet", "zoo:shufflenet")])
def test_a_start_that_is_ended_has_done_what_it_should(
    tmp_path: Path, models: tuple[str, ...], module: str, number: str
) -> None:
    """By SIGTERM it was 143 or killed at first, and 0 later; by Ctrl-C 130 at first."""
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-m", "shisha_rt", "serve", *models, "--endpoint", f"ipc://{tmp_path}/socket"],
        env=os.environ | {"PYTHONPATH": path, "SIGNAL": number, "INTERRUPTED_AT": module},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_while_frames_flow(daemon: DaemonProcess) -> None:
    def answered() -> int:
        return int(daemon.control.status()["frames"]["answered"].get("OK", 0))

    before = answered()
    with submitting(daemon) as process:
        until(lambda: answered() > before, "an answer")
        process.send_signal(signal.SIGINT)
        assert_interrupted(process)
