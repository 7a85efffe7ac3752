"""The routes of the page: itself, its files, its feed, its caller, control and login."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from shisha_rt.checked import shown
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller, Path
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.body import read_json
from shisha_rt.http.page.feed import MOST_FEEDS, answer_feed
from shisha_rt.http.page.files import HEADERS, static_files
from shisha_rt.http.page.sessions import session_of, set_cookie
from shisha_rt.http.routing import HttpReply, HttpRoute, json_reply
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.operations import OPERATIONS

STEERING: Final = ("tuner_set", "place_set", "plan_set")
"""The operations by which the page may steer the daemon."""
MOST_BYTES: Final = 256 * 2**10
"""The largest request for one: a plan of 1024 stages is smaller."""
_INDEX: Final = "index.html"
_PATIENCE_S: Final = 120.0
"""Timeout of the daemon's answer: a plan is answered when it is live."""
_LOGIN_BYTES: Final = 4 << 10
_LOGIN_S: Final = 5.0
"""Timeout of a login's body: it is the one body that is read of strangers."""
_NOT_ALLOWED: Final = {
    True: "This user may look, but not steer: the allow-list gives it the permission 'client'.",
    False: "Log in with an operator's token to steer the daemon.",
}


class _Login(msgspec.Struct, frozen=True):
    token: str


def is_open(method: str, path: str) -> bool:
    """Whether a route is open to everybody who can connect: it reveals nothing of the daemon, or is for login."""
    if method == "POST":
        return path in ("/page/login", "/page/logout")
    return path in ("/", "/page/caller") or (path.startswith("/page/") and path[len("/page/") :] in static_files())


