"""The daemon's ends of the lines to its workers, by incarnation."""

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
    """Messages to and from all workers. A line that breaks is told of, as a worker that hangs: it is of no use."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._channels: dict[int, Channel] = {}
        self._lent: dict[int, set[int]] = {}

    def open(self, incarnation: int) -> socket.socket:
        """The end for a worker about to be started to inherit; ours is watched from now on. Raises OSError."""
        ours, theirs = Channel.pair()
        self._channels[incarnation], self._lent[incarnation] = ours, set()
        self._poller.watch(ours.fileno(), partial(self.read, incarnation))
        return theirs

    def lend(self, incarnation: int, region: int, fd: int) -> WorkerHung | None:
        """Before the first message that names it, a worker gets the descriptor of a client's region."""
        lent = self._lent.get(incarnation)
        if lent is None or region in lent:
            return None
        lent.add(region)
        return self.send(incarnation, messages.Lend(region), fd)

    def take_back(self, region: int) -> list[WorkerHung]:
        """The region has ended, and with it all that names it."""
        having = [incarnation for incarnation, lent in self._lent.items() if region in lent]
        for incarnation in having:
            self._lent[incarnation].discard(region)
        sends = (self.send(incarnation, messages.TakeBack(region)) for incarnation in having)
        return [hung for hung in sends if hung is not None]

    def send(self, incarnation: int, message: ToWorker, beside: int | None = None) -> WorkerHung | None:
        """A worker that is gone gets nothing: its pidfd tells. `beside`: a descriptor that goes with the message."""
        channel = self._channels.get(incarnation)
        if channel is None or not channel.open:
            return None
        try:
            channel.send(messages.TO_WORKER.encode(message), beside)
        except ChannelBroken as broken:
            return None if str(broken) == GONE else WorkerHung(incarnation, f"it takes no messages: {broken}")
        return None

    def receive(self, incarnation: int) -> Iterator[FromWorker | WorkerHung]:
        """All that the worker has said."""
        while said := self.read(incarnation):
            yield from said

    def read(self, incarnation: int) -> Sequence[FromWorker | WorkerHung]:
        """The next that the worker has said, if it has. One that speaks reads, too: it is sent what waited for room."""
        channel = self._channels[incarnation]
        said: list[FromWorker | WorkerHung] = []
        try:
            data = channel.take()
            if data is not None:
                said.append(messages.FROM_WORKER.decode(data))
            if channel.waiting and channel.open:
                channel.flush()
        except msgspec.MsgspecError as error:  # it may have been a frame's end, so it is of no use any more
            said.append(WorkerHung(incarnation, f"it is not understood: {error}"))
        except ChannelBroken as broken:
            if str(broken) != GONE:
                said.append(WorkerHung(incarnation, f"it is not understood: {broken}"))
        if not channel.open:
            self._poller.unwatch(channel.fileno())
        return said

    def look(self) -> Iterator[WorkerHung]:
        """Every so often: send what has waited for room."""
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
