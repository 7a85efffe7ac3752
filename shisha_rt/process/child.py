"""How a process of ours is started, and how it is ended.

A child is told of by its own pidfd: readable once it is gone, and never that of another process. Modules that are
started so call `parent.die_with` first, so that none outlives its parent; for one that does not, the kernel can be
asked before it begins. Either way it goes by the *thread* that started the child, which is to be one that stays.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from shisha_rt.process.parent import die_with

_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Of the numpy in each: it would have a thread for each core of the machine, in every one of as many workers."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process that has been started. Both are to be closed, which `end` does."""

    popen: subprocess.Popen[bytes]
    pidfd: int

    def end(self) -> int:
        """Kill it, unless it has ended, and close what is ours of it. Returns its exit status, or minus a signal."""
        try:
            _kill(self.popen)
        finally:
            os.close(self.pidfd)
        return self.popen.returncode


def start_child(
    module: str,
    *arguments: str,
    pass_fds: Sequence[int] = (),
    stdin: int | IO[Any] | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = subprocess.DEVNULL,
    stderr: int | IO[Any] | None = None,
    ended_by: int | None = None,
) -> Child:
    """`python -m MODULE ARGUMENTS`. The standard streams are given as `Popen` takes them.

    `ended_by`: the signal that it gets when the calling thread ends. Raises OSError where no process or descriptor
    can be had; nothing of it is left then.
    """
    command = [sys.executable, "-m", module, *arguments]
    ask = None if ended_by is None else functools.partial(die_with, os.getpid(), ended_by)
    with Path(os.devnull).open("r+b", buffering=0) as nothing:  # Popen's own stays open where it can have no pipe
        popen = subprocess.Popen(
            command,
            stdin=nothing if stdin == subprocess.DEVNULL else stdin,
            stdout=nothing if stdout == subprocess.DEVNULL else stdout,
            stderr=nothing if stderr == subprocess.DEVNULL else stderr,
            pass_fds=pass_fds,
            preexec_fn=ask,
            env={**os.environ, **_ENVIRONMENT},
        )
    try:
        return Child(popen, os.pidfd_open(popen.pid))
    except OSError:
        _kill(popen)
        raise


def last_line(stderr: IO[bytes]) -> str:
    """The last that a process wrote to this file; empty if it said nothing."""
    stderr.seek(0)
    return next(reversed(stderr.read().decode(errors="replace").strip().splitlines()), "")


def wants_core(pid: int) -> bool:
    """Whether some thread of the process is runnable, or waits for a disk."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            if stat_fields(stat)[0] in "RD":
                return True
    return False


def stat_fields(path: Path) -> list[str]:
    """The fields behind a process's or thread's name, the first of which is its state. Raises OSError."""
    return path.read_text().rpartition(")")[2].split()


def _kill(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            pipe.close()
