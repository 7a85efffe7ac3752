"""`python -m shisha_rt.process.fork_server PARENT MODE ROOM`: fork children whose modules are imported already.

An import costs a third to two thirds of a second of CPU. A fork costs milliseconds, and shares the memory of what was
imported before it. The server imports each of our modules once, when a child that runs it is requested or expected. It
forks an intermediate process, which forks the child. Once the child has its order, it kills the intermediate process.
The kernel then gives the orphan to the nearest ancestor that adopts orphans: the requesting process
(`process/fork_line.py`), as if that had started the child itself. Until then the kernel kills each of them with its
parent, also one that is stopped.

The server has one thread, as a fork copies no other; modules that it imports must start none (a test checks that). Its
standard input is the line to the requesting process. When the line ends, the server ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from shisha_rt.process.channel import OtherEndGone
from shisha_rt.process.child import adopt
from shisha_rt.process.fork_line import ANSWER, LIMITS, ONCE, READY, SERVER, ChildOrder, ForkLine
from shisha_rt.process.parent import (
    CHILDREN_SCORE,
    MORE_PROCESSES,
    NO_THREAD,
    die_before_others,
    die_with,
    outlive_parent,
)
from shisha_rt.process.readable import is_readable
from shisha_rt.process.stat import stat_fields

_OURS: Final = ("shisha_rt", "stages")
_MOST_DESCRIPTORS: Final = 250
_ORPHANED_LOOK_S: Final = 0.0002
_SPARE_PATIENCE_S: Final = 2.0
"""How long a spare child may take to accept its order; one that has been stopped never does."""
_COMMAND_LINE_FIELD: Final = 45
"""Of `/proc/self/stat`, counted behind the name: the address where the command line begins. Next comes its end."""


def main(arguments: list[str]) -> None:
    parent, mode = int(arguments[0]), arguments[1]
    die_with(parent)
    die_before_others(CHILDREN_SCORE)  # and so do all children: frames outlive each of them, but not the daemon
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # inherited descriptors
    # These signals may reach the whole process group, but the server is to end with its parent. A child that is told to
    # end before it runs its order is to end then, so that signal waits.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    gc.disable()
    _show_command(SERVER)
    line: socket.socket | None = socket.socket(fileno=os.dup(0))
    while line is not None:
        with line:
            passed = _take(line) if mode == ONCE else _Server(line).run()
        if not isinstance(passed, _Passed):  # the requesting process has ended
            return
        order = passed.order
        _become(passed)
        starts_children = getattr(sys.modules.get(order.module), "STARTS_CHILDREN", False)
        line = _fork_server(order) if mode != ONCE and starts_children else None  # new server
    gc.enable()
    signal.signal(signal.SIGINT, interrupted)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    _end(_run(order))


@dataclass(frozen=True, slots=True)
class _Passed:
    """An order and its descriptors: text, go-ahead, working directory, standard streams, and `ChildOrder.numbers`."""

    order: ChildOrder
    fds: list[int]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def _take(line: socket.socket) -> _Passed | list[str] | None:
    """Receive the next order, or the modules of expected children; None if the sender has ended."""
    fds: list[int] = []
    with contextlib.suppress(ConnectionResetError):  # the sender ended with unread messages
        fds = socket.recv_fds(line, 1, _MOST_DESCRIPTORS)[1]
    if not fds:
        return None
    with os.fdopen(fds[0], "rb", closefd=False) as text:
        text.seek(0)  # the server has read it before, at the same offset
        message: dict[str, Any] = json.load(text)
    if "order" in message:
        return _Passed(ChildOrder(**message["order"]), list(fds))
    os.close(fds[0])
    modules: list[str] = message["expect"]
    return modules


@dataclass(frozen=True, slots=True)
class _Spare:
    """A child that waits on `line` for its order. `between`: the intermediate process, its parent, which it kills then.

    A byte into the pipe `child_died` makes the intermediate process reap the child, and end.
    """

    pid: int
    between: int
    line: socket.socket
    child_died: int

    def give(self, passed: _Passed) -> bool:
        """Pass on the order: the requesting process then adopts the child. False if the child had died, or hangs."""
        accepted = self._send(passed) and _has_ended(self.between)
        if not accepted:
            with contextlib.suppress(ProcessLookupError, BrokenPipeError):  # the intermediate process has died, too
                os.kill(self.pid, signal.SIGKILL)
                os.write(self.child_died, b"!")
            if not _has_ended(self.between):
                os.kill(self.between, signal.SIGKILL)
        self.line.close()
        os.close(self.child_died)
        os.waitpid(self.between, 0)
        return accepted

    def _send(self, passed: _Passed) -> bool:
        try:
            socket.send_fds(self.line, [b"!"], passed.fds)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True


def _has_ended(pid: int) -> bool:
    """Wait up to `_SPARE_PATIENCE_S` for the end of a child; it remains to be waited for."""
    pidfd = os.pidfd_open(pid)
    try:
        return is_readable(pidfd, _SPARE_PATIENCE_S)
    finally:
        os.close(pidfd)


class _Server:
    """The server's loop. If children are expected, it keeps a spare child ready, as a fork takes time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._expected: deque[str] = deque()
        self._keeps_spare = False
        self._spare: _Spare | None = None

    def run(self) -> _Passed | None:
        """Serve. Returns in each child, with its order; in the server None, once the requesting process has ended."""
        while True:
            if self._keeps_spare and not select.select([self._line], [], [], 0)[0]:
                if self._expected:
                    _import(self._expected.popleft())
                    if not self._expected:
                        self._say(READY)
                    continue
                with contextlib.suppress(OSError):  # then there is no spare child
                    if self._spare is None and (own_order := self._fork([])) is not None:
                        return own_order
            asked = _take(self._line)
            if asked is None:
                return None
            if isinstance(asked, list):
                self._expected.extend(asked)
                self._keeps_spare = True
                continue
            _import(asked.order.module)
            if (own_order := self._start(asked)) is not None:
                return own_order

    def _start(self, asked: _Passed) -> _Passed | None:
        """Give the order to a child and answer. Returns the order in a child that is forked only now, else None."""
        given = False
        while not given:
            try:
                if self._spare is None and (own_order := self._fork(asked.fds)) is not None:
                    return own_order
            except OSError as error:
                answer = -(error.errno or errno.EAGAIN)
                break
            assert self._spare is not None
            spare, self._spare = self._spare, None
            answer, given = spare.pid, spare.give(asked)
        asked.close()
        self._say(ANSWER.pack(answer))
        return None

    def _say(self, message: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the requesting process has ended
            self._line.send(message)

    def _fork(self, passing: list[int]) -> _Passed | None:
        """Fork a spare child. Returns None in the server; in the child its order, once it has it. Raises OSError.

        `passing`: descriptors of an order that the server holds; the child closes its copies: it gets them with the
        order.
        """
        gc.freeze()  # so that a child's garbage collector does not touch, and so copy, what exists
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hears_death, child_died = os.pipe()
        server, between = os.getpid(), _fork_or_not()
        if between == 0:
            die_with(server)
            for fd in (self._line.detach(), ours.detach(), child_died, *passing):
                os.close(fd)
            return _await_order(theirs, hears_death)
        theirs.close()
        os.close(hears_death)
        pid = ours.recv(ANSWER.size) if between > 0 else b""
        if pid:
            self._spare = _Spare(ANSWER.unpack(pid)[0], between, ours, child_died)
            return None
        ours.close()
        os.close(child_died)
        if between > 0:
            os.waitpid(between, 0)
        raise OSError(errno.EAGAIN, "no process to be had")


def _await_order(line: socket.socket, hears_death: int) -> _Passed:
    """Be the intermediate process. Returns only in the child that it forks, with its order, once that is adopted."""
    between = os.getpid()
    child = _fork_or_not()
    if child != 0:
        line.close()
        if os.read(hears_death, 1):
            os.waitpid(child, 0)
        os._exit(0)
    die_with(between)
    os.close(hears_death)
    with line:
        try:
            line.send(ANSWER.pack(os.getpid()))
            passed = _take(line)
        except (BrokenPipeError, ConnectionResetError):
            passed = None
    if not isinstance(passed, _Passed):  # the server has ended
        os._exit(0)
    outlive_parent()
    os.kill(between, signal.SIGKILL)
    while os.getppid() == between:  # there is no event for a new parent
        time.sleep(_ORPHANED_LOOK_S)
    return passed


def _fork_or_not() -> int:
    """As `os.fork`, but -1 if no process can be created."""
    try:
        return os.fork()
    except OSError:
        return -1


def _import(module: str) -> None:
    """Import one of our modules for later children; if that fails, the children report why.

    Modules of other packages are not imported beforehand, as their imports may have any effect.
    """
    if module.partition(".")[0] in _OURS:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)


