"""Every message between the daemon and its HTTP process, which speaks gRPC, too. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.process.codec import Codec
from shisha_rt.protocol.access import User


class Listener(msgspec.Struct, frozen=True, array_like=True):
    """A listening socket, `fd`. `beyond`: other hosts can reach it, so it speaks TLS. `metrics`: for metrics alone."""

    fd: int
    unix: bool
    beyond: bool
    metrics: bool = False


class GrpcListener(msgspec.Struct, frozen=True, array_like=True):
    """Where gRPC is to listen. The daemon holds the port. `target`: HOST:PORT, with the host's numeric address."""

    target: str
    beyond: bool


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """Keys by which one role of the HTTP process connects to a daemon that requires keys; Z85."""

    public: str
    secret: str
    server: str


class ServeHttp(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Begin. `endpoint`: the daemon's own. `users`: who may use it; None: everybody who can connect.

    `certificate` and `key`: PEM files, for TLS. `shared_memory`: callers may name files in /dev/shm. `client_keys` and
    `operator_keys`: keys of the process's two roles; None if the endpoint requires none. `metrics`: the UNIX socket
    that the metrics page is read from; "" if no listener has that page. `models`: the models, if the endpoint serves
    several; None: it is a daemon's, with one. `max_message_bytes`: of a request over gRPC. `full`: a `SharedFlag`,
    set while the daemon refuses every frame; None: there is none.
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
    full: int | None = None


class ModelsChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The models of an endpoint that serves several have changed to these, of which some are `loaded`."""

    models: tuple[str, ...]
    loaded: tuple[str, ...]


class UsersChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The allow-list has been read again."""

    users: tuple[User, ...]


class EndHttp(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The daemon has given its last answers: pass them on, and end."""


class HttpCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Counts since the last such message: HTTP requests by status, refused callers by reason, gRPC requests by code.

    `turned_away`: frames that the HTTP process refused by itself, as the daemon was full.
    """

    by_status: dict[int, int]
    refused: dict[str, int]
    by_code: dict[str, int]
    turned_away: int = 0


class GrpcListens(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Clients over gRPC can connect from now on."""


ToHttp: TypeAlias = ServeHttp | UsersChanged | ModelsChanged | EndHttp
FromHttp: TypeAlias = HttpCounted | GrpcListens

TO_HTTP: Final[Codec[ToHttp]] = Codec(ToHttp)
FROM_HTTP: Final[Codec[FromHttp]] = Codec(FromHttp)
