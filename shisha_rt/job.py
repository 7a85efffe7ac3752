"""Work that needs an engine, done in a process of its own and waited for: the control plane never loads one. Shell."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Callable

from shisha_rt.errors import Failure
from shisha_rt.fabric.child import last_line, start_child


class JobFailed(Failure):
    """`status` is the job's exit status, or minus the signal that ended it; `reason` says it in one line."""

    def __init__(self, failed: str, status: int, last_said: str) -> None:
        self.status = status
        how = f"exit status {status}" if status > 0 else f"it was ended by {signal.Signals(-status).name}"
        self.reason = last_said if status > 0 and last_said else how
        super().__init__(f"{failed}: {self.reason}")


def run_job(
    module: str,
    *arguments: str,
    failed: str,
    given: bytes = b"",
    hear: Callable[[bytes], None] | None = None,
) -> None:
    """Run `python -m MODULE ARGUMENTS` to its end; it reads `given`, and each line that it says is passed to `hear`.

    Raises JobFailed, `failed` and the last line of its standard error or the signal, where it does not end well.
    Whatever else is raised meanwhile (at an interrupt, or by `hear`) ends it, too, and so does the end of this process.
    """
    # Files, as a pipe that nobody reads yet could fill up, and both would wait for ever.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        child = start_child(
            module, *arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, ended_by=signal.SIGKILL
        )
        try:
            assert child.popen.stdout is not None  # a pipe was asked for
            for line in child.popen.stdout:
                if hear is not None:
                    hear(line)
            status = child.popen.wait()
        finally:
            child.end()
        if status != 0:
            raise JobFailed(failed, status, last_line(stderr))
