"""What every request at a listener passes: access control by who calls, and from where, then the routes.

- `Host` must name this machine's loopback, if the listener is reachable only there. Otherwise any web site could have
  its name point here (DNS rebinding) and read anything through its visitor's browser.
- `Origin`, which browsers send, must be our own: no other site's page may send frames or steer the daemon.
- With an allow-list, callers are identified by a token (`Authorization: Bearer`) or a session of the page. At a UNIX
  socket the kernel identifies them, with or without an allow-list.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Sequence
from typing import Final

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import CLIENT_CLOSED, HttpFault, fault_of
from shisha_rt.http.inference.body import HungUp
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.routes import inference_routes
from shisha_rt.http.page.routes import is_open, page_routes
from shisha_rt.http.page.sessions import session_of
from shisha_rt.http.routing import HttpRoute, answer_by
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.exceptions import ShishaError, error_for

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_BEARER: Final = b"bearer "
ANYBODY: Final = Caller("", Permission.OPERATOR)
"""Everybody who can connect, if there is no allow-list."""
_LEFT: Final = HttpFault(503, "the daemon has ended with the request under way; it may have been run")


class HttpFront:
    """Called with each request at `listener`: checks its caller, has `routes` answer, and makes an error an answer."""

    def __init__(self, app_state: AppState, listener: Listener, routes: Sequence[HttpRoute]) -> None:
        self._app_state = app_state
        self._guard = Guard(app_state, listener)
        self._routes = routes

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await answer_by(self._routes, exchange, self._guard.admit(exchange))
        except HungUp:
            if not exchange.begun:
                self._app_state.count(CLIENT_CLOSED)
        except (HttpFault, ShishaError) as error:
            await exchange.refuse(error if isinstance(error, HttpFault) else fault_of(error))
        except asyncio.CancelledError:  # by `serve_connections`, if the daemon ends
            if exchange.begun or not self._app_state.ending.is_set():
                raise
            await exchange.refuse(_LEFT)
        except Exception:  # answered by `HttpConnections`
            if exchange.gone and not exchange.begun:
                self._app_state.count(CLIENT_CLOSED)
            raise


def http_routes(app_state: AppState, inferences: Inferences) -> Sequence[HttpRoute]:
    return [*inference_routes(app_state, inferences), *page_routes(app_state)]


class Guard:
    def __init__(self, app_state: AppState, listener: Listener) -> None:
        self._app_state = app_state
        self._listener = listener

    def admit(self, exchange: Exchange) -> Caller | None:
        """The caller; None for a stranger who asks for what is open to all. Raises HttpFault, `PermissionDenied`."""
        if self._listener.unix:
            return self._at_socket(exchange.caller_uid)
        self._check_origin(exchange)
        users, headers = self._app_state.users, exchange.headers_by_name
        if users is None:
            return ANYBODY
        caller = token_caller(self._app_state, headers.get(b"authorization", b""), "http")
        caller = caller or self._app_state.sessions.caller(session_of(headers), users)
        if caller is None and not is_open(exchange.method, exchange.path):
            raise no_token(self._app_state, "http", "no token; expected the header Authorization: Bearer TOKEN")
        return caller

    def _check_origin(self, exchange: Exchange) -> None:
        headers = exchange.headers_by_name
        host = headers.get(b"host", b"")
        name = host.rpartition(b":")[0] if host[-1:].isdigit() and b":" in host else host
        if not host or (not self._listener.beyond and name.lower() not in _LOOPBACK_NAMES):
            raise self._refused("host", 421, "Host is not this machine's; expected localhost")
        origin = headers.get(b"origin")
        foreign = origin is not None and origin.lower() != exchange.origin.lower()
        navigates = exchange.method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        if foreign or (headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not navigates):
            raise self._refused("origin", 403, "the request comes from another site's page; expected none, or our own")

    def _at_socket(self, uid: int | None) -> Caller:
        """The daemon's own user and root may do everything; other users may do what the allow-list says."""
        if uid in (os.getuid(), 0):
            return Caller("", Permission.OPERATOR, uid)
        users = self._app_state.users
        for user in () if users is None else users.users:
            if user.unix_user is not None and _uid(user.unix_user) == uid:
                return Caller(user.name, user.permission, uid)
        raise self._refused("unknown_user", 403, "another user's program; expected one whom the allow-list names")

    def _refused(self, reason: str, status: int, message: str) -> HttpFault:
        self._app_state.refuse(f"http_{reason}")
        return HttpFault(status, message)


def token_caller(app_state: AppState, authorization: bytes, way: str) -> Caller | None:
    """The caller whose token an Authorization header has; None without a token. Raises `PermissionDenied`."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    assert app_state.users is not None  # without an allow-list nobody is asked for a token
    user = app_state.users.of_token(authorization[len(_BEARER) :].strip().decode("latin-1"))
    if user is None:
        app_state.refuse(f"{way}_unknown_token")
        raise error_for(Error.UNKNOWN_TOKEN, "the token is nobody's")
    return Caller(user.name, user.permission, _uid(user.unix_user), way)


def no_token(app_state: AppState, way: str, message: str) -> ShishaError:
    """Count a caller without a token, and return its error."""
    app_state.refuse(f"{way}_no_token")
    return error_for(Error.UNKNOWN_TOKEN, message)


def _uid(name: str | None) -> int | None:
    """User id of a user of this host; None for an unknown name."""
    if name is None:
        return None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
