"""How child processes are started and ended.

Children are forked by a server that has their modules imported (`process/fork_server.py`). If there is no server, or it
cannot fork this child, the child is started as a program. Either way it is a child of the calling process.

A start takes tens of milliseconds, longer on a busy host, and as long as an import if the server does one. Who may not
wait has a thread do it (`begin_child`).

A child is watched by its pidfd, which is readable once the child has ended, and never refers to a different process.
Modules that run as children call `parent.die_with` first, so that none outlives its parent; for one that does not,
`ended_by` makes the kernel end it from the start.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import errno
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, TypeAlias

from shisha_rt.process.channel import Channel
from shisha_rt.process.fork_line import FORKING, ONCE, ChildOrder, ForkLine, ServerGone, read_at_start
from shisha_rt.process.readable import is_readable

_TUNABLES: Final = "GLIBC_TUNABLES"
_HUGE_PAGES: Final = "glibc.malloc.hugetlb=1"
"""Has the kernel back weights and tensors by pages of 2 MB, where it does so for those who ask, as it does by default.
Fewer addresses have to be translated then: AlexNet takes some 5% less for a frame, smaller networks as long as before.
"""


def children_environment() -> dict[str, str]:
    """The environment of children: this process's own, tuned for them where it says nothing else."""
    tunables = os.environ.get(_TUNABLES, "")
    if _HUGE_PAGES.partition("=")[0] not in tunables:
        tunables = ":".join(filter(None, (tunables, _HUGE_PAGES)))
    # By default each worker's numpy would start a thread for each core of the machine.
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", _TUNABLES: tunables}


_AT_START: Final = read_at_start(children_environment())
"""Variables that this process's fork server reads at its start; a child with different ones is not forked."""

_own: Final[set[int]] = set()
"""Children for which something here waits, until they are out of the process table."""

_Stream: TypeAlias = int | IO[Any] | None


class Child:
    """A process that has been started. `end` closes its descriptor and its pipes.

    `pidfd`: readable once the process has ended. `stdin`, `stdout`, `stderr`: our ends of the pipes that were
    requested. `returncode`: the exit status, or minus the signal that ended the process; None before it is waited for.
    """

    def __init__(self, pid: int, pipes: Sequence[IO[bytes] | None]) -> None:
        """Raises OSError if the process cannot be watched; it is killed then."""
        _own.add(pid)
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = pipes
        try:
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            _own.discard(pid)
            raise

    def poll(self) -> int | None:
        """Its exit status if it has ended, or minus a signal; None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self, within_s: float | None = None) -> int:
        """Its exit status once it has ended, or minus a signal. Raises subprocess.TimeoutExpired."""
        if within_s is not None and self.returncode is None and not is_readable(self.pidfd, within_s):
            raise subprocess.TimeoutExpired(str(self.pid), within_s)
        status = self._reap()
        assert status is not None
        return status

    def _reap(self, options: int = 0) -> int | None:
        if self.returncode is None:
            ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT | options)
            if ended is not None:
                self.returncode = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                _remove(self.pid)
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Send the process a signal, unless it has been waited for."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self) -> int:
        """Kill the process, if it still runs, and close our descriptors. Returns its exit status or minus a signal."""
        try:
            self.kill()
            return self.wait()
        finally:
            os.close(self.pidfd)
            self._close_pipes()

    def end_soon(self) -> None:
        """As `end`, but without waiting for the end of the process."""
        self.kill()
        if self.returncode is None:
            _remove(self.pid)
        os.close(self.pidfd)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


_Outcome: TypeAlias = Child | BaseException
"""What comes of a start: the child, or why there is none."""


class ChildStart:
    """A child that a thread starts, for a caller that may not wait. `fileno` is readable once that is done, or failed.

    Call either `child`, once, or `drop`.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        """Raises OSError if no descriptor or thread is available."""
        self._outcome: _Outcome | None = None
        self._dropped = False
        self._lock = threading.Lock()
        self._fd = os.eventfd(0)
        try:
            _starts.ask(start, self._done)
        except OSError:
            os.close(self._fd)
            raise

    def fileno(self) -> int:
        return self._fd

    def child(self) -> Child:
        """Return the child; wait for it if it has not started yet. Raises OSError if it could not be started."""
        os.read(self._fd, 8)  # the thread writes this last: nobody else uses the descriptor then
        os.close(self._fd)
        if not isinstance(self._outcome, Child):
            assert self._outcome is not None
            raise self._outcome
        return self._outcome

    def drop(self) -> None:
        """End the child, as soon as it has started, without waiting for that."""
        with self._lock:
            self._dropped = True
            if self._outcome is not None:
                self._end(self._outcome)

    def _done(self, outcome: _Outcome) -> None:
        """Called by the thread: the start has ended."""
        with self._lock:
            self._outcome = outcome
            if self._dropped:
                self._end(outcome)
            else:
                os.eventfd_write(self._fd, 1)

    def _end(self, outcome: _Outcome) -> None:
        os.close(self._fd)
        if isinstance(outcome, Child):
            outcome.end_soon()


