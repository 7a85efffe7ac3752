"""The worker process of one place: `python -m stages.worker CONFIG` (see `messages.worker.WorkerConfig`).

One loop: read messages, run parts in their order, and between two frames take over stages that the builder has
finished. A part on an emulated place ends when it is due, not when it is computed; until then the loop reads messages.
A second thread signs the board; if it falls silent, or a frame takes far too long, the daemon kills the process.
The worker dies with its daemon, however the daemon ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import WorkerConfig
from shisha_rt.model.reader import index_file
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.layout import layouts_of
from shisha_rt.process.lent import LentFault, read_lent, write_lent
from shisha_rt.process.parent import belong_to, die_before_others
from stages.built.orders import CompiledStages, PlacedStages
from stages.emulate.place import EmulatedPlace, Started
from stages.engines.session import one_line
from stages.executor import Executor, Ran
from stages.memory_limit import WORKERS_SCORE, MemoryLimit, is_for_memory

_HEARTBEAT_S: Final = 0.1
_LONGEST_POLL_S: Final = 60.0
_BUILDING_MS: Final = 100  # longest wait for a message while stages are being built
_PR_SET_TIMERSLACK: Final = 29
_SWITCH_S: Final = 0.0002  # longest time for which a builder keeps the interpreter lock while a frame waits for it


def main(arguments: list[str]) -> int:
    config = msgspec.json.decode(arguments[0], type=WorkerConfig)
    belong_to(config.parent_pid)
    die_before_others(WORKERS_SCORE)
    if config.devices:
        from stages.engines.device_session import load_engines

        load_engines(device.engine for device in config.devices)
    allowed = os.sched_getaffinity(0)
    _pin(config)
    # The kernel may else add 50 us to the main thread's sleeps. The call cannot fail.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    sys.setswitchinterval(_SWITCH_S)
    try:
        Worker(config, allowed).run()
    except ChannelBroken as broken:
        sys.exit(f"the line to the daemon: {broken}")
    return 0


def _pin(config: WorkerConfig) -> None:
    """Pin this process to the cores of its place that it may use; if there are none, leave it as it is."""
    try:
        os.sched_setaffinity(0, config.cores)
    except OSError:  # the control group was moved to other cores after the daemon's start
        lost, left = (", ".join(map(str, sorted(cores))) for cores in (config.cores, os.sched_getaffinity(0)))
        warning = f"{config.place}: cores {lost} may not be used any more; its worker runs on cores {left}"
        print(warning, file=sys.stderr)


@dataclass(slots=True)
class _Part:
    """A part that has been computed on an emulated place, and ends at `due_s`. `dropped_s`: see `Done`."""

    descriptor: Descriptor
    started: Started
    start_s: float
    due_s: float
    ran: Ran
    dropped_s: float


class Worker:
    """One incarnation. `allowed`: the cores that the process might use before it was pinned; its teams may use them."""

    def __init__(self, config: WorkerConfig, allowed: Collection[int]) -> None:
        self._config = config
        indexes = [index_file.read_index(Path(folder)) for folder in config.engine_folders]
        layouts = layouts_of([index.tensors for index in indexes], config.output_bytes)
        self._arena = Arena(config.arena_fd, layouts, config.slot_count, config.place_count)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._memory = MemoryLimit(config.max_worker_bytes, config.place_count)
        threading.Thread(target=self._sign, name="heartbeat", daemon=True).start()
        self._place = EmulatedPlace(
            config.place,
            config.threads,
            partial(self._arena.speed, config.place_index),
            time_scale=config.time_scale,
            bandwidth_bytes_per_s=config.bandwidth_bytes_per_s,
            budget_fd=config.budget_fd,
        )
        stages = (
            PlacedStages(config, indexes[0], self._arena)
            if config.devices
            else CompiledStages(config, indexes, allowed)
        )
        self._executor = Executor(stages.build, self._arena, self._place, config.incarnation, self._wake)
        self._lent: dict[int, int] = {}  # descriptors of clients' regions, by number
        self._pending: deque[tuple[messages.Run, float]] = deque()  # each with the time when its input was ready
        self._forgetting: deque[tuple[int, ...]] = deque()  # the cores of each `Forget` that is not answered yet
        self._part: _Part | None = None
        self._idle_since_s = time.monotonic()
        self._channel = Channel.inherited(config.channel_fd)

    def run(self) -> None:
        """Run until the channel to the daemon closes."""
        self._send(messages.Ready(self._config.incarnation))
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(self._wake_fd, select.POLLIN)
        gc.freeze()  # objects that exist now stay: a garbage collection between two frames need not visit them
        while self._channel.open:
            # Under load the next message is already there, and is read without a poll.
            data = self._channel.take()
            if data is not None:
                self._handle(messages.TO_WORKER.decode(data))
            elif self._part is not None or not self._pending:
                self._wait(poller)
            if self._executor.has_built:
                for answer in self._executor.take_built():
                    self._send(answer)
            if self._forgetting and self._executor.forget(self._forgetting[0]):
                self._forgetting.popleft()
                self._send(messages.Forgotten(self._config.incarnation))
            if self._executor.building:
                self._executor.look_after_builders()
            if self._part is not None:
                self._end_if_due(self._part)
            elif self._memory.grown:
                self._give_back()
            elif self._memory.is_lifted and not self._executor.builds:
                self._memory.settle()
            elif self._pending:
                self._executor.give_way()
                self._run(*self._pending.popleft())

    def _wait(self, poller: select.poll) -> None:
        """Wait for a message or a wake-up, but at most until less than a millisecond is left of an emulated part."""
        patience_ms = _BUILDING_MS if self._executor.building else None
        if self._part is not None:
            patience_ms = max(0, int(min(_LONGEST_POLL_S, self._part.due_s - time.monotonic()) * 1e3))
        if (self._wake_fd, select.POLLIN) in poller.poll(patience_ms):
            os.eventfd_read(self._wake_fd)

    def _handle(self, message: messages.ToWorker) -> None:
        match message:
            case messages.Run() as run:
                self._take_run(run)
            case messages.Prepare() as order:
                self._memory.lift()
                self._executor.prepare(order)
            case messages.Retire(epoch=epoch):
                self._executor.retire(epoch)
            case messages.Forget(cores=cores):
                self._forgetting.append(cores)
            case messages.Repace(at_once=at_once):
                self._place.at_once = at_once
                self._repace()
            case messages.Lend(region=region):
                self._lent[region] = self._channel.take_beside()
            case messages.TakeBack(region=region):
                os.close(self._lent.pop(region))

    def _take_run(self, run: messages.Run) -> None:
        if 0 <= run.layout < len(self._arena.layouts):
            self._pending.append((run, run.ready_ns / 1e9 if run.ready_ns else time.monotonic()))
        else:
            reason = f"its slot is of layout {run.layout}, which this worker has not"
            self._send(messages.Failed(run.part, reason))

    def _run(self, run: messages.Run, ready_s: float) -> None:
        now_s = time.monotonic()
        part = run.part
        self._arena.note_start(self._config.place_index, part.frame, int(now_s * 1e9))
        try:
            if run.reads or run.beside:
                self._copy_lent(run, "reads")
            demand = self._executor.demand(part)
            started = self._place.start(demand, ready_s, now_s)
            ran = self._executor.run(part, run.layout)
            if run.writes or run.beside:
                self._copy_lent(run, "writes")
        except Exception as error:
            self._failed(part, error)
            return
        end_s = time.monotonic()
        due_s = self._place.finish(started, ran.paced_cpu_s, end_s)
        if started is None:
            self._report(part, ran, now_s, end_s)
            return
        self._note_pacing(due_s)
        start_s = max(ready_s, self._idle_since_s)
        self._part = _Part(part, started, start_s, due_s, ran, self._place.take_dropped_s())
        self._end_if_due(self._part)

    def _failed(self, part: Descriptor, error: Exception) -> None:
        if isinstance(error, LentFault | NoRoom):
            reason = str(error)
        elif is_for_memory(error):
            self._memory.lift()  # else there might be no memory to report the failure
            self._memory.grown = True
            reason = self._memory.explained(one_line(error))
        else:
            reason = one_line(error)
        self._send(messages.Failed(part, reason))
        self._end(time.monotonic())

    def _give_back(self) -> None:
        """Give memory that engines keep between frames back to the system."""
        self._memory.lift()
        self._executor.give_back()
        self._memory.gave_back()
        if not self._executor.builds:
            self._memory.hold()

    def _copy_lent(self, run: messages.Run, which: Literal["reads", "writes"]) -> None:
        """Copy lent tensors into or out of the slot of each frame of the run."""
        copy = read_lent if which == "reads" else write_lent
        slots = (run.part.slot, *(other.slot for other in run.part.beside))
        for copies, slot in zip((run, *run.beside), slots, strict=False):
            if pieces := getattr(copies, which):
                copy(pieces, self._lent, self._arena, slot, run.layout)

    def _repace(self) -> None:
        """Apply a new speed of the place, or that the place is taken down, to a part that waits until it is due."""
        part = self._part
        if part is not None:
            cpu_s, now_s = part.ran.paced_cpu_s, time.monotonic()
            part.started, part.due_s = self._place.repace(part.started, cpu_s, part.due_s, now_s)
            self._note_pacing(part.due_s)

    def _note_pacing(self, due_s: float) -> None:
        self._arena.note_pacing(self._config.place_index, round(due_s * 1e9))

    def _end_if_due(self, part: _Part) -> None:
        """Report the part if it is due within a millisecond, and sleep until then: `poll` waits whole milliseconds."""
        left_s = part.due_s - time.monotonic()
        if left_s >= 1e-3:
            return
        if left_s > 0:
            time.sleep(left_s)
        self._part = None
        self._report(part.descriptor, part.ran, part.start_s, time.monotonic(), part.dropped_s)

    def _report(self, part: Descriptor, ran: Ran, start_s: float, end_s: float, dropped_s: float = 0.0) -> None:
        waited_s = start_s - self._idle_since_s
        self._send(messages.Done(part, end_s - start_s, ran.cpu_s, waited_s, dropped_s, ran.segments_s))
        self._end(end_s)

    def _end(self, end_s: float) -> None:
        self._arena.note_end(self._config.place_index)
        self._idle_since_s = end_s

    def _send(self, message: messages.FromWorker) -> None:
        self._channel.send(messages.FROM_WORKER.encode(message))

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _sign(self) -> None:
        while True:
            with contextlib.suppress(MemoryError):  # a frame has used up all memory
                self._arena.beat(self._config.place_index, time.monotonic_ns())
                if self._memory.look():
                    self._wake()
            time.sleep(_HEARTBEAT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
