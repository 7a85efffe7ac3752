"""Routes by path and method, and what they answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from shisha_rt.http.app_state import Caller, Path
from shisha_rt.http.exchange import Exchange, Header
from shisha_rt.http.faults import HttpFault

_ALIKE: Final = {"GET": ("GET", "HEAD")}


class HttpReply(NamedTuple):
    """An answer; its length is told by the connection."""

    status: int
    headers: list[Header]
    body: bytes


Handler: TypeAlias = Callable[[Exchange, Caller | None, Path], Awaitable[HttpReply | None]]
"""Of a request, its caller, and what its path names; returns None if it has answered by itself."""


class HttpRoute:
    """`path`: a regular expression, in which `{name}` is a part of the path that goes to the handler unescaped.

    A route for GET is one for HEAD, too. A slash at the end makes another path, as with Triton: a rule of a proxy for a
    path is not evaded by one.
    """

    def __init__(self, path: str, handler: Handler, *methods: str) -> None:
        self.pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path).encode())
        self.handler = handler
        self.methods = methods or ("GET",)


async def answer_by(routes: Iterable[HttpRoute], exchange: Exchange, caller: Caller | None) -> None:
    """Answer by the first route for a request. Raises HttpFault if there is none."""
    method = "GET" if exchange.method == "HEAD" else exchange.method
    others: dict[str, None] = {}
    for route in routes:
        match = route.pattern.fullmatch(exchange.raw_path)
        if match is None:
            continue
        if method in route.methods:
            names = {name: unquote(part.decode("ascii", "replace")) for name, part in match.groupdict().items() if part}
            reply = await route.handler(exchange, caller, names)
            if reply is not None:
                await exchange.answer(reply.status, reply.headers, [reply.body])
            return
        others |= dict.fromkeys(method for name in route.methods for method in _ALIKE.get(name, (name,)))
    if others:
        raise HttpFault(
            405, f"{exchange.method} is not for {exchange.path!r}, expected {' or '.join(others)}", allow=others
        )
    raise HttpFault(404, f"there is nothing at {exchange.path!r}")


def json_reply(value: object, status: int = 200) -> HttpReply:
    return HttpReply(status, [(b"content-type", b"application/json")], msgspec.json.encode(value))
