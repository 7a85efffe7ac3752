"""One model's daemon as the host process has it: a process that outlives this one, its address, and a line to it."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import zmq
from msgspec.structs import replace

from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.errors import Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.process.child import Child, start_child
from shisha_rt.repository.asking import AskingLine
from shisha_rt.repository.entries import ModelEntry, told
from shisha_rt.repository.hosted import HostedModel

log = logging.getLogger(__name__)

_MODULE: Final = "shisha_rt.repository.hosted"
_ANY_PORT: Final = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class DaemonReady:
    daemon: ModelDaemon


@dataclass(frozen=True, slots=True)
class DaemonEnded:
    """`refused`: it says itself that it cannot serve this, and would not another time."""

    daemon: ModelDaemon
    reason: str
    refused: bool = False


class _Record(msgspec.Struct, frozen=True):
    """What a host process leaves in its folder for one that takes over: a daemon that serves."""

    told: dict[str, Any]
    number: int
    pid: int
    metrics: str


class ModelDaemon:
    """`number` is its own in the folder of this address. `ready`: it serves, at `endpoint`."""

    def __init__(
        self, entry: ModelEntry, number: int, folder: Path, poller: Poller, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self.entry = entry
        self.number = number
        self.endpoint = f"ipc://{folder / str(number)}"
        self.metrics = ""
        self.ready = False
        self.line: AskingLine | None = None
        self.pid = 0
        self._record = folder / f"{number}.json"
        self._poller = poller
        self._context = context
        self._child: Child | None = None
        self._pidfd: int | None = None
        self._said = b""
        self._reason = ""
        self._last_lines: deque[str] = deque(maxlen=5)

    def start(self, machine: Machine, leases: Path | None, log_as: tuple[int, str], *, fresh: bool) -> None:
        """Raises OSError where no process can be had."""
        entry = self.entry
        own = {"name": entry.name, "version": entry.version, "endpoint": self.endpoint, "metrics": _ANY_PORT}
        settings = replace(entry.settings, http=(), leases=None, **own)
        asked = HostedModel(settings, machine, leases, log_as, fresh)
        child = start_child(_MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._child, self._pidfd, self.pid = child, child.pidfd, child.pid
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin as end:
            end.write(pickle.dumps(asked))
        for pipe, read in ((child.stdout, self._read_line), (child.stderr, self._read_log)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._poller.watch(pipe.fileno(), partial(read, pipe))
        self._poller.watch(child.pidfd, self._ended)

    def adopt(self, record: _Record) -> None:
        """Take over one that serves already. Raises OSError where it has just ended."""
        self.pid, self.metrics = record.pid, record.metrics
        self._pidfd = os.pidfd_open(record.pid)
        self._poller.watch(self._pidfd, self._ended)
        self._serve()

    def _serve(self) -> None:
        self.ready = True
        self.line = AskingLine(self._context, self.endpoint, self._poller)

    def keep_record(self) -> None:
        """For a host process that takes over when this one has died."""
        record = _Record(told(self.entry), self.number, self.pid, self.metrics)
        self._record.write_bytes(msgspec.json.encode(record))

    def _read_line(self, pipe: IO[bytes]) -> Iterator[DaemonReady]:
        data = pipe.read()
        if not data:
            self._poller.unwatch(pipe.fileno())
            return
        self._said += data
        if not self._said.endswith(b"\n"):
            return
        said = msgspec.json.decode(self._said)
        if said["ready"]:
            self.metrics = said["metrics"]
            self._serve()
            self.keep_record()
            yield DaemonReady(self)
        else:
            self._reason = said["reason"]

    def _read_log(self, pipe: IO[bytes]) -> Iterator[object]:
        data = pipe.read()
        if not data:
            self._poller.unwatch(pipe.fileno())
        for line in (data or b"").decode(errors="replace").splitlines():
            self._last_lines.append(line)
            print(f"{self.entry.name}: {line}", file=sys.stderr)
        return iter(())

    def _ended(self) -> Iterator[DaemonEnded]:
        reason = self._reason
        if self._child is not None:
            status = self._child.wait()
            reason = reason or (f"killed by signal {-status}" if status < 0 else f"exit status {status}")
            if not self._reason and self._last_lines and status > 0:
                reason = f"{reason}: {self._last_lines[-1]}"
        self.close()
        yield DaemonEnded(self, reason or "it has ended", refused=bool(self._reason))

    def terminate(self, number: int = signal.SIGTERM) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """It has ended: put away what is ours of it, and what it may have left."""
        self.ready = False
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
        line, self.line = self.line, None
        if line is not None:
            line.close()
        self._record.unlink(missing_ok=True)
        own = Path(self.endpoint.removeprefix("ipc://"))  # which it leaves behind if it was killed
        for path in (own, own.with_name(f"{own.name}.lock")):
            path.unlink(missing_ok=True)
        shutil.rmtree(own.with_name(f"{own.name}.share"), ignore_errors=True)


def left_daemons(folder: Path) -> Sequence[_Record]:
    """The daemons that serve a folder's address, as a host process that has died has left them."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(msgspec.json.decode(path.read_bytes(), type=_Record))
        except (OSError, msgspec.MsgspecError) as error:
            raise Failure(f"{path}: {error}; expected what a host process has left there") from None
    return records
