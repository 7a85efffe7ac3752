"""`python -m tests.serving.daemon_forks PARENT MODE ROOM`: forks daemons for tests, by the code that forks workers."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shisha_rt.process import fork_server
from shisha_rt.process.child import Child
from shisha_rt.process.fork_line import FORKING, ChildOrder, ForkLine, ServerGone, read_at_start
from tests.serving import forked_daemon

_ROOT: Final = Path(__file__).parent.parent.parent
_TITLE_ROOM: Final = "-" * 1000
_AT_START: Final = read_at_start(os.environ)
_lines: Final[list[ForkLine]] = []


def fork_daemon(arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Child | None:
    """Have a daemon forked, as a child of this process; its standard output is a pipe. None if it has to be started as
    a program: it would read other variables at its start than the forking process has, or could not be known by its
    mark.
    """
    if read_at_start(environment) != _AT_START or not any(forked_daemon.environment_at()):
        return None
    order = ChildOrder(forked_daemon.__name__, arguments, (), {**environment}, None)
    ours, theirs = os.pipe()
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        pid = _line(environment).order(order, [folder, nothing, theirs, stderr])
    except ServerGone:
        _lines.pop().close()
        os.close(ours)
        return None
    finally:
        for fd in (folder, nothing, theirs):
            os.close(fd)
    return Child(pid, (None, os.fdopen(ours, "rb"), None))


def forking_pid() -> int:
    """The process that daemons are forked from: started, if there is none yet."""
    return _line({**os.environ, forked_daemon.MARK: uuid.uuid4().hex}).server


def _line(environment: Mapping[str, str]) -> ForkLine:
    if not _lines:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            no_mark = "0" * len(environment[forked_daemon.MARK])
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(os.getpid()), FORKING, _TITLE_ROOM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**environment, "OPENBLAS_NUM_THREADS": "1", forked_daemon.MARK: no_mark},
                cwd=_ROOT,
            )
        _lines.append(ForkLine(ours, server.pid))
        server.returncode = 0  # whoever closes the line waits for it
    return _lines[0]


if __name__ == "__main__":
    for name in forked_daemon.FOR_DAEMONS:
        importlib.import_module(name)
    fork_server.main(sys.argv[1:])
