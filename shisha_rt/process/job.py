"""One-shot jobs: work that needs an engine, done in a separate process, as the control plane loads none. Shell."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from shisha_rt.errors import Failure
from shisha_rt.process.child import Child, end_in_words, last_line, start_child
from shisha_rt.process.pulse import JOB_SILENCE_S, SILENCE_S, Pulse
from shisha_rt.process.readable import await_ready

_OWN_FAULT: Final = f"{Failure.__module__}.{Failure.__qualname__}: "
"""Start of a traceback's last line if the job raised a Failure, whose message says what is wrong."""
_OF_SYSTEM: Final = re.compile(r"\w+: \[Errno (\d+)\]")
"""Start of a traceback's last line if the job raised an OSError."""
_LOOK_EVERY_S: Final = 0.25
_PIPE_BYTES: Final = 1 << 16


class JobFailed(Failure):
    """`status` is the job's exit status, or minus the signal that ended it; None: it did not end in time, or hung.

    `reason` says it in one line. `errno`: of the OSError that ended the job, if one did.
    """

    def __init__(self, failed: str, status: int | None, last_said: str) -> None:
        self.status = status
        said = last_said.removeprefix(_OWN_FAULT)
        self.reason = said if said and (status is None or status >= 0) else how_ended(status)
        of_system = _OF_SYSTEM.match(self.reason)
        self.errno = int(of_system[1]) if of_system else None
        super().__init__(f"{failed}: {self.reason}")


def how_ended(status: int | None) -> str:
    """Describe an exit status, or minus a signal, in words; None: the job did not end in time."""
    if status is None:
        return "it came to no end"
    memory = ", as where memory is short" if status == -signal.SIGKILL else ""
    return f"{end_in_words(status)}{memory}"


def run_job(
    module: str,
    *arguments: str,
    failed: str,
    given: bytes = b"",
    hear: Callable[[bytes], None] | None = None,
    limit_s: float | None = None,
) -> bytes:
    """Run `python -m MODULE ARGUMENTS` to its end. The job reads `given`; `hear` gets each line that the job writes.

    Returns the last of these lines, or b"". Raises JobFailed if the job fails, does not end within `limit_s` seconds,
    or hangs (is stopped for `SILENCE_S`, or silent for `JOB_SILENCE_S`); the message has `failed` and the last line of
    the job's standard error, or the signal. Any other exception meanwhile (at an interrupt, or from `hear`) ends the
    job, too, and so does the end of this process.
    """
    said: deque[bytes] = deque(maxlen=1)

    def note(line: bytes) -> None:
        said.append(line)
        if hear is not None:
            hear(line)

    # Files, as a pipe that nobody reads yet could fill up, and both processes would wait for ever.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        child = start_child(
            module, *arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, ended_by=signal.SIGKILL
        )
        try:
            pulse = Pulse(child.pid, SILENCE_S, patience_s=JOB_SILENCE_S)
            broken_off = _listen(child, pulse, note, math.inf if limit_s is None else time.monotonic() + limit_s)
        finally:
            status = child.end()
        if broken_off is not None:
            raise JobFailed(failed, None, broken_off)
        if status != 0:
            raise JobFailed(failed, status, last_line(stderr))
    return said[-1] if said else b""


def _listen(child: Child, pulse: Pulse, hear: Callable[[bytes], None], until_s: float) -> str | None:
    """Pass on the lines that a job writes, until it has ended. Returns why it must be killed, or None."""
    assert child.stdout is not None  # a pipe was asked for
    stdout, begun = child.stdout.fileno(), b""
    watched = [stdout, child.pidfd]
    while watched:
        can_be_read = await_ready(watched, _LOOK_EVERY_S)
        if stdout in can_be_read:
            data = os.read(stdout, _PIPE_BYTES)
            *lines, begun = (begun + data).split(b"\n")
            lines = [line + b"\n" for line in lines]
            if not data:
                watched.remove(stdout)
                lines = [begun] if begun else []
            for line in lines:
                hear(line)
        if child.pidfd in can_be_read and stdout not in watched:
            watched.remove(child.pidfd)
        elif time.monotonic() >= until_s:
            return how_ended(None)
        elif (hangs := pulse.look()) is not None:
            return hangs
    return None
