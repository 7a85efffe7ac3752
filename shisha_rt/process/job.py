"""Work that needs an engine, done in a process of its own and waited for: the control plane never loads one. Shell."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from typing import Final

from shisha_rt.errors import Failure
from shisha_rt.process.child import last_line, start_child

_OWN_FAULT: Final = f"{Failure.__module__}.{Failure.__qualname__}: "
"""How the last line of a traceback begins where a job itself has put what is wrong in words."""


class JobFailed(Failure):
    """`status` is the job's exit status, or minus the signal that ended it; None: it had no end within its time.

    `reason` says it in one line.
    """

    def __init__(self, failed: str, status: int | None, last_said: str) -> None:
        self.status = status
        said = last_said.removeprefix(_OWN_FAULT)
        self.reason = how_ended(status) if status is None or status < 0 or not said else said
        super().__init__(f"{failed}: {self.reason}")


def how_ended(status: int | None) -> str:
    """An exit status, or minus a signal, in words; None: there was no end in time."""
    if status is None:
        return "it came to no end"
    if status == -signal.SIGKILL:
        return "it was ended by SIGKILL, as where memory is short"
    return f"exit status {status}" if status > 0 else f"it was ended by {signal.Signals(-status).name}"


def run_job(
    module: str,
    *arguments: str,
    failed: str,
    given: bytes = b"",
    hear: Callable[[bytes], None] | None = None,
    limit_s: float | None = None,
) -> None:
    """Run `python -m MODULE ARGUMENTS` to its end; it reads `given`, and each line that it says is passed to `hear`.

    Raises JobFailed, `failed` and the last line of its standard error or the signal, where it does not end well, or not
    within `limit_s` seconds.
    Whatever else is raised meanwhile (at an interrupt, or by `hear`) ends it, too, and so does the end of this process.
    """
    # Files, as a pipe that nobody reads yet could fill up, and both would wait for ever.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        child = start_child(
            module, *arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, ended_by=signal.SIGKILL
        )
        out_of_time = threading.Event()

        def end() -> None:
            out_of_time.set()
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

        timer = threading.Timer(limit_s if limit_s is not None else threading.TIMEOUT_MAX, end)
        try:
            timer.start()  # a signal's exception may come in the midst of it
            assert child.popen.stdout is not None  # a pipe was asked for
            for line in child.popen.stdout:
                if hear is not None:
                    hear(line)
            status = child.popen.wait()
        finally:
            timer.cancel()
            if timer.is_alive():
                timer.join()
            child.end()
        if status != 0:
            raise JobFailed(failed, None if out_of_time.is_set() else status, last_line(stderr))
