"""The public address: which may be bound."""

from __future__ import annotations

import contextlib
import ipaddress

from shisha_rt.daemon.front.ipc_socket import check_ipc_path
from shisha_rt.errors import BadInput


def check_endpoint(endpoint: str) -> None:
    """Only this machine may connect: loopback or ipc. Anything else would need CURVE, which is not built yet."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address and not address.startswith("@"):
        check_ipc_path(endpoint)
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
