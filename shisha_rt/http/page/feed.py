"""A feed: server-sent events for one page, of what is new in `Watching`.

They are `status` (the daemon's, with the values to draw), `history` (samples of throughput and latency), `journal`
(events, with their text; the id is where to resume) and `trouble` (the daemon does not answer). A feed stores only
the position up to which it has sent: a slow reader gets fewer statuses, and one that does not read at all is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.page.files import HEADERS
from shisha_rt.http.page.watching import Watching
from shisha_rt.protocol.exceptions import ShishaError

MOST_FEEDS: Final = 32
EVENTS_AT_ONCE: Final = 200
SILENCE_S: Final = 5.0
"""After so long without news something is sent again, so that a page knows that it is still connected."""
_SEND_WITHIN_S: Final = 20.0
_HEADERS: Final = (*HEADERS, (b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))


class Cursor:
    """Position of one feed. `last`: the id of the last journal event that the reader had, `INSTANCE:NUMBER`."""

    def __init__(self, watching: Watching, last: str = "") -> None:
        self._watching = watching
        self._instance, _, number = last.rpartition(":")
        self._next_event = int(number) if number.isdecimal() and len(number) < 20 else 0
        self._samples = 0
        self._history: object = None
        self._status = -1
        self._trouble: ShishaError | None = None

    def cut(self, *, quiet: bool = False) -> Iterator[bytes]:
        """Yield what is new, piece by piece. `quiet`: nothing was sent for long, so the status is sent again."""
        watching = self._watching
        trouble = watching.trouble
        if trouble is not None and (quiet or self._trouble is None or trouble.message != self._trouble.message):
            yield _event(b"trouble", msgspec.json.encode({"reason": trouble.message, "kind": trouble.kind}))
        self._trouble = trouble
        if trouble is None and watching.statuses and (quiet or self._status != watching.statuses):
            self._status = watching.statuses
            yield _event(b"status", watching.status)
        history = watching.history
        is_new = history is not self._history
        samples = history.since(0 if is_new else self._samples)
        self._history, self._samples = history, history.number
        if samples or is_new:
            yield _event(b"history", msgspec.json.encode({"new": is_new, "samples": samples}))
        if watching.instance is not None:
            yield from self._journal(watching.instance)

    def _journal(self, instance: str) -> Iterator[bytes]:
        is_new = instance != self._instance
        if is_new:
            self._instance, self._next_event = instance, 0
        events = [(number, event) for number, event in self._watching.events if number >= self._next_event]
        if is_new and not events:
            yield _event(b"journal", b'{"new":true,"events":[]}')
        for start in range(0, len(events), EVENTS_AT_ONCE):
            some = events[start : start + EVENTS_AT_ONCE]
            self._next_event = some[-1][0] + 1
            new = b"true" if is_new and not start else b"false"
            data = b'{"new":%b,"events":[%b]}' % (new, b",".join(event for _, event in some))
            yield _event(b"journal", data, f"{instance}:{self._next_event}".encode())


def _event(name: bytes, data: bytes, number: bytes = b"") -> bytes:
    """Format an event. `data` is JSON without line breaks, so it is one line."""
    return b"%bevent: %b\ndata: %b\n\n" % (b"id: %b\n" % number if number else b"", name, data)


async def answer_feed(
    exchange: Exchange, watching: Watching, last: str, *until: asyncio.Event, lasts_s: float | None = None
) -> None:
    """Answer without an end: until the reader disconnects, or takes nothing for `_SEND_WITHIN_S`, or any of `until` is
    set, or `lasts_s` have passed, if that is given.

    A page reconnects by itself, and then its reader's access is checked again.
    """
    leaving = [asyncio.ensure_future(exchange.lost()), *(asyncio.ensure_future(of.wait()) for of in until)]
    sending = asyncio.ensure_future(_send(exchange, watching, Cursor(watching, last)))
    watching.opened()
    try:
        done, _ = await asyncio.wait([sending, *leaving], timeout=lasts_s, return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and sending.exception() is not None:
            exchange.abort()  # else it would hold its connection, and unsent data in memory, indefinitely
    finally:
        watching.closed()
        for task in (sending, *leaving):
            task.cancel()
        await asyncio.wait([sending, *leaving])
    if not done or any(event.is_set() for event in until):
        await exchange.finish()


async def _send(exchange: Exchange, watching: Watching, cursor: Cursor) -> None:
    async def put(piece: bytes) -> None:
        async with asyncio.timeout(_SEND_WITHIN_S):
            await exchange.send(piece)

    await asyncio.wait_for(exchange.start(200, _HEADERS), _SEND_WITHIN_S)
    await put(b"retry: 1000\n\n")
    said_s = asyncio.get_running_loop().time()
    while True:
        now_s, news = asyncio.get_running_loop().time(), watching.news
        for piece in cursor.cut(quiet=now_s - said_s >= SILENCE_S):
            await put(piece)
            said_s = now_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                await news.wait()
