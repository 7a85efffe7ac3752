"""The worker processes and the channels to them: starts them, watches each by its pidfd, and kills them.

A death is never presumed: a process counts as gone only when its pidfd is readable; until then it may still write to
its slots.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shisha_rt.core.lifecycle.events import WorkerGone, WorkerHung
from shisha_rt.daemon.fleet.far_places import FarPlaces
from shisha_rt.daemon.fleet.watch import DEFAULT_LIMITS, HangLimits, Watch
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.model_files import ModelFiles
from shisha_rt.machine.host.memory import frames_memory_bytes, kernel_kills
from shisha_rt.machine.machine import Place
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.messages.worker import (
    FAR_END_GONE,
    FROM_WORKER,
    TO_WORKER,
    FromWorker,
    Lend,
    TakeBack,
    ToWorker,
    WorkerConfig,
)
from shisha_rt.process.arena import Arena
from shisha_rt.process.budgets import Budgets
from shisha_rt.process.channel import GONE, Channel, ChannelBroken
from shisha_rt.process.child import Child, ChildStart, begin_child, end_in_words
from shisha_rt.process.pulse import SILENCE_S, Pulse
from shisha_rt.process.stat import wants_core

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.25
_FAR_START_S: Final = 60.0  # a relay is idle while its far end starts; the cluster process reports if that fails
_MOST_LEFT_BYTES: Final = 1 << 20  # in the pipe from a dead worker, which holds 64 kB
_LATE_FACTOR: Final = 2.0  # the time between looks counts up to so many intervals: beyond, the daemon was late


class WorkerLink:
    """The daemon's ends of channels to workers, by incarnation; a broken channel is reported as a hung worker."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._channels: dict[int, Channel] = {}
        self._lent: dict[int, set[int]] = {}

    def open(self, incarnation: int) -> socket.socket:
        """Create a channel, and watch our end. Returns the end that the new worker is to inherit. Raises OSError."""
        ours, theirs = Channel.pair()
        self._channels[incarnation], self._lent[incarnation] = ours, set()
        self._poller.watch(ours.fileno(), functools.partial(self.read, incarnation))
        return theirs

    def lend(self, incarnation: int, region: int, fd_of: Callable[[int], int]) -> WorkerHung | None:
        """Send a worker the descriptor of a client's region, before the first message that names the region."""
        lent = self._lent.get(incarnation)
        if lent is None or region in lent:
            return None
        lent.add(region)
        return self.send(incarnation, Lend(region), fd_of(region))

    def take_back(self, region: int) -> list[WorkerHung]:
        """Have workers close their descriptors of a region that has ended."""
        holders = [incarnation for incarnation, lent in self._lent.items() if region in lent]
        for incarnation in holders:
            self._lent[incarnation].discard(region)
        sends = (self.send(incarnation, TakeBack(region)) for incarnation in holders)
        return [hung for hung in sends if hung is not None]

    def send(self, incarnation: int, message: ToWorker, beside: int | None = None) -> WorkerHung | None:
        """Send a message, with the descriptor `beside`; nothing to a dead worker, whose pidfd reports the death."""
        channel = self._channels.get(incarnation)
        if channel is None or not channel.open:
            return None
        try:
            channel.send(TO_WORKER.encode(message), beside)
        except ChannelBroken as broken:
            return None if str(broken) == GONE else WorkerHung(incarnation, f"it takes no messages: {broken}")
        return None

    def receive(self, incarnation: int) -> Iterator[FromWorker | WorkerHung]:
        while received := self.read(incarnation):
            yield from received

    def read(self, incarnation: int) -> Sequence[FromWorker | WorkerHung]:
        """Read the worker's next message, if there is one; then send messages that waited as the channel was full."""
        channel = self._channels[incarnation]
        received: list[FromWorker | WorkerHung] = []
        try:
            data = channel.take()
            if data is not None:
                received.append(FROM_WORKER.decode(data))
            if channel.waiting and channel.open:
                channel.flush()
        except (msgspec.MsgspecError, ChannelBroken) as error:
            if str(error) != GONE:  # the report of a part may be lost, so the worker is of no use any more
                received.append(WorkerHung(incarnation, f"it is not understood: {error}"))
        if not channel.open:
            self._poller.unwatch(channel.fileno())
        return received

    def look(self) -> Iterator[WorkerHung]:
        """Called periodically: send messages that waited as a channel was full."""
        for incarnation, channel in self._channels.items():
            if channel.waiting and channel.open:
                try:
                    channel.flush()
                except ChannelBroken as broken:
                    if str(broken) != GONE:
                        yield WorkerHung(incarnation, f"it takes no messages: {broken}")

    def close(self, incarnation: int) -> None:
        channel = self._channels.pop(incarnation)
        del self._lent[incarnation]
        self._poller.unwatch(channel.fileno())
        channel.close()


