"""The daemon's ends of the channels to its workers, by incarnation."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from shisha_rt.core.lifecycle.events import WorkerHung
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import FromWorker, ToWorker
from shisha_rt.process.channel import GONE, Channel, ChannelBroken


class WorkerLink:
    """Messages to and from all workers. A broken channel is reported as a hung worker, which is of no use any more."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._channels: dict[int, Channel] = {}
        self._lent: dict[int, set[int]] = {}

    def open(self, incarnation: int) -> socket.socket:
        """Create a channel, and watch our end. Returns the end that the new worker is to inherit. Raises OSError."""
        ours, theirs = Channel.pair()
        self._channels[incarnation], self._lent[incarnation] = ours, set()
        self._poller.watch(ours.fileno(), partial(self.read, incarnation))
        return theirs

    def lend(self, incarnation: int, region: int, fd: int) -> WorkerHung | None:
        """Send a worker the descriptor of a client's region, before the first message that names the region."""
        lent = self._lent.get(incarnation)
        if lent is None or region in lent:
            return None
        lent.add(region)
        return self.send(incarnation, messages.Lend(region), fd)

    def take_back(self, region: int) -> list[WorkerHung]:
        """Have workers close their descriptors of a region that has ended."""
        holders = [incarnation for incarnation, lent in self._lent.items() if region in lent]
        for incarnation in holders:
            self._lent[incarnation].discard(region)
        sends = (self.send(incarnation, messages.TakeBack(region)) for incarnation in holders)
        return [hung for hung in sends if hung is not None]

    def send(self, incarnation: int, message: ToWorker, beside: int | None = None) -> WorkerHung | None:
        """Send a message, with the descriptor `beside`; nothing to a dead worker, whose pidfd reports the death."""
        channel = self._channels.get(incarnation)
        if channel is None or not channel.open:
            return None
        try:
            channel.send(messages.TO_WORKER.encode(message), beside)
        except ChannelBroken as broken:
            return None if str(broken) == GONE else WorkerHung(incarnation, f"it takes no messages: {broken}")
        return None

    def receive(self, incarnation: int) -> Iterator[FromWorker | WorkerHung]:
        """Yield all messages that the worker has sent."""
        while received := self.read(incarnation):
            yield from received

    def read(self, incarnation: int) -> Sequence[FromWorker | WorkerHung]:
        """Read the worker's next message, if there is one; then send messages that waited as the channel was full."""
        channel = self._channels[incarnation]
        received: list[FromWorker | WorkerHung] = []
        try:
            data = channel.take()
            if data is not None:
                received.append(messages.FROM_WORKER.decode(data))
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
