"""The ways to send a daemon messages of several parts, by the protocol alone: ZeroMQ, or a direct line."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Sequence
from typing import Protocol

import zmq

from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.protocol.line import pack, unpack
from tests.serving.sharing.lent_region import talk
from tests.waiting import PATIENCE_S


class Way(Protocol):
    def send(self, parts: Sequence[bytes]) -> None: ...

    def receive(self, wait_s: float) -> list[bytes] | None:
        """The next message; None if none comes for so long."""

    def close(self) -> None: ...


class ByZeroMq:
    def __init__(self, endpoint: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    def send(self, parts: Sequence[bytes]) -> None:
        self._socket.send_multipart(parts)

    def receive(self, wait_s: float) -> list[bytes] | None:
        return self._socket.recv_multipart() if self._socket.poll(int(1e3 * wait_s)) else None

    def close(self) -> None:
        self._socket.close()


class ByLine:
    """`path`: of the socket at which the daemon lends memory. A line that has ended is silent, as ZeroMQ would be."""

    def __init__(self, path: str) -> None:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.settimeout(PATIENCE_S)
        end.connect(path)
        said, _ = talk(end, json.dumps({"op": "line"}).encode())
        assert said is not None
        assert said["instance"]
        end.setblocking(True)
        self._channel = Channel(end)
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, parts: Sequence[bytes]) -> None:
        with contextlib.suppress(ChannelBroken):
            self._channel.send(pack(parts))

    def receive(self, wait_s: float) -> list[bytes] | None:
        if not self._poll.poll(1e3 * wait_s):
            return None
        message = self._channel.take()
        if message is None:
            time.sleep(wait_s)
            return None
        return [bytes(part) for part in unpack(message)]

    def close(self) -> None:
        self._channel.close()
