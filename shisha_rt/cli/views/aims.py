"""What a daemon's plans are chosen for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def aim_in_words(tuner: Mapping[str, Any]) -> str:
    """Behind a strategy; empty for throughput, unless that is what the load asks for now."""
    serves = tuner["serves"]
    if tuner["objective"] != "auto":
        return f" for {serves}" if serves == "latency" else ""
    used = tuner["utilisation"]
    return f" for {serves}, as the load asks" if used is None else f" for {serves}, at a load of {used:.0%}"
