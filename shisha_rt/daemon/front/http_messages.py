"""Every message between the daemon and its HTTP process, which speaks gRPC, too. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.process.codec import Codec
from shisha_rt.protocol.access import User


class Listener(msgspec.Struct, frozen=True, array_like=True):
    """A socket that listens already, as `fd`. `beyond`: other hosts can reach it, so it speaks TLS.

    `metrics`: it has the metrics page and nothing else.
    """

    fd: int
    unix: bool
    beyond: bool
    metrics: bool = False


class GrpcListener(msgspec.Struct, frozen=True, array_like=True):
    """Where gRPC is to listen. The daemon holds the port. `target`: HOST:PORT, with the host's address in numbers."""

    target: str
    beyond: bool


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """How one role of the HTTP process makes itself known to a daemon that asks for keys; Z85."""

    public: str
    secret: str
    server: str


class ServeHttp(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Begin. `endpoint`: the daemon's own. `users`: who may come; None: everybody who can connect.

    `certificate` and `key`: PEM files, for TLS. `shared_memory`: callers may name files in /dev/shm. `client_keys` and
    `operator_keys`: of its two roles; None where the endpoint asks for none. `metrics`: the UNIX socket that the
    metrics page is read from; "" where no listener has that page. `models`: of an
    endpoint that serves several; None: it is the daemon of one. `max_message_bytes`: the most of a request over gRPC.
    """

    endpoint: str
    listeners: tuple[Listener, ...]
    certificate: str | None = None
    key: str | None = None
    shared_memory: bool = False
    users: tuple[User, ...] | None = None
    client_keys: Keys | None = None
    operator_keys: Keys | None = None
    metrics: str = ""
    models: tuple[str, ...] | None = None
    grpc: tuple[GrpcListener, ...] = ()
    max_message_bytes: int = 0


class ModelsChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The models of an address that serves several are these now."""

    models: tuple[str, ...]


class UsersChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The allow-list has been read again."""

    users: tuple[User, ...]


class EndHttp(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The daemon has given its last answers: pass them on, and end."""


class HttpCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Since it was last said: requests over HTTP by the status of their answer, callers refused by the reason, requests
    over gRPC by their code.
    """

    by_status: dict[int, int]
    refused: dict[str, int]
    by_code: dict[str, int]


class GrpcListens(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Clients over gRPC can connect from now on."""


ToHttp: TypeAlias = ServeHttp | UsersChanged | ModelsChanged | EndHttp
FromHttp: TypeAlias = HttpCounted | GrpcListens

TO_HTTP: Final[Codec[ToHttp]] = Codec(ToHttp)
FROM_HTTP: Final[Codec[FromHttp]] = Codec(FromHttp)
