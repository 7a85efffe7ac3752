"""The line from a process to the server that forks children for it (`process/fork_server.py`), and its messages.

A message is one byte with descriptors. The first descriptor is a file in memory with the text, which may be long.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from shisha_rt.process.readable import is_readable
from shisha_rt.process.stat import stat_fields

SERVER: Final = "shisha_rt.process.fork_server"
FORKING: Final = "forking"
"""Mode of a server that forks each requested child."""
ONCE: Final = "once"
"""Mode of a server that forks nothing, and becomes the first requested child itself."""
ANSWER: Final = struct.Struct("=q")
"""Answer to each order: the child's process id, or minus an error number."""
READY: Final = ANSWER.pack(0)
"""The server's only other message: all expected modules have been imported."""
LIMITS: Final = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))

_TITLE_ROOM: Final = "-" * 1000
"""The last argument of a server: space for the command lines that its children show."""
_READ_AT_START: Final = ("PYTHON", "LD_", "GLIBC_")
"""Prefixes of variables that a process reads only when it starts."""
_LOOK_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 30.0
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """`python -m module arguments`, as a child of the process `parent`, with what it inherits from that process.

    `numbers`: of the descriptors that are passed besides the standard streams. `ended_by`: the signal that the child
    gets when its parent ends, if any. `cores`, `niceness` and `limits` are those of the ordering thread.
    """

    module: str
    arguments: Sequence[str]
    numbers: Sequence[int]
    environment: dict[str, str]
    ended_by: int | None
    parent: int = field(default_factory=os.getpid)
    cores: Sequence[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    niceness: int = field(default_factory=lambda: os.getpriority(os.PRIO_PROCESS, 0))
    limits: Sequence[tuple[int, int]] = field(default_factory=lambda: [resource.getrlimit(limit) for limit in LIMITS])


@dataclass(frozen=True, slots=True)
class ForkLine:
    """The line's end in the requesting process. `server`: the server's process id."""

    socket: socket.socket
    server: int

    @classmethod
    def to_new_server(cls, mode: str, environment: Mapping[str, str]) -> Self:
        """Start a server, which ends with the calling thread. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", SERVER, str(os.getpid()), mode, _TITLE_ROOM]
        with contextlib.ExitStack() as leaving:
            leaving.callback(ours.close)
            with theirs, Path(os.devnull).open("wb") as nothing:
                actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)]
                server = os.posix_spawn(sys.executable, command, environment, file_actions=actions)
            leaving.pop_all()
        return cls(ours, server)

    def expect(self, modules: Sequence[str]) -> None:
        """Tell the server the modules of expected children; it imports them while it is idle."""
        self._send({"expect": list(modules)}, ())

    def order(self, order: ChildOrder, descriptors: Sequence[int]) -> int:
        """Have a child forked; return its process id. `descriptors`: those of its working directory and its standard
        streams, then those for the order's `numbers`.

        Raises OSError if no process can be created, ChildProcessError if this kernel does not let a process adopt
        orphans, and ServerGone.
        """
        if os.waitid(os.P_PID, self.server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            raise ServerGone  # orphans of a dead server are not to be adopted
        with _go_ahead() as (go_ahead, give_it):
            with _orphans_taken():
                self._send({"order": asdict(order)}, [go_ahead, *descriptors])
                while (answer := self._receive()) == READY:
                    pass
            child: int = ANSWER.unpack(answer)[0]
            if child < 0:
                raise OSError(-child, os.strerror(-child))
            give_it()
        return child

    def send_order(self, order: ChildOrder, descriptors: Sequence[int]) -> None:
        """Send an order to a `ONCE` server, which becomes the child itself and answers nothing."""
        with _go_ahead() as (go_ahead, give_it):
            give_it()
            self._send({"order": asdict(order)}, [go_ahead, *descriptors])

    def is_ready(self) -> bool:
        """Whether the server has reported, since the last call, that all is imported. Raises ServerGone."""
        return is_readable(self.socket.fileno(), 0) and self._receive() == READY

    def _send(self, message: object, descriptors: Sequence[int]) -> None:
        with os.fdopen(os.memfd_create("shisha-rt-order", os.MFD_CLOEXEC), "r+b", buffering=0) as text:
            text.write(json.dumps(message).encode())
            text.seek(0)
            try:
                socket.send_fds(self.socket, [b"!"], [text.fileno(), *descriptors])
            except (BrokenPipeError, ConnectionResetError):
                raise ServerGone from None

    def _receive(self) -> bytes:
        end_s = time.monotonic() + _PATIENCE_S
        while not is_readable(self.socket.fileno(), _LOOK_EVERY_S):
            state = stat_fields(Path(f"/proc/{self.server}/stat"))[0]
            if state in "TtZX" or time.monotonic() >= end_s:
                raise ServerGone
        with contextlib.suppress(ConnectionResetError):
            if answer := self.socket.recv(ANSWER.size):
                return answer
        raise ServerGone

    def close(self) -> None:
        """End the server, if it has not ended. Children that it has forked keep running."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)


class ServerGone(Exception):
    """The server has died, or hangs."""


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a process reads only when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


@contextlib.contextmanager
def _go_ahead() -> Iterator[tuple[int, Callable[[], object]]]:
    """A descriptor by which a child learns whether it may run its order, and a function that says so.

    A child whose server dies before it has answered ends, as the order is given to another one.
    """
    reads, writes = os.pipe()
    try:
        yield reads, lambda: os.write(writes, b"!")
    finally:
        os.close(reads)
        os.close(writes)


@contextlib.contextmanager
def _orphans_taken() -> Iterator[None]:
    """Make this process adopt its orphaned descendants (a child subreaper, prctl(2)) until the block ends."""
    before = ctypes.c_int()
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise ChildProcessError(errno.ENOSYS, "this kernel does not let a process adopt orphans")
    try:
        yield
    finally:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value)
