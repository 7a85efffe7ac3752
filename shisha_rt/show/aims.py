"""What a daemon's plans are chosen for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def aim_in_words(tuner: Mapping[str, Any]) -> str:
    """Behind a strategy; empty for throughput, unless that is what the load asks for now.

    Without a tuner nothing follows the load, and as long as no plan has been measured nobody knows it.
    """
    serves = tuner["serves"]
    if tuner["objective"] != "auto" or tuner["state"] == "off":
        return f" for {serves}" if serves == "latency" else ""
    used = tuner["utilisation"]
    return f" for {serves}, later as the load asks" if used is None else f" for {serves}, at a load of {used:.0%}"
