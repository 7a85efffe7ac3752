"""A daemon as a child process, which ends with the command that started it, however the command ends."""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.process.child import Child, last_line, start_child

_START_S: Final = 120.0
_END_S: Final = 10.0
_BAD_INPUT: Final = 2
_COMPLAINT: Final = re.compile(r"shisha-rt: (.+?)(?: \[(\w+)\])?")
"""The line that a command ending with bad input prints, with the kind of error."""
_SILENT: Final = "it said nothing"
_ENDING_S: Final = 0.5  # longest time from a lost connection to the end of the process at its other end


@dataclass(frozen=True, slots=True)
class ChildDaemon:
    """A daemon started as a child, and where it listens once ready."""

    pid: int
    endpoint: str
    metrics: str
    http: tuple[str, ...] = ()
    grpc: tuple[str, ...] = ()


@contextlib.contextmanager
def child_daemon(*arguments: str, endpoint: str = "tcp://127.0.0.1:0") -> Iterator[ChildDaemon]:
    """`shisha-rt serve` with `arguments`, by default on free ports; ended by SIGTERM at the end of the block.

    If it does not start, raises BadInput if it ended with bad input, else Failure with the last line that it wrote. If
    the block raises Failure and the daemon has ended, a Failure with the daemon's status and last line replaces it.
    """
    arguments = ("serve", *arguments, "--endpoint", endpoint, "--metrics", "127.0.0.1:0")
    with tempfile.TemporaryFile() as stderr:
        # The kernel sends `ended_by` to the child even if this process is killed.
        child = start_child("shisha_rt", *arguments, stdout=subprocess.PIPE, stderr=stderr, ended_by=signal.SIGTERM)
        try:
            line = _first_line(child)
            if not line:
                raise _not_started(child, last_line(stderr))
            ready = json.loads(line)
            try:
                fronts = (tuple(ready.get(front, ())) for front in ("http", "grpc"))
                yield ChildDaemon(child.pid, ready["endpoint"], ready["metrics"], *fronts)
            except Failure:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = child.wait(_ENDING_S)
                    raise Failure(
                        f"the daemon ended with status {status}: {last_line(stderr) or _SILENT}", Error.DAEMON_FAILED
                    ) from None
                raise
        finally:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_END_S)
            child.end()  # its workers end with it


def _not_started(child: Child, last: str) -> BadInput | Failure:
    """The error for a daemon that did not start, with its `last` line. Its bad input is this command's own."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        complaint = _COMPLAINT.fullmatch(last)
        if complaint and child.wait(_ENDING_S) == _BAD_INPUT:
            return BadInput(complaint[1], complaint[2] or Error.BAD_INPUT)
    return Failure(f"the daemon did not start: {last or _SILENT}", Error.DAEMON_FAILED)


def _first_line(child: Child) -> bytes:
    assert child.stdout is not None
    end_s = time.monotonic() + _START_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline() if selector.select(max(0.0, end_s - time.monotonic())) else b""
