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

from shisha_rt.daemon.front.ipc_socket import IpcSocket, check_ipc_path
from shisha_rt.errors import BadInput, Error

_BACKLOG: Final = 512
_EXPECTED: Final = "expected HOST:PORT, as 127.0.0.1:8000, a port of loopback by itself, or unix:PATH"
_LOOPBACK: Final = "127.0.0.1"
_EXPECTED_TCP: Final = f"expected HOST:PORT, as {_LOOPBACK}:{{port}}, or a port of loopback by itself"
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
        """Whether other hosts can reach it."""
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


def is_port(text: str) -> bool:
    """Whether the text is a port number, or 0 for any free port."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


def http_address(text: str) -> HttpAddress:
    """Parse an address of HTTP. A port by itself is on loopback. Raises BadInput."""
    if text.startswith("unix:") and text != "unix:":
        return HttpAddress(path=check_ipc_path(text))
    return _tcp_address(text, "http", _EXPECTED)


def metrics_address(text: str) -> HttpAddress:
    """Parse an address of the metrics page: no `unix:PATH`, as Prometheus connects over TCP. Raises BadInput."""
    return _tcp_address(text, "metrics", _EXPECTED_TCP.format(port=9464))


def grpc_address(text: str) -> HttpAddress:
    """Parse an address of gRPC: no `unix:PATH`, as gRPC does not report who calls over one. Raises BadInput."""
    return _tcp_address(text, "grpc", _EXPECTED_TCP.format(port=8001))


def _tcp_address(text: str, option: str, expected: str) -> HttpAddress:
    if is_port(text):
        return HttpAddress(_LOOPBACK, int(text), option=option)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not is_port(port):
        raise BadInput(f"{option} {text!r}: {expected}", Error.BAD_ENDPOINT)
    return HttpAddress(host, int(port), option=option)


class HttpListener:
    """A listening socket. Raises BadInput if the address cannot be bound. `mode`: who may connect to a UNIX socket.

    Over an address that other hosts can reach TLS is spoken (see `addresses`).
    """

    def __init__(self, address: HttpAddress, mode: int = OWN_ONLY) -> None:
        self.address = address
        self._ipc: IpcSocket | None = None
        if address.path is not None:
            self._ipc = IpcSocket(str(address))
            self.socket = socket.socket(fileno=self._ipc.hand_over())
            address.path.chmod(mode)
            self.url = f"unix:{address.path}"
            return
        self.socket = _bound(address)
        port = self.socket.getsockname()[1]
        self.url = f"{'https' if address.beyond else 'http'}://{HttpAddress(address.host, port)}"

    def close(self) -> None:
        self.socket.close()
        if self._ipc is not None:
            self._ipc.close()


class HeldPort:
    """A port reserved for gRPC, whose library accepts no socket of ours, but can bind the same port (SO_REUSEPORT).

    Our socket does not listen, so no client connects to it. Raises BadInput if the address cannot be bound. `target`:
    the address in gRPC's notation.
    """

    def __init__(self, address: HttpAddress) -> None:
        if address.port:
            _bound(address).close()  # fails if the port is in use: SO_REUSEPORT alone would share it
        self._socket = _bound(address, socket.SO_REUSEPORT)
        where = HttpAddress(*self._socket.getsockname()[:2])
        self.target, self.beyond = str(where), address.beyond

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
        raise BadInput(f"{address.option} {address}: no name of a host; {_EXPECTED}", Error.BAD_ENDPOINT) from None
    except OSError as error:
        if end is not None:
            end.close()
        said = "another program serves there" if error.errno == errno.EADDRINUSE else error.strerror
        problem = f"{address.option} {address}: {said}"
        raise BadInput(f"{problem}; expected an address of this host and a free port", Error.ADDRESS_TAKEN) from None
    return end
