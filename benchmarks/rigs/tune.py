"""A daemon that is let tune itself, and then left alone."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.journal import events_since
from shisha_rt.client import Client

_BURST_S: Final = 2.0
_TIMEOUT_S: Final = 240.0


def tune(control: Client, client: ChildProcess) -> None:
    """Send frames until the search has ended and its best plan is live; the tuner tries nothing from then on."""
    until_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until_s:
        client.ask(seconds=_BURST_S)
        runs = [event["kind"] for event in events_since(control) if event["kind"] in ("tuning_began", "tuning_ended")]
        if runs[-1:] == ["tuning_ended"] and control.call("tuner_get")["tuner"]["state"] != "settling":
            control.call("tuner_set", pause=True)
            return
    raise RuntimeError(f"the tuner has not settled within {_TIMEOUT_S:g} s")
