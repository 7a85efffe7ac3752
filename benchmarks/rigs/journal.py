"""What a daemon's journal has, however many answers it comes in."""

from __future__ import annotations

from shisha_rt.client import Client
from shisha_rt.wire.conversation import Fields


def every_event(client: Client, since: int = 0) -> list[Fields]:
    """Those from number `since` on, oldest first."""
    found: list[Fields] = []
    while (page := client.events(since))["events"]:
        found += page["events"]
        since = page["next"]
    return found
