"""A server and all its processes, kept by a process of ours: none of them outlives the benchmark, however it ends.

Servers start processes that start processes; when the input of this process ends, or it is asked to stop, they are
asked to end and then killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import Final

from benchmarks.rigs.child_process import Child
from benchmarks.rigs.descendants import end_all, keep_descendants, signal_all
from shisha_rt.process.child import last_line

_PATIENCE_S: Final = 8.0


def child(command: list[str], environment: dict[str, str], folder: str) -> Child:
    """An order may have `runs`: whether all processes are to run or to be stopped. Each is answered with the reason why
    the server has ended, or null if it has not.
    """
    keep_descendants()
    with tempfile.TemporaryFile() as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )
        try:
            order = yield {"ready": True}
            while True:
                if "runs" in order:
                    signal_all(signal.SIGCONT if order["runs"] else signal.SIGSTOP)
                ended = server.poll() is not None
                order = yield {"ended": (last_line(output) or f"status {server.returncode}") if ended else None}
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            end_all(_PATIENCE_S)
