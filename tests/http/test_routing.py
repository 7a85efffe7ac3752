"""Which route answers a request, and what its path names."""

from __future__ import annotations

import asyncio

import pytest

from shisha_rt.http.app_state import Caller, Path
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.routing import HttpReply, HttpRoute, answer_by, json_reply
from tests.http.asked import Line, asked


async def named(_exchange: Exchange, _caller: Caller | None, path: Path) -> HttpReply:
    return json_reply(path)


ROUTES = [
    HttpRoute("/models/all", named, "POST"),
    HttpRoute("/models/{model}(?:/versions/{version})?/infer", named, "POST"),
    HttpRoute("/models/{model}", named),
]


def answer(method: str, url: str) -> tuple[int, bytes]:
    line = Line()
    try:
        asyncio.run(answer_by(ROUTES, asked(line, method, url, {}), None))
    except HttpFault as fault:
        return fault.status, fault.message.encode()
    status, _, body = line.answer()
    return status, body


@pytest.mark.parametrize(
    ("method", "url", "names"),
    [
        ("GET", "/models/a?all=1", b'{"model":"a"}'),
        ("GET", "/models/a%2fb%20c", b'{"model":"a/b c"}'),
        ("POST", "/models/a/infer", b'{"model":"a"}'),
        ("POST", "/models/b%2e%7E1/versions/2/infer", b'{"model":"b.~1","version":"2"}'),
        ("POST", "/%6dodels/%61ll", b"{}"),
        ("POST", "/models/a/%69nfer", b'{"model":"a"}'),
        ("GET", "/models/all", b'{"model":"all"}'),
        ("HEAD", "/models/a", b'{"model":"a"}'),
    ],
)
def test_the_first_route_of_a_path_and_method_answers(method: str, url: str, names: bytes) -> None:
    assert answer(method, url) == (200, b"" if method == "HEAD" else names)


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/models", 404),
        ("GET", "/models//", 404),
        ("GET", "/models/a/", 404),
        ("GET", "/models%2Fa", 404),
        ("GET", "/models/a/../b", 404),
        ("GET", "/models/a/b", 404),
        ("GET", "/models/a/infer", 405),
        ("DELETE", "/models/a", 405),
    ],
)
def test_where_there_is_none(method: str, url: str, status: int) -> None:
    assert answer(method, url)[0] == status


@pytest.mark.parametrize(("url", "allowed"), [("/models/a/infer", b"POST"), ("/models/all", b"POST, GET, HEAD")])
def test_another_method_is_told_which_there_are(url: str, allowed: bytes) -> None:
    with pytest.raises(HttpFault) as raised:
        asyncio.run(answer_by(ROUTES, asked(Line(), "DELETE", url, {}), None))
    assert (b"allow", allowed) in raised.value.headers


def test_what_a_caller_goes_on_sending_while_it_is_only_waited_for_is_dropped() -> None:
    async def main() -> None:
        exchange = asked(Line(), "GET", "/", {})
        waiting = asyncio.ensure_future(exchange.lost())
        for _ in range(3):
            exchange.body.extend(bytes(1000))
            exchange.tell()
            await asyncio.sleep(0)
        assert not exchange.body
        exchange.lose()
        await waiting

    asyncio.run(main())
