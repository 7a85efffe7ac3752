"""What the page may ask for, as it comes in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from shisha_rt.errors import Error
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.page.routes import check_sender, order_of
from tests.http.asked import Line, asked
from tests.wording import raised

SENT = {
    "host": "127.0.0.1:8000",
    "origin": "http://127.0.0.1:8000",
    "content-type": "application/json",
}


@pytest.mark.parametrize(
    "order",
    [
        {"op": "tuner_set", "pause": True},
        {"op": "tuner_set", "pause": True, "model_name": "detector"},
        {"op": "tuner_set", "strategy": "guided", "alpha": 5, "objective": "latency"},
        {"op": "place_set", "place": "slow0", "down": True},
        {"op": "place_set", "place": "board", "device": "pim", "speed": 0.5},
        {"op": "plan_set", "stages": [{"first": 0, "last": 25, "places": [["a", "b"]]}]},
    ],
)
def test_orders_are_passed_on_as_they_are(order: dict[str, Any]) -> None:
    op, arguments = order_of(dict(order))
    assert {"op": op, **arguments} == order


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"op":"infer"}', 'op: "infer"; expected one of tuner_set, place_set, plan_set'),
        (b'{"op":["tuner_set"]}', 'op: ["tuner_set"]; expected one of'),
        (b'{"pause":true}', "op: null; expected one of"),
        (b'{"op":"tuner_set","pause":true,"timeout_s":1}', 'tuner_set takes no "timeout_s"'),
    ],
)
def test_what_is_no_order_is_refused_in_words(body: bytes, expected: str) -> None:
    with raised(HttpFault, Error.MALFORMED_REQUEST) as fault:
        order_of(json.loads(body))
    assert fault.value.status == 400
    assert expected in fault.value.message
    assert "\n" not in fault.value.message


def sent(headers: Mapping[str, str]) -> Exchange:
    return asked(Line(), "POST", "/page/control", headers)


def test_only_json_from_the_pages_own_origin() -> None:
    check_sender(sent(SENT))
    check_sender(sent(SENT | {"content-type": "application/json; charset=utf-8"}))
    for change, status in [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8001"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
    ]:
        with pytest.raises(HttpFault) as fault:
            check_sender(sent(SENT | change))
        assert fault.value.status == status
    with raised(HttpFault, Error.FOREIGN_CALLER):
        check_sender(sent({"host": SENT["host"], "content-type": SENT["content-type"]}))
