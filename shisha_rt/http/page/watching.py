"""The daemon as watched for all feeds: its counters each second, its status and events while a feed is open.

While a daemon answers this, its loop answers nobody else. So a status, which is long if there are many stages, is asked
for only while a feed is open, and as rarely as keeps it under a hundredth of the daemon's time, but at least every 4 s.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shisha_rt.client import AsyncClient
from shisha_rt.http.page.drawn import drawn, event_line
from shisha_rt.http.page.history import History, Reading
from shisha_rt.protocol.exceptions import ShishaError

MOST_EVENTS: Final = 1000
"""How many of the daemon's last events are kept here."""

_COUNT_EVERY_S: Final = 1.0
_LEAST_S: Final = 0.5
_MOST_S: Final = 4.0
_SHARE: Final = 0.01  # of the daemon's time, for statuses
_PATIENCE_S: Final = 5.0


class Watching:
    """What is known of the daemon.

    `status`: the last status as JSON, with the values to draw. `statuses`: how many different ones there have been.
    `events`: number and JSON of each event, of the daemon `instance`. `trouble`: the error instead of the daemon's
    answer, or None. `ended`: set when the model is known no longer. `send`: the command that sends frames, which the
    page shows. `feeds`: how many are open. `news`: set when the next news come.
    """

    def __init__(self, client: AsyncClient, send: str) -> None:
        self.history = History()
        self.status = b""
        self.statuses = 0
        self.events: deque[tuple[int, bytes]] = deque(maxlen=MOST_EVENTS)
        self.instance: str | None = None
        self.trouble: ShishaError | None = None
        self.ended = asyncio.Event()
        self._client = client
        self._send = send
        self._said: dict[str, Any] = {}
        self._next_event = 0
        self.feeds = 0
        self._wanted = asyncio.Event()
        self.news = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count())
            tasks.create_task(self._look())

    def opened(self) -> None:
        """Count one more open feed, for which statuses are needed."""
        self.feeds += 1
        self._wanted.set()

    def closed(self) -> None:
        self.feeds -= 1
        if not self.feeds:
            self._wanted.clear()

    async def _count(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                statistics = await self._client.call("model_statistics", timeout_s=_PATIENCE_S)
            except ShishaError as error:
                self.history.missed(time.time())
                self._tell(error)
            else:
                self.history.saw(Reading.of(time.time(), time.monotonic(), statistics))
                self._tell(None)
            await asyncio.sleep(max(0.05, _COUNT_EVERY_S - (time.monotonic() - began_s)))

    async def _look(self) -> None:
        while True:
            await self._wanted.wait()
            began_s = time.monotonic()
            try:
                status = (await self._client.call("status", timeout_s=_PATIENCE_S))["status"]
                took_s = time.monotonic() - began_s
                await self._read(status)
            except ShishaError as error:
                self._tell(error)
                took_s = 0.0
            await asyncio.sleep(min(_MOST_S, max(_LEAST_S, took_s / _SHARE)))

    async def _read(self, status: Mapping[str, Any]) -> None:
        if status["instance"] != self.instance:
            if self.instance is not None:
                self.history = History()
            self.instance = status["instance"]
            self.events.clear()
            self._next_event = max(0, status["next_event"] - MOST_EVENTS)
        while self._next_event < status["next_event"]:
            page = await self._client.call("events", since=self._next_event, timeout_s=_PATIENCE_S)
            if not page["events"]:
                break
            self.events.extend((event["event"], msgspec.json.encode(event_line(event))) for event in page["events"])
            self._next_event = page["next"]
        said = {**status, "uptime_s": 0}
        if said != self._said:
            self._said = said
            self.status = msgspec.json.encode({"status": status, "drawn": drawn(status) | {"send": self._send}})
            self.statuses += 1
        self._tell(None)

    def _tell(self, trouble: ShishaError | None) -> None:
        self.trouble = trouble
        self.news.set()
        self.news = asyncio.Event()
