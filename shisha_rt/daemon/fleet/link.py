"""The daemon's ends of the lines to its workers, by incarnation."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import msgspec

from shisha_rt.fabric import messages
from shisha_rt.fabric.channel import Channel, ChannelBroken
from shisha_rt.fabric.messages import FromWorker, ToWorker

log = logging.getLogger(__name__)


class Link:
    """Messages to and from all workers."""

    def __init__(self) -> None:
        self._channels: dict[int, Channel] = {}

    def open(self, incarnation: int) -> tuple[int, socket.socket]:
        """A line for a worker about to be started: our descriptor, to be polled, and the end for it to inherit."""
        ours, theirs = Channel.pair()
        self._channels[incarnation] = ours
        return ours.fileno(), theirs

    def send(self, incarnation: int, message: ToWorker) -> None:
        """A worker that is gone gets nothing: its pidfd tells. One that reads nothing is hung, and found so."""
        channel = self._channels.get(incarnation)
        if channel is not None:
            try:
                channel.send(messages.TO_WORKER.encode(message))
            except ChannelBroken as broken:
                log.warning("a message to worker %d was lost: %s", incarnation, broken)

    def receive(self, incarnation: int) -> Iterator[FromWorker]:
        """What the worker has said. One that speaks reads, too, so it is sent what has waited for room."""
        channel = self._channels[incarnation]
        try:
            if channel.waiting:
                channel.flush()
            for data in channel.receive():
                try:
                    yield messages.FROM_WORKER.decode(data)
                except msgspec.MsgspecError as error:
                    log.warning("a message of worker %d was not understood: %s", incarnation, error)
        except ChannelBroken as broken:
            log.warning("worker %d is heard no more: %s", incarnation, broken)

    def is_open(self, incarnation: int) -> bool:
        return self._channels[incarnation].open

    def close(self, incarnation: int) -> None:
        self._channels.pop(incarnation).close()
