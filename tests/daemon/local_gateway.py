"""A gateway with what it offers to clients on its host, and a turn of the daemon's loop for it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from typing import Final, Self

import msgspec
import zmq

from shisha_rt.daemon.front.gateway import Arrived, Gateway
from shisha_rt.daemon.front.lines import Lines
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.sharing import Sharing
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.signature import Signature
from tests.waiting import PATIENCE_S

INSTANCE: Final = "instance"
LIMITS: Final = Limits(max_message_bytes=67_000, max_answer_bytes=1_200, max_header_bytes=64_000)


class LocalGateway:
    """`arrived`: what has been accepted, in order. `counts`: errors, by the name of their counter."""

    def __init__(self, endpoint: str, most_lines: int = 4) -> None:
        self.counts: Counter[str] = Counter()
        self.arrived: list[Arrived] = []
        self._closing = contextlib.ExitStack()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._closing.callback(context.term)
        self.poller = Poller()
        self._closing.callback(self.poller.close)
        signature = Signature("m", (Tensor("x", (1, 4), "FP32"),), (Tensor("y", (1, 4), "FP32"),))
        regions = Regions(16, 1 << 20)
        self.gateway = Gateway(context, endpoint, signature, LIMITS, regions, self._count)
        self._closing.callback(self.gateway.close)
        self.gateway.listen(self.poller, self.gateway.receive)
        self.lines = Lines(self.gateway, self.poller, most_lines)
        self._closing.callback(self.lines.close)
        self.sharing = Sharing(self.gateway.endpoint, INSTANCE, regions, self.lines, self.poller)
        self._closing.callback(self.sharing.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _count(self, name: str) -> None:
        self.counts[name] += 1

    def turn(self) -> None:
        self.arrived += [event for event in self.poller.poll(0.0) if isinstance(event, Arrived)]
        self.gateway.tend(time.monotonic())

    def turns(self) -> None:
        """As many turns as a few messages take: a turn has a share of time, in which a slow machine reads just one."""
        for _ in range(10):
            self.turn()

    def connected(self) -> socket.socket:
        """A client's connection to the socket for memory and lines."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closing.callback(end.close)
        end.settimeout(PATIENCE_S)
        end.connect(str(self.sharing.path))
        return end

    def line(self) -> socket.socket:
        """A client's end of a new direct line."""
        end = self.connected()
        assert self.answer(end, b'{"op":"line"}') == {"instance": INSTANCE}
        return end

    def answer(self, end: socket.socket, message: bytes) -> object:
        end.send(message)
        self.turns()
        return msgspec.json.decode(end.recv(1 << 16))
