"""The host process's view of one model's daemon: a process that outlives this one, its address, and a line on which
operations are sent, and the answers received asynchronously.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

import msgspec
import psutil
import zmq
from msgspec.structs import replace

from shisha_rt.daemon.loop.log_lines import write_line
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.prepared import Preparation
from shisha_rt.machine.machine import Machine
from shisha_rt.process.child import Child, ChildStart, begin_child, end_in_words
from shisha_rt.process.pulse import Pulse
from shisha_rt.process.stat import began_ticks
from shisha_rt.protocol.header import decode_fields, encode_operation
from shisha_rt.protocol.multipart import receive_parts, send_parts
from shisha_rt.repository.entries import ModelEntry, identity_of
from shisha_rt.repository.hosted import HOSTED_MODEL, DaemonRecord, HostedModel, StartOptions, write_daemon_record

log = logging.getLogger(__name__)

_MODULE: Final = "shisha_rt.repository.hosted"
_ANY_PORT: Final = "127.0.0.1:0"
_SILENCE_S: Final = 20.0
"""A daemon that answers nothing and uses no CPU for so long hangs; while it starts, if it is stopped, too."""
LONGEST_SOCKET: Final = "99999.share/socket"
"""Path of a daemon's socket for shared memory, in `Home.folder`: longer than that of its endpoint."""
_ANSWERS_WITHIN_S: Final = 2.0
"""One that does neither for so long is not ready meanwhile."""


Fields: TypeAlias = Mapping[str, Any]
Then: TypeAlias = Callable[[Fields], None]
"""Called with the fields of the answer; an error answer is `{"error": {"code", "message"}}`."""

GONE: Final[Fields] = {"error": {"code": "UNAVAILABLE", "message": "the daemon has ended"}}


class AskingLine:
    """A line to one daemon; closing it answers all waiting calls with `GONE`. `answers`: how many have come so far."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, poller: Poller) -> None:
        self.answers = 0
        self._poller = poller
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Then] = {}
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        poller.watch_socket(self._socket, self._receive)
        self._fd = int(self._socket.fileno())

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def ask(self, op: str, then: Then, **arguments: object) -> None:
        """Send an operation. `then` is called once, with the answer's fields."""
        request_id = str(next(self._numbers))
        self._waiting[request_id] = then
        self._poller.stir(self._fd)
        try:
            send_parts(self._socket, [encode_operation(op, request_id, arguments)], copy=True)
        except zmq.Again:
            del self._waiting[request_id]
            then(GONE)

    def _receive(self) -> Iterator[object]:
        while True:
            try:
                header = receive_parts(self._socket)[0]
            except zmq.Again:
                return
            self.answers += 1
            fields = decode_fields(header.buffer)
            then = self._waiting.pop(str(fields.get("id")), None)
            if then is not None:
                then(fields)
            yield from ()

    def close(self) -> None:
        self._poller.unwatch(self._fd)
        self._socket.close()
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(GONE)


def refusal(fields: Fields) -> str | None:
    """The message of an error answer; None if the operation succeeded."""
    error = fields.get("error")
    return None if error is None else str(msgspec.to_builtins(error)["message"])


@dataclass(frozen=True, slots=True)
class DaemonStarts:
    """`step`: what the daemon does now, until it is ready."""

    daemon: ModelDaemon
    step: str


@dataclass(frozen=True, slots=True)
class DaemonReady:
    daemon: ModelDaemon


@dataclass(frozen=True, slots=True)
class DaemonEnded:
    """`refused`: the daemon itself reported that it cannot serve the model; starting it again is useless."""

    daemon: ModelDaemon
    reason: str
    refused: bool = False


class Home(NamedTuple):
    """Where the daemons of a host process have their sockets and records, and what this process hears them by."""

    folder: Path
    poller: Poller
    context: zmq.Context[zmq.Socket[bytes]]


