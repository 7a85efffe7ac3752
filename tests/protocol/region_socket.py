"""A socket where regions are to be had, in a thread: as a daemon's, but with what it says told by the test."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

INSTANCE: Final = "first"
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Say = Callable[["RegionSocket", int], tuple[dict[str, Any], list[int]] | None]
"""The answer to a request for so many bytes, and the descriptors beside it; None: nothing is said."""


def grant(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    said = {"token": f"{regions.granted:032x}", "size_bytes": size_bytes, "instance": INSTANCE}
    return said, [memory(size_bytes)]


def memory(size_bytes: int, seals: int = SEALS) -> int:
    fd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class RegionSocket:
    """`asked`: the sizes that were asked for; `granted`: how many answers had a descriptor."""

    def __init__(self, folder: Path, say: Say = grant) -> None:
        self.path = str(folder / "regions.sock")
        self.asked: list[int] = []
        self.granted = 0
        self._say = say
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(self.path)
        self._listening.listen()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        for connection in self._connections:
            connection.close()

    @property
    def ended(self) -> int:
        """How many of the connections their other end has closed."""
        return sum(_has_ended(connection) for connection in self._connections)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            size_bytes = json.loads(connection.recv(4096))["size_bytes"]
            self.asked.append(size_bytes)
            said = self._say(self, size_bytes)
            if said is not None:
                answer, fds = said
                self.granted += bool(fds)
                socket.send_fds(connection, [json.dumps(answer).encode()], fds)
                for fd in fds:
                    os.close(fd)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
