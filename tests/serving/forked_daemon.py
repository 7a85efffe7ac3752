"""`python -m tests.serving.forked_daemon ARGUMENTS`, forked from a process that has this module imported: `shisha-rt
ARGUMENTS`, in a session of its own.

The imports below are a daemon's and its children's. They take a second of CPU, which most tests do not.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path
from typing import Final

from shisha_rt.cli import app
from shisha_rt.process import fork_server
from shisha_rt.process.child import adopt
from shisha_rt.process.fork_line import FORKING, ForkLine
from shisha_rt.process.stat import stat_fields

MARK: Final = "SHISHA_RT_TEST_DAEMON"
"""A variable by which a daemon's processes are known. Whoever forks daemons has it, with as many characters."""
FOR_DAEMONS: Final = (
    "shisha_rt.cli.serve",
    "shisha_rt.daemon.server",
    "shisha_rt.daemon.start",
    "shisha_rt.daemon.host_share",
    "shisha_rt.daemon.children.preparer_link",
    "shisha_rt.daemon.children.preparer",
    "shisha_rt.daemon.children.tuner",
    "shisha_rt.daemon.children.profiler",
    "shisha_rt.http.process",
    "shisha_rt.repository.host",
    "shisha_rt.repository.hosted",
    "stages.worker",
    "shisha_rt.machine.config.machine_file",
    "pydantic.type_adapter",  # typer imports it with the first value of an option
)

_ENVIRONMENT_FIELD: Final = 47
"""Of `/proc/self/stat`, counted behind the name: the address where the environment begins. Next comes its end."""


def main() -> int:
    os.setsid()
    _show_mark()
    _have_a_server()
    # The stream was made for another file: whether it can seek is kept.
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    return app.main()


def environment_at() -> tuple[int, int]:
    """Where the environment is with which this program was started: 0 and 0 if the kernel hides it."""
    start, end = map(int, stat_fields(Path("/proc/self/stat"))[_ENVIRONMENT_FIELD:][:2])
    return start, end


def _show_mark() -> None:
    """In `/proc/PID/environ`, too, which has what the program was started with."""
    start, end = environment_at()
    name = f"{MARK}=".encode()
    at = ctypes.string_at(start, end - start).index(name)
    ctypes.memmove(start + at + len(name), os.environ[MARK].encode(), len(os.environ[MARK]))


def _have_a_server() -> None:
    """Fork children from a copy of this process, which is younger than a thread of it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    server = os.fork()
    if server == 0:
        ours.detach()
        os.dup2(theirs.detach(), 0)
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        fork_server.main([str(parent), FORKING])
        os._exit(0)
    theirs.close()
    adopt(ForkLine(ours, server))


if __name__ == "__main__":
    sys.exit(main())
