"""The daemon's end of the socket to its workers: ROUTER, bound in a private folder. Workers connect.

A worker's identity is its incarnation, so a message for a dead one can never reach its successor.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zmq

from shisha_rt.fabric import messages
from shisha_rt.fabric.messages import FromWorker, ToWorker


class Link:
    """Messages to and from all workers."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/workers"
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.set_hwm(0)
        self.socket.bind(self.endpoint)

    def send(self, incarnation: int, message: ToWorker) -> None:
        """A worker that is gone gets nothing: its pidfd tells the rest."""
        try:
            self.socket.send_multipart([str(incarnation).encode(), messages.encode(message)], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise

    def receive(self) -> FromWorker | None:
        """The next message, or None if there is none now."""
        while True:
            try:
                _, data = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return None
            except ValueError:
                continue  # not two parts: nobody that we know
            try:
                return messages.decode_from_worker(data)
            except msgspec.MsgspecError:
                continue

    def close(self) -> None:
        self.socket.close()
