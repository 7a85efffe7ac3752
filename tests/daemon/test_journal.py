"""Events are numbered, bounded, and polled without loss or repetition."""

from __future__ import annotations

import logging

import pytest

from shisha_rt.daemon import journal as module
from shisha_rt.daemon.journal import Journal
from shisha_rt.wire.journal import Draining, PlanLive, PlanRefused, WorkerStarted


def test_polling_page_by_page_gives_every_event_once() -> None:
    journal = Journal()
    for i in range(10):
        journal.write(Draining(in_flight=i), "test")
    seen, since = [], 0
    while True:
        page = journal.since(since, limit=3)
        if not page["events"]:
            break
        seen += [event["in_flight"] for event in page["events"]]
        since = page["next"]
    assert seen == list(range(10))
    assert since == 10
    journal.write(WorkerStarted(place="late", incarnation=1), "a late cause")
    assert [event["place"] for event in journal.since(since, 100)["events"]] == ["late"]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 4)
    journal = Journal()
    for i in range(10):
        journal.write(Draining(in_flight=i), "test")
    page = journal.since(0, 100)
    assert [event["in_flight"] for event in page["events"]] == [6, 7, 8, 9]
    assert [event["event"] for event in page["events"]] == [6, 7, 8, 9]
    assert page["next"] == 10


def test_a_number_that_is_still_to_come_is_waited_for() -> None:
    assert Journal().since(5, 10) == {"events": [], "next": 5}


def test_an_event_has_its_kind_its_fields_and_what_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    with caplog.at_level(logging.INFO, "shisha_rt"):
        live = PlanLive(proposal="tuner 3", proposed_on="the tuner", epoch=2, plan="a: 0-1", reason="loaded")
        journal.write(live, "worker 1 is prepared")
    (event,) = journal.since(0, 10)["events"]
    assert event.pop("time_s") > 0
    fields = {"proposal": "tuner 3", "proposed_on": "the tuner", "epoch": 2, "plan": "a: 0-1", "reason": "loaded"}
    assert event == {"event": 0, "kind": "plan_live", **fields, "cause": "worker 1 is prepared"}
    told = "plan_live epoch=2 plan=a: 0-1 reason=loaded proposal=tuner 3 proposed_on=the tuner"
    assert caplog.messages == [f"{told} (worker 1 is prepared)"]


def test_an_event_is_one_line_of_the_log_whatever_a_client_writes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shisha_rt"):
        refused = PlanRefused(
            proposal="p", proposed_on="plan_set 1", epoch=None, plan="x\ny: 0-1", reason="not a place"
        )
        Journal().write(refused, "plan_set 1")
    assert caplog.messages == [
        "plan_refused epoch=None plan=x y: 0-1 reason=not a place proposal=p proposed_on=plan_set 1 (plan_set 1)"
    ]