def _become(passed: _Passed) -> None:
    """Take over what the child would have inherited from its parent; end if that has ended, or does not want it."""
    order = passed.order
    text, go_ahead, folder, *fds = passed.fds
    die_with(order.parent)
    if not os.read(go_ahead, 1):
        os._exit(1)
    os.close(go_ahead)
    die_with(order.parent, order.ended_by or 0)
    for limit, (soft, hard) in zip(LIMITS, order.limits, strict=True):
        if resource.getrlimit(limit) != (soft, hard):
            resource.setrlimit(limit, (soft, hard))
    os.close(text)
    os.fchdir(folder)
    os.close(folder)
    _place(fds, [0, 1, 2, *order.numbers])
    for name in os.environ.keys() - order.environment.keys():
        del os.environ[name]
    os.environ.update(order.environment)
    os.sched_setaffinity(0, order.cores)
    os.setpriority(os.PRIO_PROCESS, 0, order.niceness)


def _place(fds: list[int], numbers: Sequence[int]) -> None:
    """Move each descriptor to its number, even if a later descriptor has that number now."""
    for at, number in enumerate(numbers):
        if number in fds[at + 1 :]:
            fds[fds.index(number, at + 1)] = os.dup(number)
        if fds[at] != number:
            os.dup2(fds[at], number)
            os.close(fds[at])


