"""A server and all that it starts, kept by a process of ours: none of it outlives the benchmark, however that ends.

Servers start processes that start processes, some of which leave their parent or their session. This one is the
reaper of them all (`PR_SET_CHILD_SUBREAPER`), so that they stay its descendants; when its input ends, or it is told to
stop, they are asked to end and then killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Final

import psutil

from benchmarks.rigs.child_process import say
from shisha_rt.fabric.child import last_line

_PR_SET_CHILD_SUBREAPER: Final = 36
_PATIENCE_S: Final = 8.0
_LOOK_EVERY_S: Final = 0.1


def main(arguments: list[str]) -> int:
    """Settings: `command`, `environment`, `folder`.

    A line may say whether all are to run or to stand still, as `runs`; each is answered by why the server has ended, or
    null where it has not.
    """
    settings = json.loads(arguments[0])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that of the terminal: the benchmark ends us when it is ready
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryFile() as told, contextlib.suppress(KeyboardInterrupt):
        server = _start(settings, told)
        try:
            say(ready=True)
            for line in sys.stdin:
                match json.loads(line):
                    case {"runs": bool(runs)}:
                        _signal_all(signal.SIGCONT if runs else signal.SIGSTOP)
                ended = server.poll() is not None
                say(ended=(last_line(told) or f"status {server.returncode}") if ended else None)
        finally:
            _end_all()
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


def _end_all() -> None:
    """First the server itself, which ends its own; whatever is left when patience is over is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _signal_all(signal.SIGCONT)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    until_s = time.monotonic() + _PATIENCE_S
    while left := _living():
        for one in left if time.monotonic() > until_s else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        time.sleep(_LOOK_EVERY_S)


def _signal_all(number: signal.Signals) -> None:
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


def _living() -> list[psutil.Process]:
    """Descendants that have not ended; those that have are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
