"""Letting a daemon tune itself, and then stopping its tuner."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.journal import events_since
from shisha_rt.client import Client

_BURST_S: Final = 2.0
_TIMEOUT_S: Final = 240.0
_CALM_BURSTS: Final = 3
_BEGINNINGS: Final = "tuning_began", "comparison_began"


def settle(control: Client, client: ChildProcess, **order: object) -> None:
    """Send frames until tuning has ended and the best plan is live. `order`: further fields of each burst's order.

    A search may begin some seconds after candidates were compared, so the tuner must be idle for several bursts.
    """
    until_s = time.monotonic() + _TIMEOUT_S
    calm, began_before = 0, -1
    while time.monotonic() < until_s:
        client.ask(seconds=_BURST_S, **order)
        began = sum(event["kind"] in _BEGINNINGS for event in events_since(control))
        watches = control.call("tuner_get")["tuner"]["state"] == "watching"
        calm = calm + 1 if watches and began == began_before else 0
        began_before = began
        if calm >= _CALM_BURSTS:
            return
    raise RuntimeError(f"the tuner has not settled within {_TIMEOUT_S:g} s")


def tune(control: Client, client: ChildProcess) -> None:
    """As `settle`, then pause the tuner."""
    settle(control, client)
    control.call("tuner_set", pause=True)
