"""What a control connection asks of a daemon: its events, its live plan, its tuner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any, Final

from benchmarks.rigs.child_process import ChildProcess
from shisha_rt.client import Client, plan_of
from shisha_rt.errors import Failure
from shisha_rt.plan.plan import Plan

_BURST_S: Final = 2.0
_TIMEOUT_S: Final = 240.0
_CALM_BURSTS: Final = 3
_BEGINNINGS: Final = "tuning_began", "comparison_began"

Event = Mapping[str, Any]


def events_since(control: Client, since: int = 0) -> list[Event]:
    """All events from number `since` on, over several pages."""
    events: list[Event] = []
    while (page := control.events(since=since))["events"]:
        events += page["events"]
        since = page["next"]
    return events


def next_event(control: Client) -> int:
    """The number that the daemon's next event will have."""
    events = events_since(control)
    return events[-1]["event"] + 1 if events else 0


def live_plan(control: Client) -> Plan:
    return plan_of(control.plan()["stages"])


def set_live(control: Client, plan: Plan, attempts: int = 1) -> int:
    """Set a plan; return its epoch. Raises Failure if it is not live after `attempts`: emulated places may refuse it
    when the host is busy.
    """
    for _ in range(attempts):
        settled = control.set_plan(plan)
        if settled["outcome"] == "live":
            return int(settled["epoch"])
    raise Failure(f"{plan} is {settled['outcome']}: {settled['reason']}")


def is_watching(control: Client) -> bool:
    """Whether the tuner only watches: it neither searches nor compares plans."""
    return bool(control.call("tuner_get")["tuner"]["state"] == "watching")


def settle(control: Client, client: ChildProcess, **order: object) -> None:
    """Send frames until tuning has ended and the best plan is live. `order`: further fields of each burst's order.

    A search may begin some seconds after candidates were compared, so the tuner must be idle for several bursts. Raises
    Failure if it is not within `_TIMEOUT_S`.
    """
    until_s = time.monotonic() + _TIMEOUT_S
    calm, began_before = 0, -1
    while time.monotonic() < until_s:
        client.ask(seconds=_BURST_S, **order)
        began = sum(event["kind"] in _BEGINNINGS for event in events_since(control))
        calm = calm + 1 if is_watching(control) and began == began_before else 0
        began_before = began
        if calm >= _CALM_BURSTS:
            return
    raise Failure(f"the tuner has not settled within {_TIMEOUT_S:g} s: expected a host that does nothing else")


def tune(control: Client, client: ChildProcess, *, quick: bool = False, **order: object) -> None:
    """As `settle`, then pause the tuner. `quick`: with what is live by then, as no result is kept."""
    with suppress(Failure) if quick else nullcontext():
        settle(control, client, **order)
    control.call("tuner_set", pause=True)
