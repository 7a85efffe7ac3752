"""The default address at which a daemon listens, and at which clients look for it; how addresses are written. Shell."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from pathlib import Path
from typing import Final

ENDPOINT: Final = "tcp://127.0.0.1:5555"
_VARIABLE: Final = "SHISHA_ENDPOINT"
MAX_PATH_BYTES: Final = 107  # `sun_path` of unix(7), less the zero at its end
TO_CONNECT_TO: Final = (
    f"expected tcp://HOST:PORT (1 to 65535), as {ENDPOINT} or tcp://[::1]:5555, "
    f"or ipc://PATH (at most {MAX_PATH_BYTES} bytes of path)"
)
_HOST: Final = re.compile(r"[^\s\x00-\x1f\x7f:/;\[\]]+")


def default_endpoint() -> str:
    """The environment's SHISHA_ENDPOINT, or `ENDPOINT` if that is not set or empty."""
    return os.environ.get(_VARIABLE) or ENDPOINT


def submit_command(endpoint: str, model: str | None = None) -> str:
    """The command that sends a thousand frames to the daemon at `endpoint`; `model`: to this one of several."""
    at = "" if endpoint == default_endpoint() else f" --endpoint {endpoint}"
    return f"shisha-rt submit{at}{f' --model {model}' if model else ''} --frames 1000"


def is_port(text: str) -> bool:
    """Whether the text is a port number, or 0 for any free port."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


def host_and_port(text: str) -> tuple[str, int] | None:
    """The parts of `HOST:PORT`, without the brackets that an IPv6 address has to have; None for any other text."""
    host, _, port = text.rpartition(":")
    inside = host.removeprefix("[").removesuffix("]")
    is_host = _is_ipv6(inside) if host == f"[{inside}]" else _HOST.fullmatch(host) is not None
    return (inside, int(port)) if is_host and is_port(port) else None


def _is_ipv6(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.IPv6Address(host))
    return False


def fits_socket(path: Path) -> bool:
    """Whether `path` is short enough for a UNIX socket."""
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def can_be_connected_to(endpoint: str) -> bool:
    """Whether a daemon may listen at `endpoint`: `TO_CONNECT_TO` says what such a text is."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc":
        return address != "" and address[0] != "@" and "\0" not in address and fits_socket(Path(address))
    host_port = host_and_port(address)
    return transport == "tcp" and host_port is not None and host_port[0] != "*" and host_port[1] > 0
