"""The worker processes: started, watched each by its own pidfd, killed. It never presumes a death.

A process counts as gone only when its pidfd is readable; until then its slots may still be written to. Everything
here is called from the daemon's main thread: a worker asks the kernel to be killed with the *thread* that started it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import msgspec

from shisha_rt.daemon.fleet.link import Link
from shisha_rt.daemon.fleet.watch import Patience, Watch
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.budgets import Budgets
from shisha_rt.fabric.messages import FromWorker, WorkerConfig
from shisha_rt.lifecycle.events import WorkerGone
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.ready.compile import Compiled

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.25
_LATE_FACTOR: Final = 2.0  # a look counts for at most this many intervals: beyond it the daemon itself was late


@dataclass(slots=True)
class Process:
    """One incarnation's process. `stderr` ends with the last lines that it wrote there."""

    place: str
    incarnation: int
    popen: subprocess.Popen[bytes]
    pidfd: int
    stderr: IO[bytes]
    channel_fd: int
    watch: Watch = field(default_factory=Watch)
    ready: bool = False
    kill_reason: str | None = None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))


class Supervisor:
    """Starts and ends workers. `said` is told each of their messages, `gone` each death, after the last message."""

    def __init__(
        self,
        machine: Machine,
        arena: Arena,
        budgets: Budgets,
        poller: Poller,
        link: Link,
        compiled: Compiled,
        devices: Mapping[str, tuple[Device, ...]],
    ) -> None:
        self._machine = machine
        self._places = {place.name: (index, place) for index, place in enumerate(machine.places)}
        for index, place in self._places.values():
            arena.set_speed(index, place.speed)
        self._arena = arena
        self._budgets = budgets
        self._poller = poller
        self._link = link
        self.said: Callable[[FromWorker], None] = lambda message: None
        self.gone: Callable[[WorkerGone], None] = lambda gone: None
        self._compiled = compiled
        self._devices = devices
        self._last_look_s = time.monotonic()
        self.patience = Patience()
        self.processes: dict[int, Process] = {}

    def start(self, place_name: str, incarnation: int) -> None:
        index, place = self._places[place_name]
        self._arena.clear_sign(index, time.monotonic_ns())
        budget_fd = self._budgets.fd(place.memory)
        channel_fd, theirs = self._link.open(incarnation)
        config = WorkerConfig(
            place=place.name,
            place_index=index,
            place_count=len(self._places),
            cores=place.cores,
            threads=place.threads,
            incarnation=incarnation,
            channel_fd=theirs.fileno(),
            engine_folder=str(self._compiled.engine_folder),
            arena_fd=self._arena.fd,
            slot_count=self._arena.slot_count,
            parent_pid=os.getpid(),
            time_scale=self._machine.time_scale,
            bandwidth_bytes_per_s=self._machine.bandwidth_bytes_per_s(place),
            budget_fd=budget_fd,
            model_folder=str(self._compiled.model_folder),
            devices=self._devices.get(place_name, ()),
        )
        popen = subprocess.Popen(
            [sys.executable, "-m", "stages.worker", msgspec.json.encode(config).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[fd for fd in (self._arena.fd, theirs.fileno(), budget_fd) if fd is not None],
        )
        theirs.close()
        assert popen.stderr is not None
        os.set_blocking(popen.stderr.fileno(), False)
        process = Process(place.name, incarnation, popen, os.pidfd_open(popen.pid), popen.stderr, channel_fd)
        self.processes[incarnation] = process
        self._poller.watch(process.pidfd, lambda: self._bury(process))
        self._poller.watch(popen.stderr.fileno(), lambda: self._read_stderr(process))
        self._poller.watch(channel_fd, lambda: self._hear(process))

    def ready(self, incarnation: int) -> None:
        """Its worker is up: from now on silence counts."""
        if incarnation in self.processes:
            self.processes[incarnation].ready = True

    def kill(self, incarnation: int, reason: str) -> None:
        process = self.processes.get(incarnation)
        if process is None:
            return
        if process.kill_reason is None:
            process.kill_reason = reason
        log.warning("killing the worker on %s (pid %d): %s", process.place, process.popen.pid, reason)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)

    def _hear(self, process: Process) -> None:
        for message in self._link.receive(process.incarnation):
            self.said(message)
        if not self._link.is_open(process.incarnation):
            self._unwatch(process.channel_fd)

    def _read_stderr(self, process: Process) -> None:
        data = process.stderr.read()
        if data == b"":  # closed at the other end; the pidfd will tell the rest
            self._unwatch(process.stderr.fileno())
        for line in (data or b"").decode(errors="replace").splitlines():
            if line.strip():
                process.last_lines.append(line.strip()[:500])
                log.warning("worker on %s: %s", process.place, line)

    def _bury(self, process: Process) -> None:
        """Reap a dead process. What it had already said still counts, and the board tells which frame it computed."""
        status = process.popen.wait()
        self._hear(process)
        self._read_stderr(process)
        index, _ = self._places[process.place]
        running = self._arena.sign(index).frame
        del self.processes[process.incarnation]
        for fd in (process.pidfd, process.stderr.fileno(), process.channel_fd):
            self._unwatch(fd)
        os.close(process.pidfd)
        process.stderr.close()
        self._link.close(process.incarnation)
        reason = process.kill_reason or _cause(status, process.last_lines)
        self.gone(WorkerGone(process.incarnation, running, reason))

    def _unwatch(self, fd: int) -> None:
        if self._poller.watches(fd):
            self._poller.unwatch(fd)

    def look(self, expected_s: Mapping[str, float]) -> list[tuple[int, str]]:
        """The incarnations that hang now, with why. `expected_s`: a frame's usual time on each place."""
        now_ns = time.monotonic_ns()
        now_s = now_ns / 1e9
        seen_s = min(now_s - self._last_look_s, _LATE_FACTOR * LOOK_EVERY_S)
        self._last_look_s = now_s
        hung = []
        for process in self.processes.values():
            if process.ready and process.kill_reason is None:
                sign = self._arena.sign(self._places[process.place][0])
                usual_s, pid = expected_s.get(process.place, 0.0), process.popen.pid
                wants_core = functools.partial(_wants_core, pid)
                reason = process.watch.look(sign, now_ns, seen_s, usual_s, self.patience, wants_core)
                if reason is not None:
                    hung.append((process.incarnation, reason))
        return hung

    def end_all(self) -> None:
        """Kill and reap every worker."""
        self.said = lambda message: None
        self.gone = lambda gone: None
        for process in list(self.processes.values()):
            process.popen.kill()
        for process in list(self.processes.values()):
            self._bury(process)


def _wants_core(pid: int) -> bool:
    """Whether some thread of the process is runnable."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            if stat.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def _cause(status: int, last_lines: deque[str]) -> str:
    if status < 0:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    said = f": {last_lines[-1]}" if last_lines else ""
    return f"exit status {status}{said}"
