"""A server and all its processes, kept by a process of ours: none of them outlives the benchmark, however it ends.

Servers start processes that start processes; when the input of this process ends, or it is asked to stop, they are
asked to end and then killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.rigs.child_process import say
from benchmarks.rigs.descendants import end_all, keep_descendants, signal_all
from shisha_rt.process.child import last_line

_PATIENCE_S: Final = 8.0


def main(arguments: list[str]) -> int:
    """Settings: `command`, `environment`, `folder`.

    A line may have `runs`: whether all processes are to run or to be stopped. Each line is answered with the reason why
    the server has ended, or null if it has not.
    """
    settings = json.loads(arguments[0])
    keep_descendants()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal: the benchmark ends this process itself
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryFile() as told, contextlib.suppress(KeyboardInterrupt):
        server = _start(settings, told)
        try:
            say(ready=True)
            for line in sys.stdin:
                match json.loads(line):
                    case {"runs": bool(runs)}:
                        signal_all(signal.SIGCONT if runs else signal.SIGSTOP)
                ended = server.poll() is not None
                say(ended=(last_line(told) or f"status {server.returncode}") if ended else None)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            end_all(_PATIENCE_S)
    return 0


def _start(settings: dict[str, Any], told: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        settings["command"],
        stdin=subprocess.DEVNULL,
        stdout=told,
        stderr=told,
        env={**os.environ, **settings["environment"]},
        cwd=Path(settings["folder"]),
        start_new_session=True,
    )


def _leave(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
