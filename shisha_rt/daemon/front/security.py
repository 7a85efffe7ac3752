"""Identity of clients by keys: CURVE on the public socket, and a ZAP handler for it.

ZeroMQ asks the handler (ZAP, RFC 27) only at handshakes. So the allow-list is checked for each message as well, by the
User-Id that libzmq keeps with a connection. Our handler makes it of the key and a unique number, so it identifies the
connection by which a message came. Everything of a client (its requests, answers, streams, lent memory) belongs to its
connection, and not to its routing id: libzmq (4.3.5) lets clients choose a routing id, even one of the generated form.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import zmq
from zmq.utils import z85

from shisha_rt.daemon.front.connections import Connection
from shisha_rt.errors import Error
from shisha_rt.protocol.access import AccessList, User
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.keys import KeyPair

log = logging.getLogger(__name__)

_LINE_EVERY_S: Final = 1.0
_DOMAIN: Final = "shisha-rt"
_ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
_HANDSHAKES_PER_TURN: Final = 8
_REQUEST_PARTS: Final = 7
_KEY_BYTES: Final = 32
_ROUTING_ID_BYTES: Final = 5
"""Length of the routing ids that libzmq generates: a zero byte, and a number."""
_NOW: Final = int(zmq.DONTWAIT)


class Refusals:
    """Counter and log of refused connections: at most a line every `_LINE_EVERY_S` for each reason.

    `count` is called with the reason of each.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._logged_s: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def add(self, reason: str, what: str) -> None:
        """Count a refusal; log it unless its reason was logged just now: the next line then has their number."""
        self._count(reason)
        now_s = time.monotonic()
        if now_s < self._logged_s.get(reason, 0.0) + _LINE_EVERY_S:
            self._unlogged[reason] += 1
            return
        self._logged_s[reason] = now_s
        more = self._unlogged.pop(reason, 0)
        log.warning("refused: %s%s", what, f" (and {more} more like it before)" if more else "")


class Security:
    """Who may connect: `users`, the allow-list, which may change, and `inner`, the daemon's own users, who stay.

    `refused`: called with the reason of each refusal.
    """

    def __init__(
        self, keys: KeyPair, users: AccessList, refused: Callable[[str], None], inner: Sequence[User] = ()
    ) -> None:
        self.users = users
        self.refusals = Refusals(refused)
        self._inner = AccessList(inner)
        self._keys = keys
        self._zap: zmq.Socket[bytes] | None = None

    def user_of(self, public_key: str) -> User | None:
        return self.users.of_key(public_key) or self._inner.of_key(public_key)

    def guard(self, context: zmq.Context[zmq.Socket[bytes]], public: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        """Secure `public`, which is not bound yet. Returns the ZAP socket: call `receive` when it can be read."""
        self._zap = context.socket(zmq.REP)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(_ZAP_ENDPOINT)
        public.setsockopt(zmq.CURVE_SERVER, 1)
        public.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
        public.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN.encode())
        public.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        return self._zap

    def receive(self, new_user_id: Callable[[str], str]) -> Iterator[object]:
        """Answer handshakes; yields no events. `new_user_id`: returns a new id for a connection with the given key."""
        assert self._zap is not None
        for _ in range(_HANDSHAKES_PER_TURN):
            try:
                asked = self._zap.recv_multipart(_NOW)
            except zmq.Again:
                return
            self._zap.send_multipart([*asked[:2], *self._verdict(asked, new_user_id)], _NOW)
        yield from ()

    def _verdict(self, asked: Sequence[bytes], new_user_id: Callable[[str], str]) -> Sequence[bytes]:
        """The last parts of a ZAP reply: status, its text, the User-Id, no metadata."""
        if len(asked) != _REQUEST_PARTS or asked[5] != b"CURVE" or len(asked[6]) != _KEY_BYTES:
            return b"500", b"expected CURVE", b"", b""
        key = z85.encode(asked[6]).decode()
        if self.user_of(key) is None:
            where = asked[3].decode(errors="replace")
            self.refusals.add("unknown_key", f"a client at {where}, as no user has its key {key}")
            return b"400", b"unknown key", b"", b""
        return b"200", b"OK", new_user_id(key).encode(), b""

    def check(self, connection: Connection, routing_id: bytes, op: str, request_id: str) -> None:
        """Raises `ShishaError` for a request that its sender may not make now."""
        user = self.user_of(connection.key)
        if user is None:
            self.refusals.add("revoked", f"a request with the key {connection.key}, which is no user's any more")
            raise error_for(Error.KEY_REVOKED, "the daemon does not know this key any more", request_id)
        if len(routing_id) != _ROUTING_ID_BYTES or routing_id[0]:
            self.refusals.add("routing_id", f"a request of {user.name!r}, by a socket with a routing id of its own")
            message = "the socket has a routing id of its own; expected none (ZMQ_ROUTING_ID) where there are keys"
            raise error_for(Error.OWN_ROUTING_ID, message, request_id)
        if not user.permission.may(op):
            self.refusals.add("permission", f"{op}, which {user.name!r} ({user.permission}) may not ask for")
            message = f"{op}: {user.name!r} is a {user.permission}; expected the key of an operator"
            raise error_for(Error.NOT_AN_OPERATOR, message, request_id)

    def broken_off(self) -> None:
        """Count a handshake that failed before the client's key was checked."""
        what = "a connection that spoke no CURVE, or with another daemon's key"
        self.refusals.add("handshake", what)

    def close(self) -> None:
        """To be called after the public socket is closed."""
        if self._zap is not None:
            self._zap.close()
