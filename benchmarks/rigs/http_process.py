"""A program that posts one frame repeatedly over HTTP, in a separate process: as lean as Python can be.

One thread, persistent connections, requests encoded once. Of answers only the length is checked.

Settings: `ports` (of loopback, of which the first is used) or `unix` (the path of a socket), `inputs`, `in_flight`.
With `model` a frame is a request of the Open Inference Protocol, else raw bytes for `/inference`; with `shared` its
inputs are in a file of shared memory that is registered with the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking, obeying, random_inputs
from benchmarks.rigs.child_process import Child

_READ_BYTES: Final = 1 << 20
_LENGTH: Final = b"content-length:"
_END: Final = b"\r\n\r\n"
CLOSED: Final = "cut off"
_REFUSALS: Final = (429, 503)

Address: TypeAlias = int | str
"""A port of loopback, or the path of a UNIX socket."""


class Connection:
    """A connection with one request at a time."""

    def __init__(self, address: Address) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(("127.0.0.1", address))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.number = 0
        self._unsent = memoryview(b"")
        self._head = b""
        self._missing_bytes: int | None = None
        self._status = 0

    def begin(self, number: int, request: bytes) -> bool:
        """Send what can be sent; return whether all is sent. A closed connection is noticed by `read`."""
        self.number, self._unsent = number, memoryview(request)
        self._head, self._missing_bytes = b"", None
        return self.send_more()

    def send_more(self) -> bool:
        while self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
        return True

    def read(self, buffer: memoryview) -> str | None:
        """Result of the request, once its answer is complete."""
        try:
            count = self.socket.recv_into(buffer)
        except BlockingIOError:
            return None
        except ConnectionError:
            count = 0
        if not count:
            return CLOSED
        if self._missing_bytes is None:
            self._head += buffer[:count]
            head, end, body = self._head.partition(_END)
            if not end:
                return None
            self._status, self._missing_bytes = int(head[9:12]), length(head) - len(body)
        else:
            self._missing_bytes -= count
        if self._missing_bytes > 0:
            return None
        if self._status == 200:
            return ANSWERED
        return REFUSED if self._status in _REFUSALS else f"answered with status {self._status}"


def length(head: bytes) -> int:
    """Length of a body from its head. Raises `RuntimeError` if the head does not state it."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(_LENGTH):
            return int(line[len(_LENGTH) :])
    raise RuntimeError(f"an answer of no told length: {head.decode(errors='replace')!r}")


class HttpAsker:
    """As many connections as there are requests at once; connections of answered requests are used again."""

    def __init__(self, address: Address, request: bytes, connections: int) -> None:
        self._address = address
        self._request = request
        self._selector = selectors.EpollSelector()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._idle = [self._open() for _ in range(connections)]

    def send(self, number: int) -> None:
        connection = self._idle.pop() if self._idle else self._open()
        if not connection.begin(number, self._request):
            self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        until_s = time.monotonic() + timeout_s
        while True:
            # `select`, as epoll's timeouts are whole milliseconds.
            select.select([self._selector], [], [], max(0.0, until_s - time.monotonic()))
            outcomes = self._look()
            if outcomes or time.monotonic() >= until_s:
                return outcomes

    def _look(self) -> list[tuple[int, str]]:
        outcomes = []
        for key, events in self._selector.select(0):
            connection: Connection = key.data
            if events & selectors.EVENT_WRITE and connection.send_more():
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
            outcome = connection.read(self._buffer) if events & selectors.EVENT_READ else None
            if outcome == CLOSED:
                self._selector.unregister(connection.socket)
                connection.socket.close()
                if connection in self._idle:  # servers close those that have been idle for some seconds
                    self._idle.remove(connection)
                    continue
            if outcome is not None:
                outcomes.append((connection.number, outcome))
            if outcome not in (None, CLOSED):
                self._idle.append(connection)
        return outcomes

    def _open(self) -> Connection:
        connection = Connection(self._address)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        return connection


def post(target: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def infer(model: str, inputs: Sequence[dict[str, Any]], raw: bytes = b"") -> bytes:
    """A request of the Open Inference Protocol that asks for outputs as bytes, too."""
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return post(
        f"/v2/models/{model}/infer",
        header + raw,
        f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(header)}\r\n",
    )


@contextlib.contextmanager
def frame_request(settings: dict[str, Any], address: Address) -> Iterator[bytes]:
    frame = [array.tobytes() for array in random_inputs(settings["inputs"]).values()]
    if "model" not in settings:
        yield post("/inference", b"".join(frame), "Content-Type: application/octet-stream\r\n")
        return
    inputs = [{key: tensor[key] for key in ("name", "shape", "datatype")} for tensor in settings["inputs"]]
    sizes = list(map(len, frame))
    if not settings.get("shared"):
        for tensor, size_bytes in zip(inputs, sizes, strict=True):
            tensor["parameters"] = {"binary_data_size": size_bytes}
        yield infer(settings["model"], inputs, b"".join(frame))
        return
    region = Path("/dev/shm") / f"race-{os.getpid()}"
    try:
        region.write_bytes(b"".join(frame))
        about = {"key": f"/{region.name}", "offset": 0, "byte_size": sum(sizes)}
        register(address, region.name, about)
        for tensor, size_bytes, offset in zip(inputs, sizes, accumulate([0, *sizes[:-1]]), strict=True):
            tensor["parameters"] = {
                "shared_memory_region": region.name,
                "shared_memory_offset": offset,
                "shared_memory_byte_size": size_bytes,
            }
        yield infer(settings["model"], inputs)
    finally:
        region.unlink(missing_ok=True)


def register(address: Address, name: str, about: dict[str, Any]) -> None:
    connection = Connection(address)
    connection.begin(0, post(f"/v2/systemsharedmemory/region/{name}/register", json.dumps(about).encode()))
    outcome, buffer = None, memoryview(bytearray(_READ_BYTES))
    while outcome is None:
        select.select([connection.socket], [], [])
        outcome = connection.read(buffer)
    connection.socket.close()
    if outcome != ANSWERED:
        raise RuntimeError(f"a region of shared memory was {outcome}")


def child(**settings: Any) -> Child:
    address = settings.get("unix") or settings["ports"][0]
    with frame_request(settings, address) as request:
        yield from obeying(Asking(HttpAsker(address, request, settings["in_flight"])), settings["in_flight"])
