"""The feed: what is new to a reader, once, and nothing that waits for one who does not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.page.feed import Cursor, answer_feed
from shisha_rt.http.page.watching import Watching
from tests.cli.statuses import FORK, FORK_S, status_of
from tests.http.page.told import SEND, Told, watching_of


@pytest.fixture
def daemon() -> Told:
    return Told(status_of(FORK, FORK_S))


@pytest.fixture(autouse=True)
def asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.http.page.watching._SHARE", 1.0)
    monkeypatch.setattr("shisha_rt.http.page.watching._LEAST_S", 0.001)


async def looked(watching: Watching, daemon: Told) -> None:
    """Until the daemon has been asked twice more."""
    before = daemon.asked
    while daemon.asked < before + 2:
        await asyncio.sleep(0.001)


def parsed(pieces: Iterable[bytes]) -> list[tuple[str, Any, str]]:
    """Name, data and id of each event, as a browser reads them."""
    events = []
    for text in b"".join(pieces).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        if "event" in fields:
            events.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return events


def numbers(events: list[tuple[str, Any, str]]) -> list[int]:
    return [event["event"] for name, data, _ in events if name == "journal" for event in data["events"]]


def test_each_reader_gets_all_that_is_new_to_it(daemon: Told) -> None:
    async def run() -> None:
        watching = watching_of(daemon)
        watching.opened()
        task = asyncio.create_task(watching.run())
        daemon.happened(450)
        await looked(watching, daemon)
        cursor = Cursor(watching)
        events = parsed(cursor.cut())
        assert [name for name, *_ in events if name != "journal"] == ["status", "history"]
        (status,) = (data for name, data, _ in events if name == "status")
        assert status["status"]["plan"] == daemon.status["plan"]
        assert [stage["after"] for stage in status["drawn"]["stages"]] == ["input", "after 0", "after 0", "after 1, 2"]
        assert status["drawn"]["send"] == SEND
        assert numbers(events) == list(range(450))
        last = events[-1][2]
        assert parsed(cursor.cut()) == []
        daemon.happened(3)
        await looked(watching, daemon)
        assert numbers(parsed(cursor.cut())) == [450, 451, 452]
        resumed = parsed(Cursor(watching, last).cut())
        assert numbers(resumed) == [450, 451, 452]
        assert [data["new"] for name, data, _ in resumed if name == "journal"] == [False]
        for wrong in ("", "x", ":", "other:7", f"{watching.instance}:-1", f"{watching.instance}:{'9' * 5000}"):
            parsed(Cursor(watching, wrong).cut())
        task.cancel()

    asyncio.run(run())


def test_a_status_is_asked_for_only_while_somebody_watches_and_sent_only_when_it_says_more(daemon: Told) -> None:
    async def run() -> None:
        watching = watching_of(daemon)
        task = asyncio.create_task(watching.run())
        await asyncio.sleep(0.02)
        assert daemon.asked == 0
        watching.opened()
        await looked(watching, daemon)
        cursor = Cursor(watching)
        assert list(cursor.cut())
        daemon.status["uptime_s"] += 1
        await looked(watching, daemon)
        assert parsed(cursor.cut()) == []
        assert [name for name, *_ in parsed(cursor.cut(quiet=True))] == ["status"]
        daemon.status["frames"]["in_flight"] = 7
        await looked(watching, daemon)
        assert [name for name, *_ in parsed(cursor.cut())] == ["status"]
        task.cancel()

    asyncio.run(run())


def test_another_daemon_begins_anew_and_a_silent_one_is_told_of(daemon: Told) -> None:
    async def run() -> None:
        watching = watching_of(daemon)
        watching.opened()
        task = asyncio.create_task(watching.run())
        daemon.happened(5)
        await looked(watching, daemon)
        cursor = Cursor(watching)
        list(cursor.cut())
        daemon.is_there = False
        while watching.trouble is None:
            await asyncio.sleep(0.001)
        assert parsed(cursor.cut()) == [("trouble", {"reason": "nobody is there", "kind": ""}, "")]
        daemon.is_there, daemon.events = True, []
        daemon.happened(2)
        daemon.status["instance"] = "next"
        await looked(watching, daemon)
        events = parsed(cursor.cut())
        assert numbers(events) == [0, 1]
        assert all(data["new"] for name, data, _ in events if name != "status")
        task.cancel()

    asyncio.run(run())


class Reader:
    """Who asks for a feed, as far as the feed sees it. `reads`: or takes nothing of it."""

    def __init__(self, *, reads: bool = True) -> None:
        self.began: list[int] = []
        self.ended = self.is_cut_off = False
        self.gone = asyncio.Event()
        self._reads = reads

    async def start(self, status: int, _: object) -> None:
        self.began.append(status)

    async def send(self, _: bytes) -> None:
        if not self._reads:
            await asyncio.Event().wait()

    async def finish(self) -> None:
        self.ended = True

    async def lost(self) -> None:
        await self.gone.wait()

    def abort(self) -> None:
        self.is_cut_off = True


def test_whoever_does_not_read_is_cut_off(daemon: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.http.page.feed._SEND_WITHIN_S", 0.01)

    async def run() -> None:
        watching = watching_of(daemon)

        reader = Reader(reads=False)
        feed = answer_feed(cast("Exchange", reader), watching, "", asyncio.Event())
        await asyncio.wait_for(feed, 30)
        assert reader.is_cut_off
        assert watching.feeds == 0

    asyncio.run(run())


@pytest.mark.parametrize("which", ["its reader", "the process", "the users"])
def test_a_feed_ends_with_its_reader_and_with_the_process_and_when_others_may_come(daemon: Told, which: str) -> None:
    async def run() -> None:
        watching, ending, changed = watching_of(daemon), asyncio.Event(), asyncio.Event()
        reader = Reader()
        feed = asyncio.create_task(answer_feed(cast("Exchange", reader), watching, "", ending, changed))
        while not reader.began:
            await asyncio.sleep(0)
        assert watching.feeds == 1
        {"its reader": reader.gone, "the process": ending, "the users": changed}[which].set()
        await asyncio.wait_for(feed, 30)
        assert watching.feeds == 0
        assert (reader.began, reader.ended) == ([200], which != "its reader")

    asyncio.run(run())
