"""`python -m shisha_rt.process.fork_server PARENT MODE ROOM`: forks children that find imported what they need.

An import takes a third to two thirds of a second of CPU; a fork takes milliseconds, and shares the memory of what was
imported before it. The server imports each module of ours once, when a child of it is asked for or expected. It forks
twice. Once the child has its order, the process between is killed, and the kernel gives the orphan to the nearest
process above that takes orphans: whoever asks (`process/fork_line.py`), as if that had started the child itself.

It has one thread, as a fork takes no other along; what it imports must start none (a test holds that). Its standard
input is the line to whoever asks, with which it ends.
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

from shisha_rt.process.child import adopt
from shisha_rt.process.fork_line import ANSWER, LIMITS, ONCE, READY, SERVER, ChildOrder, ForkLine
from shisha_rt.process.parent import die_with
from shisha_rt.process.stat import stat_fields

_OURS: Final = ("shisha_rt", "stages")
_MOST_DESCRIPTORS: Final = 250
_ORPHANED_LOOK_S: Final = 0.0002
_COMMAND_LINE_FIELD: Final = 45
"""Of `/proc/self/stat`, behind the name: where in memory the command line begins; the next, where it ends."""


def main(arguments: list[str]) -> None:
    parent, mode = int(arguments[0]), arguments[1]
    die_with(parent)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # it inherits what its parent left open to others
    # These may reach the whole group; the server ends with its parent.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    gc.disable()
    _show_command(SERVER)
    line: socket.socket | None = socket.socket(fileno=os.dup(0))
    while line is not None:
        with line:
            passed = _take(line) if mode == ONCE else _Server(line).run()
        if not isinstance(passed, _Passed):  # nobody asks any more
            return
        order = passed.order
        _become(passed)
        line = _fork_server(order) if mode != ONCE and _starts_children(order.module) else None  # that forks, too
    gc.enable()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    _end(_run(order))


@dataclass(frozen=True, slots=True)
class _Passed:
    """An order with its descriptors: of its text, the working directory, the standard streams, those with a number."""

    order: ChildOrder
    fds: list[int]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def _take(line: socket.socket) -> _Passed | list[str] | None:
    """The next order, or the modules that are to be expected; None at the end of whoever gives them."""
    fds: list[int] = []
    with contextlib.suppress(ConnectionResetError):  # whoever gives them has ended before it heard all
        fds = socket.recv_fds(line, 1, _MOST_DESCRIPTORS)[1]
    if not fds:
        return None
    with os.fdopen(fds[0], "rb", closefd=False) as text:
        text.seek(0)  # the server has read it before the child does
        message: dict[str, Any] = json.load(text)
    if "order" in message:
        return _Passed(ChildOrder(**message["order"]), list(fds))
    os.close(fds[0])
    modules: list[str] = message["expect"]
    return modules


@dataclass(frozen=True, slots=True)
class _Spare:
    """A child that waits on `line` for its order, and the process between, which is its parent until it is killed.

    A byte into the pipe `child_died` has that process reap the child, and end.
    """

    pid: int
    between: int
    line: socket.socket
    child_died: int

    def give(self, passed: _Passed) -> bool:
        """Pass on the order: now it is a child of the process above that takes orphans. False: it had died."""
        alive = True
        try:
            socket.send_fds(self.line, [b"!"], passed.fds)
            os.kill(self.between, signal.SIGKILL)  # it may have been stopped
        except (BrokenPipeError, ConnectionResetError):
            alive = False
            os.write(self.child_died, b"!")
        self.line.close()
        os.close(self.child_died)
        os.waitpid(self.between, 0)
        return alive


class _Server:
    """Where children are expected, a spare one is there before it is asked for: a fork takes its time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._expected: deque[str] = deque()
        self._keeps_spare = False
        self._spare: _Spare | None = None

    def run(self) -> _Passed | None:
        """Returns in each child, with its order; None: nobody asks any more."""
        while True:
            if self._keeps_spare and not select.select([self._line], [], [], 0)[0]:
                if self._expected:
                    _import(self._expected.popleft())
                    if not self._expected:
                        self._say(READY)
                    continue
                with contextlib.suppress(OSError):  # then there is none
                    if self._spare is None and (mine := self._fork([])) is not None:
                        return mine
            asked = _take(self._line)
            if asked is None:
                return None
            if isinstance(asked, list):
                self._expected.extend(asked)
                self._keeps_spare = True
                continue
            _import(asked.order.module)
            if (mine := self._start(asked)) is not None:
                return mine

    def _start(self, asked: _Passed) -> _Passed | None:
        """Give the order to a child, and answer; returns in that child if it is only forked now."""
        given = False
        while not given:
            try:
                if self._spare is None and (mine := self._fork(asked.fds)) is not None:
                    return mine
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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody hears it: the next message is the end
            self._line.send(message)

    def _fork(self, passing: list[int]) -> _Passed | None:
        """None in the server, which has a spare child now; in that child its order, once it has it. Raises OSError.

        `passing`: descriptors that the server holds for a child, which gets them with its order.
        """
        gc.freeze()  # a child's collector need not look through what is there, nor copy it so
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hears_death, child_died = os.pipe()
        between = _fork_or_not()
        if between == 0:
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
    """Be the process between. Returns in the child that it forks, with the order, once the child is the asker's own."""
    between = os.getpid()
    child = _fork_or_not()
    if child != 0:
        line.close()
        if os.read(hears_death, 1):
            os.waitpid(child, 0)
        os._exit(0)
    os.close(hears_death)
    with line:
        try:
            line.send(ANSWER.pack(os.getpid()))
            passed = _take(line)
        except (BrokenPipeError, ConnectionResetError):
            passed = None
    if not isinstance(passed, _Passed):  # the server has ended
        os._exit(0)
    while os.getppid() == between:  # which is being killed; no event tells of a new parent
        time.sleep(_ORPHANED_LOOK_S)
    return passed


