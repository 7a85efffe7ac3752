"""The daemon's events, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shisha_rt.client import Client

Event = Mapping[str, Any]


def events_since(control: Client, since: int = 0) -> list[Event]:
    """Yield all events from number `since` on, over several pages."""
    found: list[Event] = []
    while True:
        page = control.events(since=since)
        if not page["events"]:
            return found
        found += page["events"]
        since = page["next"]


def next_event(control: Client) -> int:
    """The number that the daemon's next event will have."""
    found = events_since(control)
    return found[-1]["event"] + 1 if found else 0
