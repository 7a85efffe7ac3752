"""Events are numbered, bounded, and polled without loss or repetition."""

from __future__ import annotations

import pytest

from shisha_rt.daemon import journal as module
from shisha_rt.daemon.journal import Journal


def test_polling_page_by_page_gives_every_event_once() -> None:
    journal = Journal()
    for i in range(10):
        journal.write("thing", value=i)
    seen, since = [], 0
    while True:
        page = journal.since(since, limit=3)
        if not page["events"]:
            break
        seen += [event["value"] for event in page["events"]]
        since = page["next"]
    assert seen == list(range(10))
    assert since == 10
    journal.write("late", value=10)
    assert [event["kind"] for event in journal.since(since, 100)["events"]] == ["late"]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 4)
    journal = Journal()
    for i in range(10):
        journal.write("thing", value=i)
    page = journal.since(0, 100)
    assert [event["value"] for event in page["events"]] == [6, 7, 8, 9]
    assert [event["event"] for event in page["events"]] == [6, 7, 8, 9]
    assert page["next"] == 10


def test_a_number_that_is_still_to_come_is_waited_for() -> None:
    assert Journal().since(5, 10) == {"events": [], "next": 5}
