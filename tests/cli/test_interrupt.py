"""Ctrl-C at any moment of a command leaves its exit status, and nothing to read."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.serving.daemon_process import DaemonProcess


@pytest.mark.parametrize("after_s", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.2, 1.5, 2.0])
def test_no_traceback(daemon: DaemonProcess, after_s: float) -> None:
    """Moments are spread over the start, the imports and the frames; where each falls does not matter."""
    command = (sys.executable, "-m", "shisha_rt", "submit", "--endpoint", daemon.endpoint, "--frames", "1000000")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    if "site.py" not in err:  # the interpreter itself was not up yet
        assert err == ""
        assert process.returncode in (130, -signal.SIGINT)  # the same to a shell: the interpreter was at its end