def _fork_or_not() -> int:
    """As `os.fork`; -1 where no process is to be had."""
    try:
        return os.fork()
    except OSError:
        return -1


def _import(module: str) -> None:
    """Import a module of ours for the children to come; where it cannot be imported, they say why.

    Those of others do what they do when they are imported.
    """
    if module.partition(".")[0] in _OURS:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)


def _starts_children(module: str) -> bool:
    return bool(getattr(sys.modules.get(module), "STARTS_CHILDREN", False))


def _become(passed: _Passed) -> None:
    """Have what the child would have inherited from its parent; end here where that has gone."""
    order = passed.order
    die_with(order.parent, order.ended_by or 0)
    for limit, (soft, hard) in zip(LIMITS, order.limits, strict=True):
        if resource.getrlimit(limit) != (soft, hard):
            resource.setrlimit(limit, (soft, hard))
    text, folder, *fds = passed.fds
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
    """Give each descriptor its number, whatever numbers they have."""
    for at, number in enumerate(numbers):
        if number in fds[at + 1 :]:
            fds[fds.index(number, at + 1)] = os.dup(number)
        if fds[at] != number:
            os.dup2(fds[at], number)
            os.close(fds[at])


def _fork_server(order: ChildOrder) -> socket.socket | None:
    """Fork a server for the children of this child, before it has threads. Returns there the line to this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    server = os.fork()
    if server:
        theirs.close()
        adopt(ForkLine(ours, server))
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
    """Run the module as `python -m` does. Returns what it exits with."""
    _show_command(order.module, *order.arguments)
    sys.argv = ["", *order.arguments]
    # That it has been imported before is meant so.
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning, "runpy")
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code
    return None


def _end(code: object) -> NoReturn:
    """End as the interpreter does, but leave the objects: to take them apart would copy all the memory they share."""
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
    """What `ps` shows of this process; where the room for it ends, the rest is left out."""
    start, end = map(int, stat_fields(Path("/proc/self/stat"))[_COMMAND_LINE_FIELD:][:2])
    text = " ".join([sys.executable, "-m", module, *arguments]).encode(errors="replace")
    room = end - start - 1
    if room > 0:  # not where the kernel keeps it to itself
        # A last byte that is no zero says that what is before the first zero is to be shown.
        ctypes.memmove(start, text[: room - 1].ljust(room, b"\0") + b" ", room + 1)


if __name__ == "__main__":
    main(sys.argv[1:])
