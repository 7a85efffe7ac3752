"""Checks of the public endpoint's address."""

from __future__ import annotations

from shisha_rt.daemon.front.http_address import is_loopback, is_port
from shisha_rt.daemon.front.ipc_socket import check_ipc_path
from shisha_rt.errors import BadInput, Error

_EXPECTED = "expected tcp://HOST:PORT or ipc://PATH"


def check_endpoint(endpoint: str, *, access: bool = False, secret_key: bool = False) -> None:
    """Raises BadInput for an invalid address, or for one that other hosts can reach without keys.

    `access`, `secret_key`: whether these options are given.
    """
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address and not address.startswith("@"):
        check_ipc_path(endpoint)
        return
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if transport != "tcp" or not host or not is_port(port):
        raise BadInput(f"endpoint {endpoint!r}: {_EXPECTED}", Error.BAD_ENDPOINT)
    if access and not secret_key:
        raise BadInput(f"endpoint {endpoint!r}: with an allow-list it speaks CURVE; expected --secret-key FILE, too, "
                       "made by: shisha-rt keys new daemon", Error.OPTIONS_CLASH)  # fmt: skip
    if secret_key and not access:
        raise BadInput(
            f"endpoint {endpoint!r}: --secret-key says nothing of who may come; expected --access FILE, too",
            Error.OPTIONS_CLASH,
        )
    if not access and not is_loopback(host):
        raise BadInput(
            f"endpoint {endpoint!r}: other hosts can reach it; expected --access FILE (who may come) and "
            "--secret-key FILE (made by: shisha-rt keys new daemon) too, or loopback",
            Error.EXPOSED_ADDRESS,
        )


def any_port(endpoint: str) -> str:
    """Convert an endpoint to ZeroMQ's form: `*` for port 0 (any free port), an address for localhost."""
    endpoint = endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:")
    return endpoint[:-1] + "*" if endpoint.startswith("tcp://") and endpoint.endswith(":0") else endpoint
