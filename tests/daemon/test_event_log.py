"""Events are numbered, bounded, and polled without loss or repetition."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from shisha_rt.core.event_log import Draining, PlanLive, PlanRefused, Replanned, WorkerStarted
from shisha_rt.daemon.event_log import PAGE_BYTES, EventLog
from shisha_rt.protocol.header import decode_fields, encode_answer


def answer(journal: EventLog, since: int, limit: int) -> Mapping[str, Any]:
    """As a client gets it."""
    fields = decode_fields(encode_answer("1", journal.since(since, limit)))
    assert fields.pop("id") == "1"
    return fields


def test_polling_page_by_page_gives_every_event_once() -> None:
    journal = EventLog()
    for i in range(10):
        journal.write(Draining(in_flight=i), "test")
    seen, since = [], 0
    while True:
        page = answer(journal, since, limit=3)
        if not page["events"]:
            break
        seen += [event["in_flight"] for event in page["events"]]
        since = page["next"]
    assert seen == list(range(10))
    assert since == 10
    journal.write(WorkerStarted(place="late", incarnation=1), "a late cause")
    assert [event["place"] for event in answer(journal, since, 100)["events"]] == ["late"]


def test_so_many_are_kept_and_the_oldest_forgotten_a_block_at_a_time() -> None:
    journal = EventLog(kept=500)
    for i in range(3000):
        journal.write(Draining(in_flight=i), "test")
    seen, since = [], 0
    while (page := answer(journal, since, limit=100))["events"]:
        seen += [(event["event"], event["in_flight"]) for event in page["events"]]
        since = page["next"]
    assert since == 3000
    assert seen == [(i, i) for i in range(3000 - len(seen), 3000)]
    assert 500 <= len(seen) < 1500
    for number in range(2490, 3000, 17):  # on either side of where blocks end, and among the latest
        assert answer(journal, number, limit=2)["events"][0]["event"] == number


def test_an_answer_is_short_however_much_is_asked_for() -> None:
    """The loop answers nobody else meanwhile: 10,000 trials of 64 stages were 59 MB, and 0.3 s."""
    journal = EventLog()
    plan = " | ".join(f"core{place}: {place}-{place}" for place in range(200))
    for i in range(300):
        journal.write(Replanned(reason=f"{i}", plan=plan), "test")
    sizes, reasons, since = [], [], 0
    while (page := journal.since(since, 10_000))["events"]:
        sizes.append(len(encode_answer("1", page)))
        reasons += [event["reason"] for event in answer(journal, since, 10_000)["events"]]
        since = page["next"]
    assert reasons == [f"{i}" for i in range(300)]
    assert max(sizes) <= PAGE_BYTES + 1024
    assert len(sizes) < 10


def test_an_event_of_any_size_comes() -> None:
    journal = EventLog()
    for reason in ("short", "x" * 2 * PAGE_BYTES, "short too"):
        journal.write(Replanned(reason=reason, plan=""), "test")
    counts, since = [], 0
    while (page := journal.since(since, 100))["events"]:
        counts.append(len(page["events"]))
        since = page["next"]
    assert counts == [1, 1, 1]


def test_a_number_that_is_still_to_come_is_waited_for() -> None:
    assert answer(EventLog(), 5, 10) == {"events": [], "next": 5}


def test_an_event_has_its_kind_its_fields_and_what_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    journal = EventLog()
    with caplog.at_level(logging.INFO, "shisha_rt"):
        live = PlanLive(proposal="tuner 3", proposed_on="the tuner", epoch=2, plan="a: 0-1", reason="loaded")
        journal.write(live, "worker 1 is prepared")
    (event,) = answer(journal, 0, 10)["events"]
    assert event.pop("time_s") > 0
    fields = {"proposal": "tuner 3", "proposed_on": "the tuner", "epoch": 2, "plan": "a: 0-1", "reason": "loaded"}
    assert event == {"event": 0, "kind": "plan_live", **fields, "cause": "worker 1 is prepared"}
    text = "plan_live epoch=2 plan=a: 0-1 reason=loaded proposal=tuner 3 proposed_on=the tuner"
    assert caplog.messages == [f"{text} (worker 1 is prepared)"]


def test_an_event_is_one_line_of_the_log_whatever_a_client_writes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shisha_rt"):
        refused = PlanRefused(
            proposal="p", proposed_on="plan_set 1", epoch=None, plan="x\ny: 0-1", reason="not a place"
        )
        EventLog().write(refused, "plan_set 1")
    assert caplog.messages == [
        "plan_refused epoch=None plan=x y: 0-1 reason=not a place proposal=p proposed_on=plan_set 1 (plan_set 1)"
    ]
