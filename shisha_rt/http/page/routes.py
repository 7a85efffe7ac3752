"""The routes of the page: itself, its files, its feed, its caller, control and login."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.body import read_json
from shisha_rt.http.page.control import MOST_BYTES, check_sender, order_of
from shisha_rt.http.page.feed import MOST_FEEDS, Feed
from shisha_rt.http.page.files import HEADERS, static_files
from shisha_rt.http.page.sessions import session_of, set_cookie
from shisha_rt.protocol.access import Permission

_INDEX: Final = "index.html"
_PATIENCE_S: Final = 120.0
"""Timeout of the daemon's answer: a plan is answered when it is live."""
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


def page_routes(app_state: AppState) -> list[BaseRoute]:
    page = _Page(app_state)
    return [
        Route("/", page.index),
        Route("/page/feed", page.feed),
        Route("/page/caller", page.caller),
        Route("/page/control", page.control, methods=["POST"]),
        Route("/page/login", page.login, methods=["POST"]),
        Route("/page/logout", page.logout, methods=["POST"]),
        Route("/page/{name}", page.file),
    ]


class _Page:
    """The routes. A feed is a request with an endless answer; all others have ordinary answers."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state

    async def index(self, request: Request) -> Response:
        models = self._app_state.models
        if models and request.scope["caller"] is not None and request.query_params.get("model") not in models:
            return RedirectResponse(f"/?{urlencode({'model': models[0]})}", headers={"Cache-Control": "no-store"})
        answer = static_files()[_INDEX].answer(request.headers.get("if-none-match"))
        self._know_again(request, answer)
        return answer

    async def file(self, request: Request) -> Response:
        static_file = static_files().get(request.path_params["name"])
        if static_file is None:
            raise HttpFault(404, f"there is nothing at {request.url.path!r}")
        return static_file.answer(request.headers.get("if-none-match"))

    async def feed(self, request: Request) -> Feed:
        if self._app_state.feeds >= MOST_FEEDS:
            most = f"{MOST_FEEDS} pages are open, which is the most; close one"
            raise HttpFault(503, most, Error.TOO_MANY_CALLERS)
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        until, lasts_s = [self._app_state.ending, self._app_state.users_changed], None
        session_id = _session_of(request)
        if session_id is not None and self._app_state.users is not None and self._of_session(request) is not None:
            ended, lasts_s = self._app_state.sessions.rest_of(session_id)
            until.append(ended)
        model = None if self._app_state.models is None else request.query_params.get("model", "")
        watching = self._app_state.watching_of(model)
        return Feed(watching, last, *until, watching.ended, lasts_s=lasts_s)

    async def caller(self, request: Request) -> Response:
        """Who the caller is, and whether they may steer the daemon; the page asks this whenever it has reconnected."""
        session, has_login = self._of_session(request), self._app_state.users is not None
        caller = session or request.scope["caller"]
        is_known = session is not None or (caller is not None and not has_login)
        steers = caller is not None and is_known and caller.permission is Permission.OPERATOR
        about: dict[str, object] = {
            "name": "" if caller is None else caller.name,
            "may_watch": caller is not None,
            "may_control": steers,
            "reason": None if steers else _NOT_ALLOWED[is_known],
            "has_login": has_login,
            "is_full": self._app_state.feeds >= MOST_FEEDS,
            "models": [] if caller is None else self._app_state.models or [],
        }
        answer = _json(about)
        self._know_again(request, answer)
        return answer

    async def control(self, request: Request) -> Response:
        """Steer the daemon. Only the page itself can: with JSON, our own origin, and the page's cookie."""
        check_sender(request.scope["exchange"])
        caller = self._of_session(request)
        if caller is None:
            raise HttpFault(403, "the session of this page has ended: load it again, or log in")
        op, arguments = order_of(await read_json(request.scope["exchange"], dict[str, Any], MOST_BYTES))
        if not caller.permission.may(op):
            self._app_state.refuse("permission")
            raise HttpFault(403, _NOT_ALLOWED[True], Error.NOT_AN_OPERATOR)
        answer = await self._app_state.operator.call(op, timeout_s=_PATIENCE_S, **arguments)
        return _json({key: value for key, value in answer.items() if key != "id"})

    async def login(self, request: Request) -> Response:
        check_sender(request.scope["exchange"])
        users = self._app_state.users
        if users is None:
            raise HttpFault(409, "nobody has to log in: this daemon has no allow-list")
        token = (await read_json(request.scope["exchange"], _Login)).token
        user = users.of_token(token.strip())
        if user is None:
            self._app_state.refuse("unknown_token")
            raise HttpFault(401, "the token is nobody's")
        answer = _json({"name": user.name, "permission": user.permission.value})
        session_id = self._app_state.sessions.begin(Caller(user.name, user.permission), user.token_sha256)
        self._give_cookie(request, answer, session_id)
        return answer

    async def logout(self, request: Request) -> Response:
        check_sender(request.scope["exchange"])
        self._app_state.sessions.end(_session_of(request))
        answer = _json({})
        self._give_cookie(request, answer, "")
        return answer

    def _of_session(self, request: Request) -> Caller | None:
        return self._app_state.sessions.caller(_session_of(request), self._app_state.users)

    def _know_again(self, request: Request, answer: Response) -> None:
        """Begin a session for a caller who loads the page, if nobody has to log in."""
        if self._app_state.users is None and self._of_session(request) is None:
            self._give_cookie(request, answer, self._app_state.sessions.begin(request.scope["caller"]))

    def _give_cookie(self, request: Request, answer: Response, session_id: str) -> None:
        answer.headers["Set-Cookie"] = set_cookie(request.scope["exchange"].origin.decode("latin-1"), session_id)


def _session_of(request: Request) -> str | None:
    return session_of(request.scope["exchange"].headers_by_name)


def _json(fields: dict[str, object]) -> Response:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(msgspec.json.encode(fields), headers=headers, media_type="application/json")
