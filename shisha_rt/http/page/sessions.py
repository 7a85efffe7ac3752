"""Sessions: which caller a cookie belongs to, so that the page may steer the daemon on the caller's behalf."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from shisha_rt.protocol.access import AccessList

if TYPE_CHECKING:
    from shisha_rt.http.app_state import Caller

MOST: Final = 256
"""The most sessions at once; a new one replaces the oldest."""
LASTS_S: Final = 12 * 3600.0
_ID_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Session:
    caller: Caller
    token_sha256: str | None
    ends_s: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """Sessions by the SHA-256 of their ids, so that the time of a comparison reveals nothing about an id.

    Ids are 256 random bits, and are stored only in the browser.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, caller: Caller, token_sha256: str | None = None) -> str:
        """Begin a session; return its id. `token_sha256`: of the user's token; the session ends if that changes."""
        now_s = self._clock()
        for key in [key for key, session in self._sessions.items() if session.ends_s <= now_s]:
            self._drop(key)
        while len(self._sessions) >= MOST:
            self._drop(next(iter(self._sessions)))
        session_id = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[_digest(session_id)] = _Session(caller, token_sha256, now_s + LASTS_S)
        return session_id

    def caller(self, session_id: str | None, users: AccessList | None) -> Caller | None:
        """A session's caller; None if it is unknown or has ended, or its user and token are no longer allowed."""
        session = None if session_id is None else self._sessions.get(_digest(session_id))
        if session is None or session.ends_s <= self._clock():
            return None
        if users is None:
            return session.caller if session.token_sha256 is None else None
        user = next((user for user in users.users if user.name == session.caller.name), None)
        if user is None or session.token_sha256 is None or user.token_sha256 != session.token_sha256:
            return None
        return replace(session.caller, permission=user.permission)

    def end(self, session_id: str | None) -> None:
        if session_id is not None:
            self._drop(_digest(session_id))

    def rest_of(self, session_id: str) -> tuple[asyncio.Event, float]:
        """What is set when a session that is known is ended, and the seconds until it ends by itself."""
        session = self._sessions[_digest(session_id)]
        return session.ended, session.ends_s - self._clock()

    def _drop(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.ended.set()


def cookie_name(host: str) -> str:
    """The cookie of the daemon at `host`. It names the port, as browsers send cookies to all ports of a host."""
    port = host.rpartition(":")[2]
    return f"shisha_rt_{port}" if port.isdigit() else "shisha_rt"


def session_of(headers: Mapping[bytes, bytes]) -> str | None:
    """The session id in a request's cookies; None if there is none."""
    wanted = cookie_name(headers.get(b"host", b"").decode("latin-1"))
    for cookie in headers.get(b"cookie", b"").decode("latin-1").split(";"):  # other cookies may have any form
        name, _, value = cookie.strip().partition("=")
        if name == wanted:
            return value
    return None


def set_cookie(origin: str, session_id: str) -> str:
    """The value of a Set-Cookie header for a page that came from `origin`. An empty id deletes the cookie."""
    scheme, _, host = origin.partition("://")
    name, secure, ending = cookie_name(host), "; Secure" * (scheme == "https"), "" if session_id else "; Max-Age=0"
    return f"{name}={session_id}; Path=/; HttpOnly; SameSite=Strict{secure}{ending}"


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