class _Starts:
    """The thread in which children are started. It never ends, as a child ends with the thread that started it."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Child], Callable[[_Outcome], None]]] = queue.SimpleQueue()
        self._runs = False

    def ask(self, start: Callable[[], Child], done: Callable[[_Outcome], None]) -> None:
        """Have the thread call `start`, and `done` with what came of it. Raises OSError if no thread is available."""
        if not self._runs:
            try:
                threading.Thread(target=self._work, name="starts of children", daemon=True).start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from None
            self._runs = True
        self._asked.put((start, done))

    def _work(self) -> None:
        while True:
            start, done = self._asked.get()
            try:
                outcome: _Outcome = start()
            except BaseException as error:
                outcome = error
            done(outcome)


_starts: Final = _Starts()


def _remove(pid: int) -> None:
    """Take an ended child out of the process table, in a thread of its own.

    That waits for what is left of the child's threads, if somebody has looked at these in /proc: where all cores are
    taken, seconds for a thread of low priority.
    """
    try:
        _thread.start_new_thread(_wait_for, (pid,))  # `Thread.start` waits until the thread has a core
    except RuntimeError:  # no thread can be started
        _wait_for(pid)


def _wait_for(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED)
    _own.discard(pid)


def reap_orphan() -> None:
    """Take an orphan that has ended, if there is one, out of the process table, without waiting.

    The kernel gives this process its descendants whose parents ended while it was starting a child, and as the first
    process of a container all orphans there.
    """
    _servers.reap_orphan()


def start_child(
    module: str,
    *arguments: str,
    pass_fds: Sequence[int] = (),
    stdin: _Stream = subprocess.DEVNULL,
    stdout: _Stream = subprocess.DEVNULL,
    stderr: _Stream = None,
    ended_by: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Start `python -m MODULE ARGUMENTS`. The standard streams are as in `subprocess.Popen`.

    `ended_by`: the signal that the child gets when this process ends. `environment`: in place of
    `children_environment`. Raises OSError, and leaves nothing behind, if no process or descriptor can be had.
    """
    variables = children_environment() if environment is None else environment
    order = ChildOrder(module, arguments, pass_fds, dict(variables), ended_by)
    return _started(order, pass_fds, stdin, stdout, stderr)


def begin_child(
    module: str,
    *arguments: str,
    pass_fds: Sequence[int] = (),
    stdin: _Stream = subprocess.DEVNULL,
    stdout: _Stream = subprocess.DEVNULL,
    stderr: _Stream = None,
) -> ChildStart:
    """As `start_child`, but without waiting. The caller may close `pass_fds` at once.

    Raises OSError, and leaves nothing behind, if no descriptor or thread is available.
    """
    order = ChildOrder(module, arguments, pass_fds, children_environment(), None)
    with contextlib.ExitStack() as unless_begun:
        held = contextlib.ExitStack()
        unless_begun.callback(held.close)
        fds = []
        for fd in pass_fds:
            fds.append(os.dup(fd))
            held.callback(os.close, fds[-1])

        def start() -> Child:
            with held:
                return _started(order, fds, stdin, stdout, stderr)

        begun = ChildStart(start)
        unless_begun.pop_all()
    return begun


def _started(order: ChildOrder, descriptors: Sequence[int], *streams: _Stream) -> Child:
    with _inherited(*streams) as (theirs, ours):
        return Child(_servers.start(order, [*theirs, *descriptors]), ours)


def start_with_channel(module: str, beside: Sequence[int] = (), stderr: _Stream = None) -> tuple[Child, Channel]:
    """Start `python -m MODULE CHANNEL PARENT`, which inherits the descriptors `beside`; return it and our end.

    Raises OSError, and leaves nothing behind, if no descriptor or process is available.
    """
    channel, theirs = Channel.pair()
    try:
        with theirs:
            fd = theirs.fileno()
            return start_child(module, str(fd), str(os.getpid()), pass_fds=[fd, *beside], stderr=stderr), channel
    except OSError:
        channel.close()
        raise


def begin_with_channel(module: str, beside: Sequence[int] = ()) -> tuple[ChildStart, Channel]:
    """As `start_with_channel`, but without waiting: what is sent meanwhile reaches the child once it runs."""
    channel, theirs = Channel.pair()
    try:
        with theirs:
            fd = theirs.fileno()
            return begin_child(module, str(fd), str(os.getpid()), pass_fds=[fd, *beside]), channel
    except OSError:
        channel.close()
        raise


def expect_children(*modules: str) -> None:
    """Have these modules imported for later children, in the background, while no child is requested."""
    _servers.expect(modules)


def fork_server() -> int | None:
    """Id of the process that forks children for this one; below it are an intermediate process and a spare child."""
    line = _servers.line
    return None if line is None else line.server


