"""Addresses of HTTP: `PORT`, `HOST:PORT` or `unix:PATH`; and of the metrics page and gRPC, without `unix:PATH`.

The daemon binds them, so that an address outlives the HTTP process.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shisha_rt.daemon.front.http_messages import GrpcListener, Listener
from shisha_rt.daemon.front.ipc_socket import IpcSocket, check_ipc_path
from shisha_rt.endpoint import host_and_port, is_port
from shisha_rt.errors import BadInput, Error

_BACKLOG: Final = 512
_LOOPBACK: Final = "127.0.0.1"
_EXPECTED: Final = {
    "http": "expected HOST:PORT, as 127.0.0.1:8000, a port of loopback by itself, or unix:PATH",
    "metrics": "expected HOST:PORT, as 127.0.0.1:9464, or a port of loopback by itself",
    "grpc": "expected HOST:PORT, as 127.0.0.1:8001, or a port of loopback by itself",
}
OWN_ONLY: Final = 0o600
EVERYBODY: Final = 0o666


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Either `path`, or `host` (a name or an address, without brackets) and `port` (0: any free one).

    `option`: the option of `serve` that set it, with which messages about the address begin.
    """

    host: str = ""
    port: int = 0
    path: Path | None = None
    option: str = "http"

    @property
    def beyond(self) -> bool:
        return self.path is None and not is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def http_address(text: str, option: str = "http") -> HttpAddress:
    """Parse an address of `option`. A port by itself is on loopback. Raises BadInput.

    Only HTTP may have `unix:PATH`: Prometheus connects over TCP, and gRPC does not report who calls over such a path.
    """
    if option == "http" and text.startswith("unix:") and text != "unix:":
        return HttpAddress(path=check_ipc_path(text))
    host_port = (_LOOPBACK, int(text)) if is_port(text) else host_and_port(text)
    if host_port is None:
        raise BadInput(f"{option} {text!r}: {_EXPECTED[option]}", Error.BAD_ENDPOINT)
    return HttpAddress(*host_port, option=option)


class HttpListener:
    """A listening socket. Raises BadInput if the address cannot be bound. `mode`: who may connect to a UNIX socket.

    `passed`: the socket as the HTTP process has it. Over an address that other hosts can reach TLS is spoken (see
    `addresses`).
    """

    def __init__(self, address: HttpAddress, mode: int = OWN_ONLY) -> None:
        self._ipc: IpcSocket | None = None
        if address.path is not None:
            self._ipc = IpcSocket(str(address))
            self.socket = socket.socket(fileno=self._ipc.hand_over())
            address.path.chmod(mode)
            self.url = f"unix:{address.path}"
        else:
            self.socket = _bound(address)
            port = self.socket.getsockname()[1]
            self.url = f"{'https' if address.beyond else 'http'}://{HttpAddress(address.host, port)}"
        unix, metrics = address.path is not None, address.option == "metrics"
        self.passed = Listener(self.socket.fileno(), unix, address.beyond, metrics)

    def close(self) -> None:
        self.socket.close()
        if self._ipc is not None:
            self._ipc.close()


class HeldPort:
    """A port reserved for gRPC, whose library accepts no socket of ours, but can bind the same port (SO_REUSEPORT).

    Our socket does not listen, so no client connects to it. Raises BadInput if the address cannot be bound. `passed`:
    the address as the HTTP process has it.
    """

    def __init__(self, address: HttpAddress) -> None:
        if address.port:
            _bound(address).close()  # fails if the port is in use: SO_REUSEPORT alone would share it
        self._socket = _bound(address, socket.SO_REUSEPORT)
        where = HttpAddress(*self._socket.getsockname()[:2])
        self.passed = GrpcListener(str(where), address.beyond)

    def close(self) -> None:
        self._socket.close()


def _bound(address: HttpAddress, option: int = socket.SO_REUSEADDR) -> socket.socket:
    """Bind a socket: it listens or, with SO_REUSEPORT, reserves the port for sockets of the same user."""
    end: socket.socket | None = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        end = socket.socket(family, kind, protocol)
        end.setsockopt(socket.SOL_SOCKET, option, 1)
        end.bind(where)
        if option == socket.SO_REUSEADDR:
            end.listen(_BACKLOG)
        end.setblocking(False)
    except UnicodeError:  # raised before the name is looked up
        problem = f"{address.option} {address}: no name of a host"
        raise BadInput(f"{problem}; {_EXPECTED[address.option]}", Error.BAD_ENDPOINT) from None
    except OSError as error:
        if end is not None:
            end.close()
        said = "another program serves there" if error.errno == errno.EADDRINUSE else error.strerror
        problem = f"{address.option} {address}: {said}"
        raise BadInput(f"{problem}; expected an address of this host and a free port", Error.ADDRESS_TAKEN) from None
    return end
