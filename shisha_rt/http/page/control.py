"""The operations by which the page may steer the daemon, checked before they are passed on."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.protocol.operations import OPERATIONS

STEERING: Final = ("tuner_set", "place_set", "plan_set")
MOST_BYTES: Final = 256 * 2**10
"""The largest request: a plan of 1024 stages is smaller."""


def order_of(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """An operation and its arguments, of a request such as `{"op": "tuner_set", "pause": true}`.

    Raises `HttpFault` that says what is wrong.
    """
    given = dict(given)
    op = given.pop("op", None)
    if op not in STEERING:
        raise HttpFault(400, f"op: {_shown(op)}; expected one of {', '.join(STEERING)}")
    form = OPERATIONS[op]
    unknown = sorted(given.keys() - {*form.__struct_fields__, "model_name"})
    if unknown:
        raise HttpFault(400, f"{op} takes no {_shown(unknown[0])}")
    try:
        msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise HttpFault(400, f"{op}: {error}") from None
    return op, given


def check_sender(exchange: Exchange) -> None:
    """Raises `HttpFault` unless the request is JSON and its `Origin`, which browsers set, is this page's."""
    headers = exchange.headers_by_name
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise HttpFault(415, "Content-Type: expected application/json")
    if headers.get(b"origin", b"").lower() != exchange.origin.lower():
        raise HttpFault(403, "Origin: expected that of the page itself")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
