"""Access control before every route: who calls, and from where.

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
from collections.abc import Mapping
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.asgi import PEER_UID
from shisha_rt.http.faults import HttpFault, fault_answer
from shisha_rt.http.page.routes import is_open
from shisha_rt.http.page.sessions import session_of
from shisha_rt.protocol.access import AccessList, Permission

_LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_OPERATOR: Final = Caller("", Permission.OPERATOR)
_BEARER: Final = b"bearer "
LEFT: Final = HttpFault(503, "the daemon has ended with the request under way; it may have been run")


class Guard:
    """Access control in front of `app` for one listener; puts the caller and the headers by name into the scope.

    The caller is None if it is unknown and asks for what is open to anybody: the page without the daemon's data.
    """

    def __init__(self, app: ASGIApp, app_state: AppState, listener: Listener) -> None:
        self._app = app
        self._app_state = app_state
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._app_state.count(message["status"])
            await send(message)

        headers = dict(scope["headers"])
        uid = scope["extensions"][PEER_UID]["uid"] if self._listener.unix else None
        try:
            scope["caller"] = self.admit(scope["scheme"], scope["method"], scope["path"], headers, uid)
        except HttpFault as fault:
            answer = fault_answer(fault)
            if fault.status == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            await answer(scope, receive, counted)
            return
        scope["headers_by_name"] = headers
        try:
            await self._app(scope, receive, counted)
        except asyncio.CancelledError:  # by `serve_connections`, if the daemon ends
            if begun or not self._app_state.ending.is_set():
                raise
            await fault_answer(LEFT)(scope, receive, counted)
        except Exception:  # answered by `HttpConnections`, unless the web framework has
            if not begun:
                self._app_state.count(500)
            raise

    def admit(
        self, scheme: str, method: str, path: str, headers: Mapping[bytes, bytes], uid: int | None
    ) -> Caller | None:
        """The caller. Raises HttpFault if access is denied. `headers`: by lower-case name; `uid`: at a UNIX socket."""
        self._check_origin(scheme, method, headers)
        return self._caller(method, path, headers, uid)

    def _check_origin(self, scheme: str, method: str, headers: Mapping[bytes, bytes]) -> None:
        if self._listener.unix:
            return
        host = headers.get(b"host", b"")
        name = host.rpartition(b":")[0] if host[-1:].isdigit() and b":" in host else host
        if not host or (not self._listener.beyond and name.lower() not in _LOOPBACK_NAMES):
            raise self._refused("host", 421, "Host is not this machine's; expected localhost")
        origin = headers.get(b"origin")
        own = scheme.encode() + b"://" + host
        foreign = origin is not None and origin.lower() != own.lower()
        navigates = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        if foreign or (headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not navigates):
            raise self._refused("origin", 403, "the request comes from another site's page; expected none, or our own")

    def _caller(self, method: str, path: str, headers: Mapping[bytes, bytes], uid: int | None) -> Caller | None:
        users = self._app_state.users
        if self._listener.unix:
            return self._at_socket(uid)
        if users is None:
            return _OPERATOR
        token = token_in(headers.get(b"authorization", b""))
        if token is None:
            caller = self._app_state.sessions.caller(session_of(headers), users)
            if caller is not None or is_open(method, path):
                return caller
            raise self._refused("no_token", 401, "no token; expected the header Authorization: Bearer TOKEN")
        caller = caller_of(token, users)
        if caller is None:
            raise self._refused("unknown_token", 401, "the token is nobody's")
        return caller

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


def token_in(authorization: bytes) -> str | None:
    """The token in the value of an Authorization header; None if it has none."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    return authorization[len(_BEARER) :].strip().decode("latin-1")


def caller_of(token: str, users: AccessList, way: str = "http") -> Caller | None:
    """The caller whose token it is; None if it is nobody's."""
    user = users.of_token(token)
    return None if user is None else Caller(user.name, user.permission, _uid(user.unix_user), way)


def _uid(name: str | None) -> int | None:
    """User id of a user of this host; None for an unknown name."""
    if name is None:
        return None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