@dataclass(slots=True)
class Process:
    """One incarnation, and `running`: its process once started. `last_lines`: its last lines on standard error."""

    place: str
    incarnation: int
    start: ChildStart
    running: Running | None = None
    ready: bool = False
    kill_reason: str | None = None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def pid(self) -> int | None:
        return None if self.running is None else self.running.child.pid


@dataclass(slots=True)
class Running:
    """A worker's process, seen by its `pulse` until it is ready, then by its `watch`. `stderr`: our end of its pipe."""

    child: Child
    stderr: int
    pulse: Pulse
    watch: Watch


class Supervisor:
    """Starts and ends workers. `poller` yields their messages, and each death after the worker's last message."""

    def __init__(
        self,
        ready: ModelOnMachine,
        arena: Arena,
        budgets: Budgets,
        poller: Poller,
        far: FarPlaces,
        patience: HangLimits = DEFAULT_LIMITS,
        max_worker_bytes: int | None = None,
    ) -> None:
        self.link = WorkerLink(poller)
        self.far = far
        self.ready = ready
        self.arena = arena
        self._files = ModelFiles(
            folder for shape in ready.compiled.each for folder in (shape.model_folder, shape.engine_folder)
        )
        self.processes: dict[int, Process] = {}
        self._patience = patience
        self._max_worker_bytes = max_worker_bytes
        self._budgets = budgets
        self._poller = poller
        self._kernel_kills = kernel_kills()
        self._index = {place.name: index for index, place in enumerate(ready.machine.places)}
        for place in ready.machine.places:
            arena.set_speed(self._index[place.name], place.speed)
        self._last_look_s = time.monotonic()

    def start(self, place_name: str, incarnation: int) -> None:
        """Begin to start a worker. Raises OSError, leaving nothing behind, if a descriptor, host or file is missing.

        If no process is available, `poller` yields its end.
        """
        place = self.ready.machine.place(place_name)
        if place.remote and place_name not in self.far.hosts:
            raise OSError(errno.EHOSTUNREACH, "no host has it now")
        self._files.need()
        self.arena.clear_sign(self._index[place_name], time.monotonic_ns())
        theirs = self.link.open(incarnation)
        try:
            config = self._config(place, incarnation, theirs.fileno())
            fds = (self.arena.fd, theirs.fileno(), config.budget_fd)
            start = begin_child(
                "stages.far.relay" if place.remote else "stages.worker",
                msgspec.json.encode(config).decode(),
                pass_fds=[fd for fd in fds if fd is not None],
                stderr=subprocess.PIPE,
            )
        except OSError:
            self.link.close(incarnation)
            raise
        finally:
            theirs.close()
        process = self.processes[incarnation] = Process(place_name, incarnation, start)
        if place.remote:
            self.far.expect(place_name, incarnation, config)
        self._poller.watch(start.fileno(), functools.partial(self._started, process))

    def _started(self, process: Process) -> Iterator[WorkerGone]:
        """Watch a worker's process, which runs now. Yields the worker's end if it could not be started."""
        self._poller.unwatch(process.start.fileno())
        try:
            child = process.start.child()
        except OSError as error:  # out of descriptors or processes
            self._remove(process)
            reason = f"it could not be started: {error.strerror}"
            yield WorkerGone(process.incarnation, None, reason, started=False)
            return
        assert child.stderr is not None
        stderr = child.stderr.fileno()
        os.set_blocking(stderr, False)
        silence_s = _FAR_START_S if self.ready.machine.place(process.place).remote else SILENCE_S
        watch = Watch(self._patience, functools.partial(wants_core, child.pid))
        process.running = Running(child, stderr, Pulse(child.pid, silence_s), watch)
        self._poller.watch(child.pidfd, functools.partial(self._bury, process, process.running))
        self._poller.watch(stderr, functools.partial(self._read_stderr, process, stderr))
        if process.kill_reason is not None:
            child.kill()

    def _remove(self, process: Process) -> None:
        del self.processes[process.incarnation]
        self.link.close(process.incarnation)
        self.far.gone(process.incarnation)

    def _config(self, place: Place, incarnation: int, channel_fd: int) -> WorkerConfig:
        compiled, machine = self.ready.compiled, self.ready.machine
        return WorkerConfig(
            place=place.name,
            place_index=self._index[place.name],
            place_count=len(self._index),
            cores=place.cores,
            threads=place.threads,
            incarnation=incarnation,
            channel_fd=channel_fd,
            engine_folders=tuple(str(shape.engine_folder) for shape in compiled.each),
            arena_fd=self.arena.fd,
            slot_count=self.arena.slot_count,
            parent_pid=os.getpid(),
            time_scale=machine.time_scale,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s(place),
            budget_fd=self._budgets.fd(place.memory),
            model_folders=tuple(str(shape.model_folder) for shape in compiled.each),
            devices=self.ready.devices.get(place.name, ()),
            scales=self.ready.scales,
            output_bytes=self.arena.layout.output_bytes,
            max_worker_bytes=self._max_worker_bytes,
        )

    def is_ready(self, incarnation: int) -> None:
        """Note that the worker is up: from now on its silence counts."""
        if incarnation in self.processes:
            self.processes[incarnation].ready = True

    def kill(self, incarnation: int, reason: str, level: int = logging.WARNING) -> None:
        """Kill a worker for a reason, which its death is then told by, and the log at `level`."""
        process = self.processes.get(incarnation)
        if process is None:
            return
        if process.kill_reason is None:
            process.kill_reason = reason
        log.log(level, "killing the worker on %s (pid %s): %s", process.place, process.pid, reason)
        if process.running is not None:
            process.running.child.kill()

    def place_of(self, incarnation: int) -> str | None:
        """Return the place of a worker; None for a worker that is gone."""
        process = self.processes.get(incarnation)
        return None if process is None else process.place

    def _read_stderr(self, process: Process, stderr: int, most_bytes: int = select.PIPE_BUF) -> Iterator[object]:
        """Log what the worker has written, `most_bytes` of it: it may write faster than the loop may log."""
        try:
            data = os.read(stderr, most_bytes)
        except BlockingIOError:
            return iter(())
        if not data:  # closed at the other end; the pidfd reports the death
            self._poller.unwatch(stderr)
        for line in data.decode(errors="replace").splitlines():
            if line.strip():
                process.last_lines.append(line.strip()[:500])
                log.warning("worker on %s: %s", process.place, line)
        return iter(())

    def _bury(self, process: Process, ended: Running) -> Iterator[FromWorker | WorkerHung | WorkerGone]:
        """Reap a dead process. Yields its last messages, then its end, with the frame that it computed by the board."""
        child = ended.child
        child.wait()
        yield from self.link.receive(process.incarnation)
        self._read_stderr(process, ended.stderr, _MOST_LEFT_BYTES)
        running = self.arena.sign(self._index[process.place]).frame
        for fd in (child.pidfd, ended.stderr):
            self._poller.unwatch(fd)
        status = child.end()
        self._remove(process)
        by_itself = status not in (-signal.SIGKILL, FAR_END_GONE)
        reason, crashed = process.kill_reason, process.kill_reason is None and by_itself
        if reason is None:
            reason = f"{_cause(status, process.last_lines)}{self._of_memory(status)}"
            log.warning("the worker on %s (pid %d) has ended: %s", process.place, process.pid, reason)
        yield WorkerGone(process.incarnation, running, reason, crashed=crashed)

    def _of_memory(self, status: int) -> str:
        """Explanation of a SIGKILL if the kernel has killed a process for memory since the last death; else empty."""
        kills, self._kernel_kills = self._kernel_kills, kernel_kills()
        if status != -signal.SIGKILL or kills == self._kernel_kills:
            return ""
        mib = frames_memory_bytes(self._max_worker_bytes) / 2**20
        return (
            f" by the kernel, as memory ran out; frames may take {mib:.0f} MiB of a worker's, "
            "which serve --max-worker-bytes sets"
        )

    def look(self, expected_s: Mapping[str, float], parts: Mapping[int, int]) -> list[WorkerHung]:
        """Called periodically. Returns the workers that hang now, each with the reason.

        `expected_s`: usual time of a batch on each place. `parts`: how many are dealt to each incarnation.
        """
        now_ns = time.monotonic_ns()
        now_s = now_ns / 1e9
        seen_s = min(now_s - self._last_look_s, _LATE_FACTOR * LOOK_EVERY_S)
        self._last_look_s = now_s
        hung = list(self.link.look())
        for process in self.processes.values():
            running = process.running
            if process.kill_reason is None and running is not None:
                if process.ready:
                    sign, usual_s = self.arena.sign(self._index[process.place]), expected_s.get(process.place, 0.0)
                    reason = running.watch.look(sign, now_ns, seen_s, usual_s, parts.get(process.incarnation, 0))
                else:
                    silent = running.pulse.look() is not None
                    reason = f"it starts, and has done nothing for {running.pulse.silent_s:.1f} s" if silent else None
                if reason is not None:
                    hung.append(WorkerHung(process.incarnation, reason))
        return hung

    def close(self) -> None:
        """Like `end_all`; no worker can be started any more."""
        self.end_all()
        self._files.close()

    def end_all(self) -> None:
        """Kill and reap every worker; their last messages are dropped."""
        for process in list(self.processes.values()):
            process.kill_reason = process.kill_reason or "the daemon ends"
            if process.running is None:
                deque(self._started(process), maxlen=0)
            else:
                process.running.child.kill()
        for process in list(self.processes.values()):
            assert process.running is not None
            deque(self._bury(process, process.running), maxlen=0)


def _cause(status: int, last_lines: deque[str]) -> str:
    if status == FAR_END_GONE and last_lines:
        return last_lines[-1]
    said = f": {last_lines[-1]}" if last_lines and status >= 0 else ""
    return f"{end_in_words(status)}{said}"
