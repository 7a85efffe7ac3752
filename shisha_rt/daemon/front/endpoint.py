"""The public address: which may be bound, and whose it is."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path

from shisha_rt.daemon.front.lock_file import lock_file
from shisha_rt.errors import BadInput


def check_endpoint(endpoint: str) -> None:
    """Only this machine may connect: loopback or ipc. Anything else would need CURVE, which is not built yet."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address and not address.startswith("@"):
        return
    host, _, port = address.rpartition(":")
    if transport != "tcp" or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"endpoint {endpoint!r}: expected tcp://127.0.0.1:PORT or ipc://PATH")
    local = host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(host.strip("[]")).is_loopback
    if not local:
        raise BadInput(f"endpoint {endpoint!r}: not a loopback address; other addresses need CURVE, "
                       "which is not built yet; expected tcp://127.0.0.1:PORT or ipc://PATH")  # fmt: skip


def any_port(endpoint: str) -> str:
    """ZeroMQ writes `*` for any free port."""
    endpoint = endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:")
    return endpoint[:-1] + "*" if endpoint.startswith("tcp://") and endpoint.endswith(":0") else endpoint


def lock_ipc(endpoint: str) -> int | None:
    """A second bind on an ipc path would silently steal it: whoever serves there holds a lock beside it."""
    if not endpoint.startswith("ipc://"):
        return None
    path = Path(endpoint.removeprefix("ipc://"))
    try:
        return lock_file(path.with_name(path.name + ".lock"))
    except BlockingIOError:
        raise BadInput(f"endpoint {endpoint}: another daemon serves there; expected a path of its own") from None
    except OSError as error:
        raise BadInput(f"endpoint {endpoint}: {error.strerror}; expected a path in a folder to write to") from None