class _Servers:
    """The server of this process: started with its first child, and again if it has died or been stopped.

    If children are expected, a new server first imports their modules. Until it has, children are started as programs,
    so that nobody waits.
    """

    def __init__(self) -> None:
        self.line: ForkLine | None = None
        self._asking = threading.Lock()
        self._forks = True
        self._expected: tuple[str, ...] = ()
        self._not_yet = False

    def start(self, order: ChildOrder, descriptors: Sequence[int]) -> int:
        with self._asking:
            for _ in range(2):
                line = self._line_for(order)
                if line is None:
                    break
                try:
                    pid = line.order(order, descriptors)
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                except ServerGone:
                    self._renew(order.environment)
                except ChildProcessError:  # or the child went to a different parent
                    self._forks = False
                else:
                    _own.add(pid)
                    return pid
            line = ForkLine.to_new_server(ONCE, order.environment)
            with line.socket, contextlib.suppress(ServerGone):  # its exit status says more
                try:
                    line.send_order(order, descriptors)
                except OSError:
                    line.close()
                    raise
            _own.add(line.server)
            return line.server

    def expect(self, modules: Sequence[str]) -> None:
        with self._asking, contextlib.suppress(OSError, ServerGone):
            self._expected += tuple(modules)
            if self.line is None:
                self.line = ForkLine.to_new_server(FORKING, children_environment())
            self.line.expect(modules)

    def reap_orphan(self) -> None:
        if not self._asking.acquire(blocking=False):  # a child that is being started is not among `_own` yet
            return
        try:
            with contextlib.suppress(ChildProcessError):  # no children
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                server = None if self.line is None else self.line.server
                if ended is not None and ended.si_pid != server and ended.si_pid not in _own:
                    _own.add(ended.si_pid)
                    _remove(ended.si_pid)
        finally:
            self._asking.release()

    def end(self) -> None:
        """End the server, if it is this process's own: if stopped before it has run, it would never end by itself."""
        line, self.line = self.line, None
        with contextlib.suppress(ChildProcessError):  # the server is another process's, of which this one is a fork
            if line is not None and os.waitid(os.P_PID, line.server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                line.close()

    def _line_for(self, order: ChildOrder) -> ForkLine | None:
        """The line to a server for this child; None if it is to be started as a program."""
        if not self._forks or read_at_start(order.environment) != _AT_START:
            return None
        if self.line is None:
            self._renew(order.environment)
        elif self._not_yet:
            try:
                self._not_yet = not self.line.is_ready()
            except ServerGone:
                self._renew(order.environment)
        return None if self._not_yet else self.line

    def _renew(self, environment: Mapping[str, str]) -> None:
        line, self.line = self.line, None
        if line is not None:
            line.close()
        self.line = ForkLine.to_new_server(FORKING, environment)
        self._not_yet = bool(self._expected)
        if self._expected:
            with contextlib.suppress(ServerGone):  # it shows when it is asked whether it is ready
                self.line.expect(self._expected)


_servers: Final = _Servers()
atexit.register(_servers.end)


def adopt(line: ForkLine) -> None:
    """Use a server that has just been forked from this process itself."""
    _servers.line = line


@contextlib.contextmanager
def _inherited(*streams: _Stream) -> Iterator[tuple[list[int], list[IO[bytes] | None]]]:
    """Descriptors of a child's working directory and streams, and our ends of its pipes, closed if it cannot start."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as unless_started:
        fds = [os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
        theirs.callback(os.close, fds[0])
        pipes: list[IO[bytes] | None] = []
        for number, stream in enumerate(streams):
            pipe = None
            if stream == subprocess.PIPE:
                ends = os.pipe()
                fds.append(ends[0] if number == 0 else ends[1])
                pipe = os.fdopen(ends[1] if number == 0 else ends[0], "wb" if number == 0 else "rb")
                unless_started.enter_context(pipe)
                theirs.callback(os.close, fds[-1])
            elif stream == subprocess.DEVNULL:
                fds.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
                theirs.callback(os.close, fds[-1])
            else:
                fds.append(number if stream is None else stream if isinstance(stream, int) else stream.fileno())
            pipes.append(pipe)
        yield fds, pipes
        unless_started.pop_all()


def end_in_words(status: int) -> str:
    """An exit status, or minus the signal that ended a process, in words."""
    if status >= 0:
        return f"exit status {status}"
    names = {number.value: f" ({number.name})" for number in signal.Signals}  # most real-time signals have none
    return f"killed by signal {-status}{names.get(-status, '')}"


def last_line(stderr: IO[bytes]) -> str:
    """The last line that a process wrote to this file, without OpenVINO's bullet; empty if it wrote nothing."""
    stderr.seek(0)
    return next(reversed(stderr.read().decode(errors="replace").strip().splitlines()), "").removeprefix("-- ")
