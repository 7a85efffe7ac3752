"""The relay of one place on another host: `python -m stages.far.relay CONFIG` (see `messages.worker.WorkerConfig`).

To the daemon it is that place's worker: one incarnation, with a worker's channel, board and arena. It passes orders on
to its far end, and with a part the tensors that its stage reads; the tensors that other stages need come back with the
part's end, into the slot. So a lost part can run again from its slot like any other, and once this process is dead
nothing writes into the arena for that place any more.

It signs the board as long as the far end shows signs of life. If the line breaks, it ends and reports the cause.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections import deque
from typing import Final

import msgspec

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import FAR_END_GONE, WorkerConfig
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.channel import Channel, ChannelBroken, OtherEndGone
from shisha_rt.process.lent import LentFault, read_lent, write_lent
from shisha_rt.process.parent import belong_to
from stages.far import messages as far
from stages.far.carrier import Carried, CarrierBroken, NearEnd
from stages.far.link_watch import LinkWatch
from stages.far.shipping import FarModel, NotPrepared, Shipping

_SIGN_EVERY_S: Final = 0.1
_CONNECT_S: Final = 10.0
_PACED_S: Final = 1.0


def main(arguments: list[str]) -> int:
    config = msgspec.json.decode(arguments[0], type=WorkerConfig)
    belong_to(config.parent_pid)
    relay = Relay(config)
    try:
        relay.run()
    except ChannelBroken as broken:
        sys.exit(f"the line to the daemon: {broken}")
    except CarrierBroken as broken:
        relay.blame_nothing()
        print(f"the line to its far end: {broken}", file=sys.stderr)
        return FAR_END_GONE
    except _FarEnded as ended:
        print(ended, file=sys.stderr)
        return 1 if ended.crashed else FAR_END_GONE
    return 0


class _FarEnded(Exception):
    """The far worker is dead. `crashed`: by its own fault, as nobody has killed it (SIGKILL)."""

    def __init__(self, reason: str, crashed: bool) -> None:
        super().__init__(reason)
        self.crashed = crashed


class Relay:
    """One incarnation."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._model = FarModel(config)
        self._arena = Arena(config.arena_fd, self._model.layouts, config.slot_count, config.place_count)
        self._shipping = Shipping(self._arena, sends="reads")
        self._lent: dict[int, int] = {}
        self._kept: deque[messages.Run] = deque()  # held while the link is being measured
        self._out: deque[tuple[messages.Run, float]] = deque()  # sent to the far end, with the time of that
        self._ended_s = time.monotonic()
        self._signed_s = 0.0
        self._channel = Channel.inherited(config.channel_fd)
        self._end = NearEnd(self._model.largest_bytes)
        self._link = LinkWatch()
        self._up: messages.Ready | None = None  # held until the link has been measured

    def run(self) -> None:
        """Run until the channel to the daemon closes, or the line to the far end breaks."""
        self._send(messages.Hail(self._config.incarnation, self._end.key))
        connect = self._await_connect()
        if connect is None:
            return
        self._end.connect(connect.endpoint, connect.public_key)
        poller = select.poll()
        for fd in (self._channel.fileno(), *self._end.filenos()):
            poller.register(fd, select.POLLIN)
        self._end.await_connected(_CONNECT_S, f"{connect.endpoint} does not answer")
        try:
            # The place's speed may have changed since its far end was started.
            self._repace(messages.Repace(at_once=False))
            self._serve(poller)
        except CarrierBroken:
            with contextlib.suppress(CarrierBroken):  # the far end's last messages may say why it has ended
                while (carried := self._end.take()) is not None:
                    self._hear(carried)
            raise

    def _await_connect(self) -> messages.Connect | None:
        """Wait for the message that says where the far end is; None if the daemon is gone.

        Other messages that every worker gets, such as `Lend`, may come before it.
        """
        while True:
            try:
                message = messages.TO_WORKER.decode(self._channel.wait())
            except OtherEndGone:
                return None
            match message:
                case messages.Connect():
                    return message
                case messages.Lend() | messages.TakeBack():
                    self._take(message)
                case messages.Repace():
                    pass
                case _:
                    raise ChannelBroken(f"{type(message).__name__} came before there was a far end")

    def _serve(self, poller: select.poll) -> None:
        """Pass messages on, both ways. The carrier is read last: a send may already notice that a message has come, and
        a poll does not report it again.
        """
        while self._channel.open:
            self._look(time.monotonic())
            data = self._channel.take()
            if data is not None:
                self._take(messages.TO_WORKER.decode(data))
            carried = self._end.take()
            if carried is not None:
                self._link.heard(time.monotonic())
                self._hear(carried)
            if carried is None and data is None:
                poller.poll(_SIGN_EVERY_S * 1e3)

    def blame_nothing(self) -> None:
        """Have no frame blamed for the end of this process."""
        self._arena.note_end(self._config.place_index)

    def _look(self, now_s: float) -> None:
        if now_s >= self._signed_s + _SIGN_EVERY_S:
            self._signed_s = now_s
            if self._link.is_alive(now_s):
                self._arena.beat(self._config.place_index, time.monotonic_ns())
        while self._kept and not self._link.wants_quiet(now_s):
            self._send_run(self._kept.popleft())
        ping = self._link.next_ping(time.monotonic())
        if ping is not None:
            message, tensors = ping
            self._end.send(far.TO_FAR.encode(message), tensors)

    # --- from the daemon --------------------------------------------------------------------------------------

    def _take(self, message: messages.ToWorker) -> None:
        match message:
            case messages.Run() as run:
                self._kept.append(run)  # `_look` sends it before the next poll
            case messages.Prepare() as order:
                self._prepare(order)
            case messages.Retire(epoch=epoch):
                self._shipping.retire(epoch)
                self._end.send(far.TO_FAR.encode(message))
            case messages.Repace() as order:
                self._repace(order)
            case messages.Lend(region=region):
                self._lent[region] = self._channel.take_beside()
            case messages.TakeBack(region=region):
                os.close(self._lent.pop(region))
            case messages.Forget():  # no place on another host is in a team of several
                self._send(messages.Forgotten(self._config.incarnation))
            case messages.Connect():
                raise ChannelBroken("it asks to connect again")

    def _repace(self, order: messages.Repace) -> None:
        speed = self._arena.speed(self._config.place_index)
        self._end.send(far.TO_FAR.encode(far.RepaceFar(order.at_once, speed)))

    def _prepare(self, order: messages.Prepare) -> None:
        stage = far.PrepareFar(order, *self._model.ends(order.work))
        if order.split is None:  # else the far end refuses it
            self._shipping.prepare(stage)
        self._end.send(far.TO_FAR.encode(stage))

    def _send_run(self, run: messages.Run) -> None:
        part, now_s = run.part, time.monotonic()
        try:
            back_bytes = self._shipping.received_bytes(part, run.layout)
            if run.reads:
                read_lent(run.reads, self._lent, self._arena, part.slot, run.layout)
            sent, tensors = self._shipping.send(part, run.layout)
        except (LentFault, NoRoom, NotPrepared) as error:
            self._send(messages.Failed(part, str(error)))
            return
        self._out.append((run, now_s))
        if len(self._out) == 1:
            self._note_start(part.frame)
        bare = messages.Run(part, run.layout)
        self._link.sends(part, sum(tensor.nbytes for tensor in tensors), back_bytes, now_s)
        self._end.send(far.TO_FAR.encode(far.RunFar(bare, sent)), tensors)

    # --- from the far end -------------------------------------------------------------------------------------

    def _hear(self, carried: Carried) -> None:
        match message := carried.message(far.FROM_FAR):
            case far.DoneFar():
                self._done(message, carried)
            case messages.Failed(part=part):
                if self._take_out(part) is not None:
                    self._link.part_ended(part, None, time.monotonic())
                    self._end_part(time.monotonic())
                    self._send(message)
            case far.Beat() as beat:
                self._link.beat(beat, time.monotonic())
                until_s = time.monotonic() + _PACED_S if beat.paced and self._out else 0.0
                self._arena.note_pacing(self._config.place_index, int(until_s * 1e9))
            case far.Pong():
                seen = self._link.pong(message, time.monotonic())
                if seen is not None:
                    self._send(messages.LinkSeen(self._config.incarnation, seen))
                    if self._up is not None:
                        self._send(self._up)
                        self._up = None
            case messages.Ready() if not self._link.is_measured:
                self._up = message
            case far.Ended(reason=reason, running=running, crashed=crashed):
                if running is None:
                    self.blame_nothing()
                else:
                    self._note_start(running)
                raise _FarEnded(reason, crashed)
            case _:
                self._send(message)

    def _done(self, message: far.DoneFar, carried: Carried) -> None:
        part = message.done.part
        out = self._take_out(part)
        if out is None:
            return
        run, here_s = out
        self._link.part_ended(part, message.here_s, time.monotonic())
        try:
            self._shipping.receive(part, run.layout, message, carried)
            if run.writes:
                write_lent(run.writes, self._lent, self._arena, part.slot, run.layout)
        except (LentFault, NoRoom, NotPrepared) as error:
            self._end_part(time.monotonic())
            self._send(messages.Failed(part, str(error)))
            return
        now_s = time.monotonic()
        start_s = max(here_s, self._ended_s)
        done = msgspec.structs.replace(message.done, service_s=now_s - start_s, waited_s=start_s - self._ended_s)
        self._end_part(now_s)
        self._send(done)

    def _take_out(self, part: Descriptor) -> tuple[messages.Run, float] | None:
        for out in self._out:
            if out[0].part == part:
                self._out.remove(out)
                return out
        return None

    def _end_part(self, now_s: float) -> None:
        self._ended_s = now_s
        self._arena.note_end(self._config.place_index)
        if self._out:
            self._note_start(self._out[0][0].part.frame)

    def _note_start(self, frame: int) -> None:
        self._arena.note_start(self._config.place_index, frame, time.monotonic_ns())

    def _send(self, message: messages.FromWorker) -> None:
        self._channel.send(messages.FROM_WORKER.encode(message))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
