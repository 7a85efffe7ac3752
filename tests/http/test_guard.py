"""Who may call, and from where: what the guard lets through to the routes, and what it answers itself."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from shisha_rt.daemon.front.http_messages import Listener, ServeHttp
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.faults import HttpFault, fault_of
from shisha_rt.http.front import HttpFront
from shisha_rt.http.guard import Guard
from shisha_rt.http.routing import HttpRoute
from shisha_rt.http.server import HttpConnections
from shisha_rt.protocol.access import Permission, User
from shisha_rt.protocol.exceptions import ShishaError, error_for
from tests.http.asked import Line, asked

LOOPBACK = Listener(0, unix=False, beyond=False)
BEYOND = Listener(0, unix=False, beyond=True)
UNIX = Listener(0, unix=True, beyond=False)
USERS = (
    User("camera", token_sha256=hashlib.sha256(b"t0ken").hexdigest()),
    User("ops", Permission.OPERATOR, token_sha256=hashlib.sha256(b"oper").hexdigest(), unix_user=getpass.getuser()),
    User("nobody", unix_user="nobody"),
)


def call(
    listener: Listener,
    headers: Mapping[str, str],
    *,
    users: tuple[User, ...] | None = None,
    method: str = "POST",
    path: str = "/v2",
    uid: int | None = None,
) -> tuple[int, Any]:
    """The status and text of the guard's refusal, or 0 and the caller that got through."""

    async def run() -> tuple[int, Any]:
        app_state = AppState(ServeHttp("tcp://127.0.0.1:1", (listener,), users=users))
        exchange = asked(Line("https" if listener.beyond else "http", uid), method, path, headers)
        try:
            return 0, Guard(app_state, listener).admit(exchange)
        except (HttpFault, ShishaError) as error:
            counted = app_state.counted()
            assert counted is not None
            assert sum(counted.refused.values()) == 1
            fault = error if isinstance(error, HttpFault) else fault_of(error)
            return fault.status, fault.message
        finally:
            await app_state.close()

    return asyncio.run(run())


def failing(app_state: AppState, fault: Exception | None = None) -> HttpFront:
    """A front whose requests wait for ever, or are failed by a fault on purpose."""

    async def handle(*_: object) -> None:
        if fault is not None:
            raise fault
        await asyncio.Event().wait()

    return HttpFront(app_state, LOOPBACK, [HttpRoute("/v2", handle, "GET", "POST")])


def test_what_has_no_end_is_ended_in_the_form_of_all_others() -> None:
    """Some seconds after the daemon's last answers what is left is cancelled."""

    async def run() -> None:
        app_state, line = AppState(ServeHttp("tcp://127.0.0.1:1", (LOOPBACK,))), Line()
        waits = asyncio.create_task(failing(app_state)(asked(line, "POST", "/v2", {"Host": "localhost"})))
        await asyncio.sleep(0)
        app_state.ending.set()
        waits.cancel()
        await waits
        status, _, body = line.answer()
        assert status == 503
        assert "may have been" in json.loads(body)["error"]
        assert line.counted == [503]
        await app_state.close()

    asyncio.run(run())


def test_a_fault_of_ours_is_counted() -> None:
    async def run() -> None:
        app_state = AppState(ServeHttp("tcp://127.0.0.1:1", (LOOPBACK,)))
        connections = HttpConnections(failing(app_state, RuntimeError("a fault on purpose")), 8)
        connections.start(asked(line := Line(), "GET", "/v2", {"Host": "localhost"}))
        await asyncio.gather(*connections.tasks)
        assert line.counted == [500]
        await app_state.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "fault",
    [error_for(Error.UNKNOWN_TOKEN, "nobody's"), HttpFault(401, "nobody's"), error_for(Error.UNKNOWN_MODEL, "none")],
)
def test_errors_of_either_form_become_answers(fault: HttpFault | ShishaError) -> None:
    async def run() -> None:
        app_state, line = AppState(ServeHttp("tcp://127.0.0.1:1", (LOOPBACK,))), Line()
        await failing(app_state, fault)(asked(line, "GET", "/v2", {"Host": "localhost"}))
        status, headers, body = line.answer()
        assert status == (404 if fault.kind == Error.UNKNOWN_MODEL else 401)
        assert headers.get("www-authenticate") == (None if status == 404 else "Bearer")
        assert json.loads(body)["kind"] == fault.kind
        await app_state.close()

    asyncio.run(run())


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8000", "[::1]"])
def test_a_host_of_loopback_passes(host: str) -> None:
    assert call(LOOPBACK, {"Host": host}) == (0, Caller("", Permission.OPERATOR))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "x@localhost",
        "[::2]:1",
    ],
)
def test_no_other_name_can_be_made_to_point_here(host: str) -> None:
    assert call(LOOPBACK, {"Host": host})[0] == 421
    assert call(LOOPBACK, {})[0] == 421


def test_other_hosts_call_it_as_they_like() -> None:
    headers = {"Host": "gpu1.example:8443", "Authorization": "Bearer t0ken"}
    assert call(BEYOND, headers, users=USERS)[0] == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://localhost:8000"},
        {"Origin": "http://localhost:9000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_sites_page_can_send_or_read(headers: dict[str, str], method: str) -> None:
    status, error = call(LOOPBACK, {"Host": "localhost:8000", **headers}, method=method)
    assert status == 403
    assert "another site" in error


def test_the_page_itself_and_a_link_to_it_pass() -> None:
    host = {"Host": "localhost:8000"}
    assert call(LOOPBACK, {**host, "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"})[0] == 0
    linked = {**host, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert call(LOOPBACK, linked, method="GET", path="/")[0] == 0
    assert call(LOOPBACK, linked, method="POST", path="/")[0] == 403


@pytest.mark.parametrize("listener", [LOOPBACK, BEYOND])
def test_with_a_list_it_takes_a_token(listener: Listener) -> None:
    def by(authorization: str | None) -> tuple[int, Any]:
        headers = {"Host": "localhost"} | ({} if authorization is None else {"Authorization": authorization})
        return call(listener, headers, users=USERS)

    assert by("Bearer t0ken") == (0, Caller("camera", Permission.CLIENT))
    assert by("bearer  oper ") == (0, Caller("ops", Permission.OPERATOR, os.getuid()))
    for wrong in (None, "", "Bearer", "Bearer ", "Bearer t0ke", "Bearer t0ken2", "Basic t0ken", "Bearer \u00ff"):
        assert by(wrong)[0] == 401


def test_a_unix_socket_knows_its_callers() -> None:
    own = os.getuid()
    assert call(UNIX, {}, uid=own) == (0, Caller("", Permission.OPERATOR, own))
    assert call(UNIX, {"Host": "anything"}, uid=0) == (0, Caller("", Permission.OPERATOR, 0))
    assert call(UNIX, {}, uid=65534, users=USERS) == (0, Caller("nobody", Permission.CLIENT, 65534))
    assert call(UNIX, {}, uid=65533, users=USERS)[0] == 403
    assert call(UNIX, {}, uid=65534)[0] == 403
