"""Access control before every route: who calls, and from where.

- `Host` must name the loopback interface if the listener is reachable only there. Otherwise any web site could have its
  name resolve to this host (DNS rebinding) and read everything through its visitor's browser.
- `Origin`, which browsers send, must be our own: no other site's page may send frames or control the daemon.
- With an allow-list, callers are identified by a token (`Authorization: Bearer`) or a session of the page. At a UNIX
  socket the kernel identifies them, with or without an allow-list.
"""

from __future__ import annotations

import os
import pwd
from typing import Final

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.page.routes import is_open
from shisha_rt.http.page.sessions import session_of
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.exceptions import ShishaError, error_for

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_BEARER: Final = b"bearer "
ANYBODY: Final = Caller("", Permission.OPERATOR)
"""Everybody who can connect, if there is no allow-list."""


class Guard:
    """Access control at one listener."""

    def __init__(self, app_state: AppState, listener: Listener) -> None:
        self._app_state = app_state
        self._listener = listener

    def admit(self, exchange: Exchange) -> Caller | None:
        """The caller; None: unknown, but asks for the page without data. Raises HttpFault and `PermissionDenied`."""
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
        is_foreign = origin is not None and origin.lower() != exchange.origin.lower()
        follows_link = exchange.method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        if is_foreign or (headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not follows_link):
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
    """The caller of an Authorization header's token, or None. `way`: http or grpc. Raises `PermissionDenied`."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    assert app_state.users is not None  # without an allow-list nobody is asked for a token
    user = app_state.users.of_token(authorization[len(_BEARER) :].strip().decode("latin-1"))
    if user is None:
        app_state.refuse(f"{way}_unknown_token")
        raise error_for(Error.UNKNOWN_TOKEN, "the token is nobody's")
    return Caller(user.name, user.permission, _uid(user.unix_user), way)


def no_token(app_state: AppState, way: str, message: str) -> ShishaError:
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
