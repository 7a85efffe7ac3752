"""The worker process of one place: `python -m stages.worker CONFIG` (see `fabric.messages.WorkerConfig`).

One loop: read messages, run parts in their order, and between two frames swap in what the builder has finished.
A second thread signs the board; if it falls silent, or a frame takes far too long, the daemon kills the process.
The worker dies with its daemon, whatever way that goes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec
import zmq

from shisha_rt.fabric import messages, model_index
from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.layout import layout_of
from shisha_rt.fabric.messages import WorkerConfig
from stages.engines.ort_segment import OptimisedModel
from stages.executor import Executor, one_line

_HEARTBEAT_S: Final = 0.1
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> int:
    config = msgspec.json.decode(arguments[0], type=WorkerConfig)
    _die_with_parent(config.parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; only the daemon acts on it
    os.sched_setaffinity(0, config.cores)
    Worker(config).run()
    return 0


def _die_with_parent(parent_pid: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before we could ask
        os._exit(1)


class Worker:
    """Everything of one incarnation."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        folder = Path(config.engine_folder)
        index = model_index.read(folder)
        self._arena = Arena.attach(config.arena_fd, layout_of(index), config.slot_count, config.place_count)
        threading.Thread(target=self._sign, name="heartbeat", daemon=True).start()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._executor = Executor(
            OptimisedModel(folder, index), self._arena, config.threads, config.incarnation, self._wake
        )
        self._pending: deque[messages.Run] = deque()
        self._idle_since_s = time.monotonic()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, str(config.incarnation).encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.set_hwm(0)

    def run(self) -> None:
        """Until the daemon ends this process."""
        self._socket.connect(self._config.endpoint)
        self._send(messages.Ready(self._config.incarnation))
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_fd, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(0 if self._pending else None))
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
                for answer in self._executor.take_built():
                    self._send(answer)
            if self._socket in ready:
                self._receive()
            if self._pending:
                self._run(self._pending.popleft())

    def _receive(self) -> None:
        while True:
            try:
                data = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            match messages.decode_to_worker(data):
                case messages.Run() as run:
                    self._pending.append(run)
                case messages.Prepare() as order:
                    self._executor.prepare(order)
                case messages.Retire(epoch=epoch):
                    self._executor.retire(epoch)

    def _run(self, run: messages.Run) -> None:
        start_s = time.monotonic()
        self._arena.note_start(self._config.place_index, run.frame, time.monotonic_ns())
        try:
            cpu_s = self._executor.run(run.epoch, run.stage, run.slot)
        except Exception as error:
            self._send(messages.Failed(run, one_line(error)))
        else:
            end_s = time.monotonic()
            self._send(messages.Done(run, end_s - start_s, cpu_s, start_s - self._idle_since_s))
        self._arena.note_end(self._config.place_index)
        self._idle_since_s = time.monotonic()

    def _send(self, message: messages.FromWorker) -> None:
        self._socket.send(messages.encode(message))

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _sign(self) -> None:
        while True:
            self._arena.beat(self._config.place_index, time.monotonic_ns())
            time.sleep(_HEARTBEAT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