def _fork_server(order: ChildOrder) -> socket.socket | None:
    """Fork a server for this child's children, before it has threads. Returns in the server its line to this child.

    If no process can be created, the child has no server yet.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    server = _fork_or_not()
    if server:
        theirs.close()
        if server > 0:
            adopt(ForkLine(ours, server))
        else:
            ours.close()
        return None
    die_with(parent)
    ours.close()
    for fd in order.numbers:
        os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    return theirs


def _run(order: ChildOrder) -> object:
    """Run the module as `python -m` does. Returns its exit code, or a line where there is no process or thread to be
    had.
    """
    _show_command(order.module, *order.arguments)
    sys.argv = ["", *order.arguments]
    # It has been imported before on purpose.
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning, "runpy")
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code
    except OtherEndGone:  # whoever has started the child: nobody wants to know more
        return 1
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        return f"{error}; {MORE_PROCESSES}"
    except BlockingIOError as error:  # of a fork: what else has no room is waited for where it is asked
        return f"{error.strerror}; {MORE_PROCESSES}"
    return None


def _end(code: object) -> NoReturn:
    """Exit as the interpreter does, except that no objects are destroyed: this would copy all memory that is shared."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


def _show_command(module: str, *arguments: str) -> None:
    """Set the command line that `ps` shows, cut off where the memory for it ends; not where there is no /proc."""
    try:
        start, end = map(int, stat_fields(Path("/proc/self/stat"))[_COMMAND_LINE_FIELD:][:2])
    except OSError:
        return
    text = " ".join([sys.executable, "-m", module, *arguments]).encode(errors="replace")
    room = end - start - 1
    if room > 0:  # not if the kernel hides the addresses
        # If the last byte is not zero, the kernel shows what comes before the first zero.
        ctypes.memmove(start, text[: room - 1].ljust(room, b"\0") + b" ", room + 1)


if __name__ == "__main__":
    main(sys.argv[1:])
