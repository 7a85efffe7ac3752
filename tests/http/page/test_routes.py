"""The page's routes behind the guard: files, headers, who is known again, who may steer."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import Listener, ServeHttp
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState
from shisha_rt.http.front import HttpFront, http_routes
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.page.feed import MOST_FEEDS
from shisha_rt.http.page.files import FOLDER, POLICY
from shisha_rt.http.page.routes import MOST_BYTES
from shisha_rt.http.page.sessions import LASTS_S, Sessions
from shisha_rt.protocol.access import AccessList, Permission, User
from shisha_rt.protocol.exceptions import NotFound, Unavailable
from tests.http.asked import Line, asked
from tests.waiting import PATIENCE_S
from tests.wording import raised, says

HOST = "127.0.0.1:8000"
FROM_PAGE = {"Origin": f"http://{HOST}", "Content-Type": "application/json"}
PAUSE = {"op": "tuner_set", "pause": True}
ANN = User("ann", Permission.OPERATOR, token_sha256=hashlib.sha256(b"ann's").hexdigest())
BOB = User("bob", Permission.CLIENT, token_sha256=hashlib.sha256(b"bob's").hexdigest())


class Browser:
    """Asks the routes of one application as over a connection, with the cookies that it got.

    `stays`: whether it keeps its connections, so that an endless answer goes on.
    """

    def __init__(self, users: tuple[User, ...] | None = None, models: tuple[str, ...] | None = None) -> None:
        listener = Listener(0, unix=False, beyond=False)
        self.app_state = AppState(ServeHttp("tcp://127.0.0.1:1", (listener,), users=users, models=models))
        routes = http_routes(self.app_state, Inferences(self.app_state))
        self._front = HttpFront(self.app_state, listener, routes)
        self.cookie = ""
        self.stays = False

    async def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"Host": HOST, **(headers or {}), **({"Cookie": self.cookie} if self.cookie else {})}
        line = Line(stays=self.stays)
        await self._front(asked(line, method, path, given, data))
        status, fields, content = line.answer()
        if "set-cookie" in fields:
            self.cookie = fields["set-cookie"].split(";")[0]
        is_json = fields.get("content-type") == "application/json"
        return status, fields, json.loads(content) if is_json and content else content


def run(
    steps: Callable[[Browser], Coroutine[Any, Any, None]],
    users: tuple[User, ...] | None = None,
    models: tuple[str, ...] | None = None,
) -> None:
    async def whole() -> None:
        browser = Browser(users, models)
        try:
            await steps(browser)
        finally:
            await browser.app_state.close()

    asyncio.run(whole())


def test_all_that_the_page_loads_is_there_and_loads_nothing_of_elsewhere() -> None:
    async def steps(browser: Browser) -> None:
        status, headers, page = await browser.ask("GET", "/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["content-security-policy"] == POLICY
        assert b"style=" not in page
        for path in FOLDER.iterdir():
            status, headers, content = await browser.ask("GET", f"/page/{path.name}")
            assert (status, content) == (200, path.read_bytes())
            assert headers["x-content-type-options"] == "nosniff"
            assert b"innerHTML" not in content
            assert b"//" not in content.replace(b"http://www.w3.org/2000/svg", b"").replace(b"// ", b"")
            again = await browser.ask("GET", f"/page/{path.name}", headers={"If-None-Match": headers["etag"]})
            assert (again[0], again[2]) == (304, b"")
        for missing in ("/page/../files.py", "/page/%2e%2e/files.py", "/page/none.js", "/page/", "/page/a/b"):
            assert (await browser.ask("GET", missing))[0] == 404

    run(steps)


def test_control_only_from_the_page_and_with_its_cookie() -> None:
    async def steps(browser: Browser) -> None:
        assert (await browser.ask("POST", "/page/control", PAUSE, FROM_PAGE))[0] == 403
        headers = (await browser.ask("GET", "/"))[1]
        assert "HttpOnly; SameSite=Strict" in headers["set-cookie"]
        assert "set-cookie" not in (await browser.ask("GET", "/"))[1]
        for change, status in [
            ({"Origin": ""}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ]:
            assert (await browser.ask("POST", "/page/control", PAUSE, FROM_PAGE | change))[0] == status
        no_origin = {"Content-Type": "application/json"}
        assert (await browser.ask("POST", "/page/control", PAUSE, no_origin))[0] == 403
        assert (await browser.ask("GET", "/page/control", headers=FROM_PAGE))[0] == 404
        for odd in ({"op": "infer"}, b"", b'{"op": "\xff"}', b'{"op": ' + b"[" * 60_000, b"[]", b"\xff"):
            status, _, answer = await browser.ask("POST", "/page/control", odd, FROM_PAGE)
            assert (status, answer["kind"]) == (400, "malformed_request")
            assert "\n" not in answer["error"]
        for unfit, expected in (
            ({"op": "tuner_set", "pause": True, "resume": True}, "at most one"),
            ({"op": "tuner_set", "alpha": 0}, "alpha"),
            ({"op": "place_set", "place": "x"}, "exactly one of"),
            ({"op": "plan_set", "stages": []}, "stages"),
        ):
            status, _, answer = await browser.ask("POST", "/page/control", unfit, FROM_PAGE)
            assert (status, answer["kind"]) == (400, "malformed_request")
            assert expected in answer["error"]
        long = b" " * (MOST_BYTES + 1)
        assert (await browser.ask("POST", "/page/control", long, FROM_PAGE))[0] == 413
        browser.cookie = browser.cookie[:-1]
        assert (await browser.ask("POST", "/page/control", PAUSE, FROM_PAGE))[0] == 403

    run(steps)


def test_with_an_allow_list_the_page_shows_nothing_before_a_login() -> None:
    async def steps(browser: Browser) -> None:
        assert (await browser.ask("GET", "/"))[0] == 200
        assert (await browser.ask("GET", "/page/app.js"))[0] == 200
        assert browser.cookie == ""
        about = (await browser.ask("GET", "/page/caller"))[2]
        assert (about["may_watch"], about["may_control"], about["has_login"]) == (False, False, True)
        assert (await browser.ask("GET", "/page/feed"))[0] == 401
        assert (await browser.ask("POST", "/page/control", PAUSE, FROM_PAGE))[0] == 401
        assert (await browser.ask("POST", "/page/login", {"token": "wrong"}, FROM_PAGE))[0] == 401
        assert (await browser.ask("POST", "/page/login", {"token": 5}, FROM_PAGE))[0] == 400
        for odd in b'{"token": "\xff"}', b'{"token": ' + b"[" * 4_000:
            assert (await browser.ask("POST", "/page/login", odd, FROM_PAGE))[0] == 400
        large, packed = b'{"token": "%b"}' % (b"a" * 4096), FROM_PAGE | {"Content-Encoding": "gzip"}
        assert (await browser.ask("POST", "/page/login", large, FROM_PAGE))[0] == 413
        assert (await browser.ask("POST", "/page/login", gzip.compress(large), packed))[0] == 413
        assert (await browser.ask("POST", "/page/login", {"token": "bob's"}, {**FROM_PAGE, "Origin": "x:"}))[0] == 403
        assert browser.cookie == ""

        assert (await browser.ask("POST", "/page/login", {"token": "bob's"}, FROM_PAGE))[0] == 200
        about = (await browser.ask("GET", "/page/caller"))[2]
        assert (about["name"], about["may_watch"], about["may_control"]) == ("bob", True, False)
        status, _, answer = await browser.ask("POST", "/page/control", PAUSE, FROM_PAGE)
        assert (status, answer) == (403, {"error": about["reason"], "kind": "not_an_operator"})

        assert (await browser.ask("POST", "/page/login", {"token": "ann's"}, FROM_PAGE))[0] == 200
        assert (await browser.ask("GET", "/page/caller"))[2]["may_control"] is True
        browser.app_state.users = AccessList([BOB])
        assert (await browser.ask("GET", "/page/feed"))[0] == 401
        browser.app_state.users = AccessList([ANN, BOB])
        assert (await browser.ask("GET", "/page/caller"))[2]["may_watch"] is True
        assert (await browser.ask("POST", "/page/logout", {}, FROM_PAGE))[0] == 200
        assert (await browser.ask("GET", "/page/caller"))[2]["may_watch"] is False

    run(steps, (ANN, BOB))


def test_models_are_named_only_to_whom_the_allow_list_knows() -> None:
    async def steps(browser: Browser) -> None:
        assert (await browser.ask("GET", "/"))[0] == 200
        assert (await browser.ask("GET", "/page/caller"))[2]["models"] == []
        await browser.ask("POST", "/page/login", {"token": "bob's"}, FROM_PAGE)
        status, headers, _ = await browser.ask("GET", "/")
        assert (status, headers["location"]) == (307, "/?model=a")
        assert (await browser.ask("GET", "/?model=b"))[0] == 200
        assert (await browser.ask("GET", "/page/caller"))[2]["models"] == ["a", "b"]

    run(steps, (ANN, BOB), ("a", "b"))


def test_a_model_that_is_unloaded_is_watched_no_longer() -> None:
    async def steps(browser: Browser) -> None:
        app_state = browser.app_state
        watching = asyncio.create_task(app_state.watch())
        await asyncio.sleep(0)
        idle = len(asyncio.all_tasks())
        unloaded, kept = app_state.watching_of("a"), app_state.watching_of("b")
        browser.stays = True
        feed = asyncio.create_task(browser.ask("GET", "/page/feed?model=a"))
        await _until(lambda: unloaded.feeds == 1)
        app_state.change_models(("b",), ("b",))
        await asyncio.wait_for(feed, PATIENCE_S)
        assert app_state.feeds == 0
        status, _, answer = await browser.ask("GET", "/page/feed?model=a")
        assert (status, answer["kind"]) == (404, "unknown_model")
        with raised(NotFound, Error.UNKNOWN_MODEL):
            app_state.watching_of("a")
        assert app_state.watching_of("b") is kept
        app_state.change_models((), ())
        await _until(lambda: len(asyncio.all_tasks()) <= idle)
        watching.cancel()

    run(steps, models=("a", "b"))


def test_the_client_of_a_model_that_is_unloaded_is_closed_when_nobody_uses_it() -> None:
    async def steps(browser: Browser) -> None:
        app_state = browser.app_state
        watching, may_ask = asyncio.create_task(app_state.watch()), asyncio.Event()

        async def request() -> AsyncClient:
            client = app_state.client_of({"model": "a"})
            await may_ask.wait()
            with raised(Unavailable, Error.NO_DAEMON):
                await client.call("server_live", timeout_s=0.01)
            return client

        requests = [asyncio.create_task(request()) for _ in range(2)]
        await asyncio.sleep(0)
        app_state.change_models(("a", "b"), ("b",))
        await asyncio.sleep(0)
        may_ask.set()
        first, second = await asyncio.gather(*requests)
        assert first is second
        await _until(lambda: first._link.closed)
        assert app_state.client_of({"model": "a"}) is not first
        watching.cancel()

    run(steps, models=("a", "b"))


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("way", ["logout", "time"])
def test_a_feed_ends_with_its_session(way: str) -> None:
    async def steps(browser: Browser) -> None:
        now_s = [0.0]
        browser.app_state.sessions = Sessions(lambda: now_s[0])
        await browser.ask("POST", "/page/login", {"token": "bob's"}, FROM_PAGE)
        now_s[0] = LASTS_S - (0.001 if way == "time" else 60)
        browser.stays = True
        feed = asyncio.create_task(browser.ask("GET", "/page/feed"))
        if way == "logout":
            await _until(lambda: browser.app_state.feeds == 1)
            await browser.ask("POST", "/page/logout", {}, FROM_PAGE)
        await _until(feed.done)
        assert (await feed)[0] == 200
        assert browser.app_state.feeds == 0

    run(steps, (ANN, BOB))


def test_only_so_many_feeds() -> None:
    async def steps(browser: Browser) -> None:
        for _ in range(MOST_FEEDS):
            browser.app_state.watching.opened()
        status, headers, answer = await browser.ask("GET", "/page/feed")
        assert (status, answer) == (
            503,
            {"error": says("32 pages are … most; close one"), "kind": "too_many_callers"},
        )
        assert "retry-after" in headers
        assert (await browser.ask("GET", "/page/caller"))[2]["is_full"] is True

    run(steps)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_what_a_file_names_is_there(path: Path) -> None:
    names = re.findall(r"""from "\./([^"]+)"|"/page/([\w.]+\.(?:css|js|svg))\"""", path.read_text())
    assert [name for pair in names for name in pair if name and not (FOLDER / name).exists()] == []
