"""The far end of a place on another host: `python -m stages.far.host CONFIG` (see `messages.worker.FarConfig`).

It has an arena like the daemon's, in which frames have the same slots, and starts on it the same worker as the daemon
would. It writes the tensors that its relay sends into the slot and passes the part on; with the part's end it sends
back the tensors that other stages need. It ends with its worker, its relay, or the process that started it, and leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.machine.host.leases import take_cores
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import FarConfig, FarUp
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.child import end_in_words, start_child
from shisha_rt.process.parent import die_with
from shisha_rt.process.readable import is_readable
from shisha_rt.process.stat import wants_core
from stages.far import messages as far
from stages.far.carrier import Carried, CarrierBroken, FarEnd
from stages.far.shipping import FarModel, NotPrepared, Shipping

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_BEAT_EVERY_S: Final = 0.2
_RELAY_COMES_S: Final = 30.0
_RELAY_SILENT_S: Final = 15.0
_WORKER_SILENT_S: Final = 1.0
_NO_LAYOUT: Final = -1
_STARVED_S: Final = 10.0  # as the daemon has it for its own workers


def main(arguments: list[str]) -> int:
    config = msgspec.json.decode(arguments[0], type=FarConfig)
    die_with(config.parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model = FarModel(config.worker)
        end = FarEnd(config.listen, config.near_key, model.largest_bytes)
    except (CarrierBroken, OSError, msgspec.MsgspecError) as error:
        sys.exit(f"the far end of {config.worker.place}: {error}")
    print(msgspec.json.encode(FarUp(end.endpoint, end.key)).decode(), flush=True)
    with contextlib.closing(end):
        try:
            end.await_connected(_RELAY_COMES_S, f"its relay has not come within {_RELAY_COMES_S:g} s")
            with contextlib.closing(FarPlace(config, model, end)) as place:
                place.run()
        except (CarrierBroken, OSError) as error:
            sys.exit(f"the far end of {config.worker.place}: {error}")
    return 0


class FarPlace:
    """The worker, its arena, and the line to its relay."""

    def __init__(self, config: FarConfig, model: FarModel, end: FarEnd) -> None:
        self._end = end
        self._worker = config.worker
        self._model = model
        self._arena = Arena.create(model.layouts, config.worker.slot_count, place_count=1)
        self._arena.set_speed(0, 1.0)  # until its relay says otherwise
        self._arena.clear_sign(0, time.monotonic_ns())
        self._shipping = Shipping(self._arena, sends="makes")
        self._here: dict[Descriptor, tuple[int, float]] = {}  # the layout of each part here, and when it came
        self._beat_s = 0.0
        self._heard_s = time.monotonic()
        self._ready = False
        self._channel, theirs = Channel.pair()
        taken = take_cores(config.worker.threads) if not config.worker.cores else None
        if taken is not None and taken.why_shared is not None:
            print(f"{config.worker.place} shares its cores: {taken.why_shared}", file=sys.stderr)
        own = msgspec.structs.replace(
            config.worker,
            place_index=0,
            place_count=1,
            cores=config.worker.cores if taken is None else taken.cores,
            channel_fd=theirs.fileno(),
            arena_fd=self._arena.fd,
            parent_pid=os.getpid(),
            budget_fd=None,
        )
        given, fds = msgspec.json.encode(own).decode(), [theirs.fileno(), self._arena.fd]
        self._child = start_child("stages.worker", given, pass_fds=fds, stderr=subprocess.PIPE)
        assert self._child.stderr is not None
        os.set_blocking(self._child.stderr.fileno(), False)
        theirs.close()
        self._last_lines: deque[str] = deque(maxlen=20)

    def run(self) -> None:
        """Run until the worker is dead. Raises CarrierBroken when the relay is gone."""
        assert self._child.stderr is not None
        poller = select.poll()
        fds = [self._channel.fileno(), self._child.pidfd, self._child.stderr.fileno(), *self._end.filenos()]
        for fd in fds:
            poller.register(fd, select.POLLIN)
        while True:
            self._look(time.monotonic())
            data = self._channel.take()
            if data is not None:
                self._pass_on(messages.FROM_WORKER.decode(data))
            if self._channel.waiting and self._channel.open:
                with contextlib.suppress(ChannelBroken):
                    self._channel.flush()
            carried = self._end.take()  # last: see `Relay._serve`
            if carried is not None:
                self._heard_s = time.monotonic()
                self._hear(carried)
            if carried is None and data is None:
                self._read_stderr()
                if is_readable(self._child.pidfd, 0):
                    self._tell_end()
                    return
                if not self._channel.open:
                    time.sleep(1e-3)  # until the kernel reports the worker's end
                poller.poll(_BEAT_EVERY_S * 1e3)

    def _tell_end(self) -> None:
        """Tell the relay the root cause, and which frame the worker was computing."""
        status = self._child.wait()
        self._read_stderr()
        said = f": {self._last_lines[-1]}" if self._last_lines else ""
        crashed = status != -signal.SIGKILL
        ended = far.Ended(f"its worker there: {end_in_words(status)}{said}", self._arena.sign(0).frame, crashed)
        self._tell(ended)
        until_s = time.monotonic() + 1.0
        with contextlib.suppress(CarrierBroken):
            while time.monotonic() < until_s:  # the relay closes the line once it has read the message
                self._end.take()
                time.sleep(5e-3)

    def _read_stderr(self) -> None:
        stderr = self._child.stderr
        assert stderr is not None
        for line in (stderr.read() or b"").decode(errors="replace").splitlines():
            if line.strip():
                self._last_lines.append(line.strip()[:500])
                print(line, file=sys.stderr)

    def _look(self, now_s: float) -> None:
        """Called periodically: report the worker's signs of life."""
        if now_s < self._beat_s + _BEAT_EVERY_S:
            return
        self._beat_s = now_s
        if now_s - self._heard_s > _RELAY_SILENT_S:
            raise CarrierBroken(f"nothing has come from its relay for {_RELAY_SILENT_S:g} s")
        paced = self._arena.sign(0).paced_until_ns > time.monotonic_ns()
        self._tell(far.Beat(self._is_alive, paced))

    @property
    def _is_alive(self) -> bool:
        """Whether the worker shows signs of life, or only waits for a core; True until it is ready."""
        silent_s = (time.monotonic_ns() - self._arena.sign(0).heartbeat_ns) / 1e9
        if not self._ready or silent_s < _WORKER_SILENT_S:
            return True
        return silent_s < _STARVED_S and wants_core(self._child.pid)

    # --- from the relay ---------------------------------------------------------------------------------------

    def _hear(self, carried: Carried) -> None:
        match message := carried.message(far.TO_FAR):
            case far.RunFar():
                self._run(message, carried)
            case far.PrepareFar():
                self._prepare(message)
            case messages.Retire(epoch=epoch):
                self._shipping.retire(epoch)
                self._order(message)
            case far.RepaceFar(at_once=at_once, speed=speed):
                self._arena.set_speed(0, speed)
                self._order(messages.Repace(at_once))
            case far.Ping(number=number, bytes_back=bytes_back):
                tensors = [memoryview(bytes(min(bytes_back, messages.LARGEST_PING_BYTES)))] if bytes_back else []
                self._tell(far.Pong(number), tensors)

    def _prepare(self, message: far.PrepareFar) -> None:
        order = message.order
        if order.split is not None:
            why = "a place on another host takes no shards"
        elif (message.reads, message.makes) != self._model.ends(order.work):
            why = "this host's engine cuts the model in another way"
        else:
            self._shipping.prepare(message)
            self._order(order)
            return
        self._tell(messages.PrepareFailed(order.epoch, order.stage, self._worker.incarnation, why))

    def _run(self, message: far.RunFar, carried: Carried) -> None:
        part, layout = message.run.part, message.run.layout
        try:
            self._shipping.receive(part, layout, message, carried)
        except (NoRoom, NotPrepared) as error:
            self._tell(messages.Failed(part, str(error)))
            return
        self._here[part] = layout, time.monotonic()
        self._order(message.run)

    def _order(self, message: messages.ToWorker) -> None:
        """Send an order to the worker. If it reads no more it is about to end, and the cause of that is reported."""
        with contextlib.suppress(ChannelBroken):
            self._channel.send(messages.TO_WORKER.encode(message))

    # --- from the worker --------------------------------------------------------------------------------------

    def _pass_on(self, message: messages.FromWorker) -> None:
        match message:
            case messages.Done(part=part):
                self._done(message, part)
            case messages.Failed(part=part):
                self._here.pop(part, None)
                self._tell(message)
            case messages.Ready() | messages.Prepared() | messages.PrepareFailed():
                self._ready = True
                self._tell(message)
            case _:
                raise CarrierBroken(f"its worker says {message}")

    def _done(self, done: messages.Done, part: Descriptor) -> None:
        layout, since_s = self._here.pop(part, (_NO_LAYOUT, 0.0))
        try:
            sent, tensors = self._shipping.send(part, layout)
        except (NoRoom, NotPrepared) as error:
            self._tell(messages.Failed(part, str(error)))
            return
        self._tell(far.DoneFar(done, sent, time.monotonic() - since_s), tensors)

    def _tell(self, message: far.FromFar, tensors: Sequence[memoryview] = ()) -> None:
        self._end.send(far.FROM_FAR.encode(message), tensors)

    def close(self) -> None:
        self._child.end()
        self._channel.close()
        self._arena.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
