"""A daemon's addresses: for its own clients, for Prometheus, of HTTP and gRPC; and files that say who may connect."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shisha_rt.daemon.front.http_address import HttpAddress, http_address, is_loopback
from shisha_rt.daemon.front.ipc_socket import check_ipc_path
from shisha_rt.daemon.settings import Settings
from shisha_rt.endpoint import host_and_port
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import is_installed, pip_install
from shisha_rt.protocol.keys import is_kept_secret


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses in `settings`, as they were read and checked."""

    settings: Settings
    metrics: HttpAddress
    http: tuple[HttpAddress, ...]
    grpc: tuple[HttpAddress, ...]


def _is_url(text: str) -> bool:
    """Whether the text is a URL to which a path can be appended: without a query, spaces and control characters."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", 80 if parts.port is None else parts.port
    except ValueError:  # of a port that is none, or half an IPv6 address
        return False
    is_plain = text.isprintable() and not {*" ?#"}.intersection(text)
    address = HttpAddress(host, port)
    return parts.scheme in ("http", "https") and is_plain and port != 0 and host_and_port(str(address)) is not None


def addresses_of(settings: Settings) -> Addresses:
    """Check addresses. Raises BadInput for an invalid one, or one open to other hosts without certificate or keys."""
    check_endpoint(settings.endpoint, settings.access, settings.secret_key)
    http = tuple(map(http_address, settings.http))
    grpc = tuple(http_address(text, "grpc") for text in settings.grpc)
    addresses = Addresses(settings, http_address(settings.metrics, "metrics"), http, grpc)
    if grpc:
        _check_extra(f"grpc {grpc[0]}", "grpcio", "grpc", "grpc")
    if settings.otlp is not None:
        if not _is_url(settings.otlp):
            expected = "expected that of an OTLP receiver over HTTP, as http://127.0.0.1:4318"
            raise BadInput(f"otlp {settings.otlp!r}: {expected}", Error.BAD_ENDPOINT)
        _check_extra(f"otlp {settings.otlp}", "OpenTelemetry", "opentelemetry.exporter.otlp.proto.http", "otel")
    _check_http(addresses)
    return addresses


def check_endpoint(endpoint: str, access: str | None = None, secret_key: str | None = None) -> None:
    """Raises BadInput for a bad public endpoint, or if others reach it without keys (`access`, `secret_key`)."""
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and address and not address.startswith("@"):
        check_ipc_path(endpoint)
        return
    host_port = host_and_port(address)
    if transport != "tcp" or host_port is None:
        raise BadInput(f"endpoint {endpoint!r}: expected tcp://HOST:PORT or ipc://PATH", Error.BAD_ENDPOINT)
    if access is not None and secret_key is None:
        raise BadInput(f"endpoint {endpoint!r}: with an allow-list it speaks CURVE; expected --secret-key FILE, too, "
                       "made by: shisha-rt keys new daemon", Error.OPTIONS_CLASH)  # fmt: skip
    if secret_key is not None and access is None:
        raise BadInput(
            f"endpoint {endpoint!r}: --secret-key says nothing of who may come; expected --access FILE, too",
            Error.OPTIONS_CLASH,
        )
    if access is None and not is_loopback(host_port[0]):
        raise BadInput(
            f"endpoint {endpoint!r}: other hosts can reach it; expected --access FILE (who may come) and "
            "--secret-key FILE (made by: shisha-rt keys new daemon) too, or loopback",
            Error.EXPOSED_ADDRESS,
        )


def _check_extra(where: str, package: str, module: str, extra: str) -> None:
    if not is_installed(module):
        expected = f"expected the extra {extra!r}: {pip_install(extra)}"
        raise BadInput(f"{where}: {package} is missing, {expected}", Error.EXTRA_MISSING)


def _check_http(addresses: Addresses) -> None:
    certificate, key = addresses.settings.http_certificate, addresses.settings.http_key
    if (certificate is None) != (key is None):
        raise BadInput(
            "http_certificate and http_key: one without the other; expected both, or neither", Error.OPTIONS_CLASH
        )
    if certificate is not None and key is not None:
        _check_certificate(Path(certificate), Path(key))
    for address in (*addresses.http, *addresses.grpc, addresses.metrics):
        if address.beyond and (certificate is None or addresses.settings.access is None):
            raise BadInput(
                f"{address.option} {address}: other hosts can reach it; expected --http-certificate and --http-key "
                "(TLS) and --access (who may come) with it, or an address of loopback",
                Error.EXPOSED_ADDRESS,
            )


def _check_certificate(certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        if not path.is_file():
            raise BadInput(f"{path}: there is no such file; expected PEM", Error.UNREADABLE_FILE)
    status = key.stat()
    if not is_kept_secret(status.st_mode, status.st_uid, os.geteuid()):
        raise BadInput(
            f"{key}: others may read it; expected a file of the daemon's own: chmod 600 {key}", Error.EXPOSED_FILE
        )
    try:
        # An encrypted key is an error: there is nobody to type its password.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise BadInput(
            f"{certificate}, {key}: {error}; expected a certificate and its key, in PEM", Error.UNREADABLE_FILE
        ) from None
