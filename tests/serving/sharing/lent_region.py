"""A client's region, by the protocol alone: what a program in another language would do."""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import PATIENCE_S

_LONGEST: Final = 4096


class Refused(Exception):
    """`error`: what the daemon said."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(error)
        self.error = error


class ClientRegion:
    """`memory`: mapped here. Leaving the context ends the region. Raises `Refused`, EOFError if it is cut off."""

    def __init__(self, path: str, size_bytes: int) -> None:
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.settimeout(PATIENCE_S)
        self._end.connect(path)
        said, fds = talk(self._end, json.dumps({"op": "region", "size_bytes": size_bytes}).encode())
        if said is None or "error" in said:
            self._end.close()
            raise EOFError if said is None else Refused(said["error"])
        (self.fd,) = fds
        self.token: str = said["token"]
        self.instance: str = said["instance"]
        assert said["size_bytes"] == size_bytes
        self.memory = mmap.mmap(self.fd, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end.close()
        self.memory.close()
        socket.close(self.fd)

    def piece(self, offset_bytes: int, size_bytes: int) -> dict[str, Any]:
        """The parameters of a tensor that lies there."""
        return {
            "shared_memory_region": self.token,
            "shared_memory_offset": offset_bytes,
            "shared_memory_byte_size": size_bytes,
        }


def talk(end: socket.socket, message: bytes) -> tuple[dict[str, Any] | None, list[int]]:
    """What is answered to it, with the descriptors beside; None: the connection was closed."""
    try:
        end.send(message)
        data, fds, _, _ = socket.recv_fds(end, _LONGEST, 4)
    except (ConnectionResetError, BrokenPipeError):
        return None, []
    return (json.loads(data) if data else None), array.array("i", fds).tolist()


def regions_of(*pids: int) -> list[str]:
    """The descriptors of regions that these processes have, which must be there."""
    links = []
    for fd in (fd for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            links.append(str(fd.readlink()))
    return [link for link in links if "shisha-rt-region" in link]