class ModelDaemon:
    """`number`: unique in the folder of the host process's address. `ready`: the daemon serves, at `endpoint`."""

    def __init__(self, entry: ModelEntry, number: int, home: Home) -> None:
        self.entry = entry
        self.identity = identity_of(entry)
        self.number = number
        self.endpoint = f"ipc://{home.folder / str(number)}"
        self.metrics = ""
        self.ready = False
        self.pid = 0
        self.crowded: tuple[str, ...] | None = None
        self._line: AskingLine | None = None
        self._folder = home.folder
        self._poller = home.poller
        self._context = home.context
        self._start: ChildStart | None = None
        self._end_it_by: int | None = None  # the signal, if it is to end before it has started
        self._child: Child | None = None
        self._pidfd: int | None = None
        self._pulse: Pulse | None = None
        self._hang: str | None = None
        self._said = b""
        self._reason = ""
        self._last_lines: deque[str] = deque(maxlen=5)

    @property
    def is_silent(self) -> bool:
        """Whether it does not answer now. It may yet: requests still go to it."""
        return self._pulse is not None and self._pulse.silent_s > _ANSWERS_WITHIN_S

    def ask(self, op: str, then: Then, **arguments: object) -> None:
        """Send an operation, if the daemon is there."""
        if self._line is None:
            then(GONE)
        else:
            self._line.ask(op, then, **arguments)

    def start(self, machine: Machine, leases: Path | None, start: StartOptions) -> None:
        """Begin to start the daemon's process. Raises OSError if no descriptor or thread is available.

        If no process is, the poller yields its end.
        """
        entry = self.entry
        own = {"name": entry.name, "version": entry.version, "endpoint": self.endpoint, "metrics": _ANY_PORT}
        settings = replace(entry.settings, http=(), leases=None, **own)
        record = _record_of(self._folder, self.number)
        preparation = Preparation(settings, machine, start.fresh, start.log)
        asked = HostedModel(preparation, leases, os.getpid(), record, self.identity, self.number)
        self._start = begin_child(_MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._poller.watch(self._start.fileno(), partial(self._started, HOSTED_MODEL.encode(asked)))

    def _started(self, asked: bytes) -> Iterator[DaemonEnded]:
        """Give the process, which runs now, its orders. Yields its end if it could not be started."""
        assert self._start is not None
        begun, self._start = self._start, None
        self._poller.unwatch(begun.fileno())
        try:
            child = begun.child()
        except OSError as error:
            yield DaemonEnded(self, f"no process could be started for it: {error.strerror}")
            return
        self._child, self._pidfd, self.pid = child, child.pidfd, child.pid
        self._pulse = Pulse(child.pid, _SILENCE_S, patience_s=math.inf)
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin as end:
            end.write(asked)
        for pipe, read in ((child.stdout, self._read_lines), (child.stderr, self._read_log)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._poller.watch(pipe.fileno(), partial(read, pipe))
        self._poller.watch(child.pidfd, self._ended)
        if self._end_it_by is not None:
            self.terminate(self._end_it_by)

    def adopt(self, record: DaemonRecord) -> None:
        """Take over a daemon that serves already. Raises OSError if it has ended, whoever has its process id now."""
        self.pid, self.metrics = record.pid, record.metrics
        descriptor = os.pidfd_open(record.pid)
        if not _is_daemon(record):
            os.close(descriptor)
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        self._pidfd = descriptor
        self._poller.watch(self._pidfd, self._ended)
        self._serve()

    def _serve(self) -> None:
        self._pulse = Pulse(self.pid, _SILENCE_S)
        self.ready = True
        self._line = AskingLine(self._context, self.endpoint, self._poller)

    def look(self) -> None:
        """Called periodically: kill the daemon if it hangs."""
        if self._pulse is not None and self._hang is None:
            if self._line is not None and not self._line.waits:
                self.ask("server_live", lambda _: None)
            self._hang = self._pulse.look(0 if self._line is None else self._line.answers)
            if self._hang is not None:
                log.warning("%s: its daemon is killed: %s", self.entry.name, self._hang)
                self.terminate(signal.SIGKILL)

    def send_away(self) -> None:
        """Have a replaced daemon send its clients away, and mark its record so that nobody adopts it."""
        record = DaemonRecord(None, self.number, self.pid, self.metrics, began_ticks(self.pid))
        try:
            write_daemon_record(_record_of(self._folder, self.number), record)
        except OSError as error:
            log.warning("%s: the record of its daemon cannot be written: %s", self.entry.name, error)
        self.ask("send_away", lambda _: None)

    def _read_lines(self, pipe: IO[bytes]) -> Iterator[DaemonStarts | DaemonReady]:
        data = pipe.read()
        if not data:
            self._poller.unwatch(pipe.fileno())
            return
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line)
            if "step" in said:
                yield DaemonStarts(self, said["step"])
            elif said["ready"]:
                self.metrics = said["metrics"]
                self._serve()
                yield DaemonReady(self)
            else:
                self._reason = said["reason"]

    def _read_log(self, pipe: IO[bytes]) -> Iterator[object]:
        data = pipe.read()
        if not data:
            self._poller.unwatch(pipe.fileno())
        for line in (data or b"").decode(errors="replace").splitlines():
            self._last_lines.append(line)
            write_line(sys.stderr, f"{self.entry.name}: {line}")
        return iter(())

    def _ended(self) -> Iterator[DaemonEnded]:
        reason = self._reason or self._hang
        if self._child is not None:
            status = self._child.wait()
            reason = reason or end_in_words(status)
            if not self._reason and self._last_lines and status > 0:
                reason = f"{reason}: {self._last_lines[-1]}"
        self.close()
        yield DaemonEnded(self, reason or "it has ended", refused=bool(self._reason))

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Send its process a signal to end, as soon as there is one."""
        self._end_it_by = number
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """Release this process's resources for a daemon that has ended, and remove the files that it may have left."""
        self.ready = False
        if self._start is not None:
            self._poller.unwatch(self._start.fileno())
            self._start.drop()
            self._start = None
        descriptor, self._pidfd = self._pidfd, None
        if descriptor is None:
            return
        self._poller.unwatch(descriptor)
        if self._child is not None:
            for pipe in (self._child.stdout, self._child.stderr):
                assert pipe is not None
                self._poller.unwatch(pipe.fileno())
            self._child.end()
        else:
            os.close(descriptor)
        line, self._line = self._line, None
        if line is not None:
            line.close()
        _forget(self._folder, self.number)


def left_daemons(folder: Path) -> Sequence[DaemonRecord]:
    """Records of the daemons that a host process that died has left in its address's folder, the newest first.

    What cannot be read stays there: it may be about a daemon, which then holds its cores and the socket of its number.
    """
    records = []
    for path in folder.glob("*.json"):
        try:
            records.append(msgspec.json.decode(path.read_bytes(), type=DaemonRecord))
        except (OSError, msgspec.MsgspecError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            log.warning("%s: %s; expected the record of a model's daemon; left as it is", path, reason)
    return sorted(records, key=lambda record: -record.number)


def last_number(folder: Path) -> int:
    """The highest number that a record in the folder has, whether it can be read or not; 0 without any."""
    return max((int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()), default=0)


def end_left(folder: Path, records: Sequence[DaemonRecord], within_s: float) -> None:
    """End these daemons and remove their files. Process ids are checked, as they may have been reused."""
    processes = []
    for record in records:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(record.pid)
            if _is_daemon(record):
                process.terminate()
                processes.append(process)
    _, hung = psutil.wait_procs(processes, within_s)
    for process in hung:
        with contextlib.suppress(psutil.Error):  # it has just ended
            process.kill()
    for record in records:
        _forget(folder, record.number)


def _is_daemon(record: DaemonRecord) -> bool:
    """Whether the record's daemon lives: its id may have been given to another process, or another host's daemon."""
    if record.began_ticks not in (0, began_ticks(record.pid)):
        return False
    try:
        return _MODULE in psutil.Process(record.pid).cmdline()
    except psutil.Error:
        return False


def _record_of(folder: Path, number: int) -> Path:
    return folder / f"{number}.json"


def _forget(folder: Path, number: int) -> None:
    """Remove a daemon's files in the folder, which it leaves there if it is killed."""
    record = _record_of(folder, number)
    socket = folder / str(number)
    for path in (record, record.with_suffix(".begun"), socket, socket.with_name(f"{number}.lock")):
        path.unlink(missing_ok=True)
    shutil.rmtree(socket.with_name(f"{number}.share"), ignore_errors=True)