def order_of(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Operation and arguments of `{"op": "tuner_set", "pause": true}`; the client checks these. Raises HttpFault."""
    op = given.pop("op", None)
    if op not in STEERING:
        raise HttpFault(400, f"op: {shown(op)}; expected one of {', '.join(STEERING)}")
    unknown = sorted(given.keys() - {*OPERATIONS[op].__struct_fields__, "model_name"})
    if unknown:
        raise HttpFault(400, f"{op} takes no {shown(unknown[0])}")
    return op, given


def check_sender(exchange: Exchange) -> None:
    """Raises `HttpFault` unless the request is JSON and its `Origin`, which browsers set, is this page's."""
    headers = exchange.headers_by_name
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise HttpFault(415, "Content-Type: expected application/json")
    if headers.get(b"origin", b"").lower() != exchange.origin.lower():
        raise HttpFault(403, "Origin: expected that of the page itself")


def page_routes(app_state: AppState) -> list[HttpRoute]:
    page = _Page(app_state)
    return [
        HttpRoute("/", page.index),
        HttpRoute("/page/feed", page.feed),
        HttpRoute("/page/caller", page.caller),
        HttpRoute("/page/control", page.control, "POST"),
        HttpRoute("/page/login", page.login, "POST"),
        HttpRoute("/page/logout", page.logout, "POST"),
        HttpRoute("/page/{name}", page.file),
    ]


class _Page:
    """The routes. A feed is a request with an endless answer; all others have ordinary answers."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state

    async def index(self, exchange: Exchange, caller: Caller | None, _: Path) -> HttpReply:
        models = self._app_state.models
        if models and caller is not None and _query(exchange).get("model") not in models:
            where = f"/?{urlencode({'model': models[0]})}"
            return HttpReply(307, [(b"location", where.encode()), (b"cache-control", b"no-store")], b"")
        answer = static_files()[_INDEX].answer(exchange.headers_by_name.get(b"if-none-match", b""))
        self._begin_session(exchange, caller, answer)
        return answer

    async def file(self, exchange: Exchange, _: Caller | None, path: Path) -> HttpReply:
        static_file = static_files().get(path["name"])
        if static_file is None:
            raise HttpFault(404, f"there is nothing at {exchange.path!r}")
        return static_file.answer(exchange.headers_by_name.get(b"if-none-match", b""))

    async def feed(self, exchange: Exchange, _: Caller | None, __: Path) -> None:
        if self._app_state.feeds >= MOST_FEEDS:
            most = f"{MOST_FEEDS} pages are open, which is the most; close one"
            raise HttpFault(503, most, Error.TOO_MANY_CALLERS)
        query, headers = _query(exchange), exchange.headers_by_name
        last = headers.get(b"last-event-id", b"").decode("latin-1") or query.get("last", "")
        until, lasts_s = [self._app_state.ending, self._app_state.users_changed], None
        session_id = session_of(headers)
        if session_id is not None and self._app_state.users is not None and self._of_session(exchange) is not None:
            ended, lasts_s = self._app_state.sessions.rest_of(session_id)
            until.append(ended)
        model = None if self._app_state.models is None else query.get("model", "")
        watching = self._app_state.watching_of(model)
        await answer_feed(exchange, watching, last, *until, watching.ended, lasts_s=lasts_s)

    async def caller(self, exchange: Exchange, caller: Caller | None, _: Path) -> HttpReply:
        """Who the caller is, and whether they may steer the daemon; the page asks this whenever it has reconnected."""
        session, has_login = self._of_session(exchange), self._app_state.users is not None
        named = session or caller
        is_known = session is not None or (named is not None and not has_login)
        steers = named is not None and is_known and named.permission is Permission.OPERATOR
        about: dict[str, object] = {
            "name": "" if named is None else named.name,
            "may_watch": named is not None,
            "may_control": steers,
            "reason": None if steers else _NOT_ALLOWED[is_known],
            "has_login": has_login,
            "is_full": self._app_state.feeds >= MOST_FEEDS,
            "models": [] if named is None else self._app_state.models or [],
        }
        answer = _json(about)
        self._begin_session(exchange, caller, answer)
        return answer

    async def control(self, exchange: Exchange, _: Caller | None, __: Path) -> HttpReply:
        """Steer the daemon. Only the page itself can: with JSON, our own origin, and the page's cookie."""
        check_sender(exchange)
        caller = self._of_session(exchange)
        if caller is None:
            raise HttpFault(403, "the session of this page has ended: load it again, or log in")
        op, arguments = order_of(await read_json(exchange, dict[str, Any], MOST_BYTES))
        if not caller.permission.may(op):
            self._app_state.refuse("permission")
            raise HttpFault(403, _NOT_ALLOWED[True], Error.NOT_AN_OPERATOR)
        answer = await self._app_state.operator.call(op, timeout_s=_PATIENCE_S, **arguments)
        return _json({key: value for key, value in answer.items() if key != "id"})

    async def login(self, exchange: Exchange, _: Caller | None, __: Path) -> HttpReply:
        check_sender(exchange)
        users = self._app_state.users
        if users is None:
            raise HttpFault(409, "nobody has to log in: this daemon has no allow-list")
        token = (await read_json(exchange, _Login, _LOGIN_BYTES, _LOGIN_S)).token
        user = users.of_token(token.strip())
        if user is None:
            self._app_state.refuse("unknown_token")
            raise HttpFault(401, "the token is nobody's")
        answer = _json({"name": user.name, "permission": user.permission.value})
        session_id = self._app_state.sessions.begin(Caller(user.name, user.permission), user.token_sha256)
        _give_cookie(exchange, answer, session_id)
        return answer

    async def logout(self, exchange: Exchange, _: Caller | None, __: Path) -> HttpReply:
        check_sender(exchange)
        self._app_state.sessions.end(session_of(exchange.headers_by_name))
        answer = _json({})
        _give_cookie(exchange, answer, "")
        return answer

    def _of_session(self, exchange: Exchange) -> Caller | None:
        return self._app_state.sessions.caller(session_of(exchange.headers_by_name), self._app_state.users)

    def _begin_session(self, exchange: Exchange, caller: Caller | None, answer: HttpReply) -> None:
        """Begin a session for a caller who loads the page, if nobody has to log in."""
        if self._app_state.users is None and caller is not None and self._of_session(exchange) is None:
            _give_cookie(exchange, answer, self._app_state.sessions.begin(caller))


def _give_cookie(exchange: Exchange, answer: HttpReply, session_id: str) -> None:
    cookie = set_cookie(exchange.origin.decode("latin-1"), session_id)
    answer.headers.append((b"set-cookie", cookie.encode("latin-1")))


def _query(exchange: Exchange) -> dict[str, str]:
    return dict(parse_qsl(exchange.query.decode("latin-1")))


def _json(fields: dict[str, object]) -> HttpReply:
    answer = json_reply(fields)
    answer.headers.extend((*HEADERS, (b"cache-control", b"no-store")))
    return answer
