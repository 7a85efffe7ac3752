"""The operations by which the page may steer the daemon, checked before they are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shisha_rt.http.connection import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.protocol.operations import OPERATIONS

STEERING: Final = ("tuner_set", "place_set", "plan_set")
MOST_BYTES: Final = 256 * 2**10
"""The largest request: a plan of 1024 stages is smaller."""


@dataclass(frozen=True, slots=True)
class Steering:
    """An operation and its arguments, as in the wire protocol. `model`: which one, if there are several."""

    op: str
    arguments: Mapping[str, Any]
    model: str | None = None


def order_of(given: dict[str, Any]) -> Steering:
    """Read a request such as `{"op": "tuner_set", "pause": true}`. Raises `HttpFault` that says what is wrong."""
    op = given.pop("op", None)
    if op not in STEERING:
        raise HttpFault(400, f"op: {_shown(op)}; expected one of {', '.join(STEERING)}")
    model = given.pop("model_name", None)
    form = OPERATIONS[op]
    unknown = sorted(set(given) - {field.name for field in msgspec.structs.fields(form)})
    if unknown:
        raise HttpFault(400, f"{op} takes no {_shown(unknown[0])}")
    try:
        msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise HttpFault(400, f"{op}: {error}") from None
    return Steering(op, given, None if model is None else str(model))


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
