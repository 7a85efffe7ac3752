"""The objective of a daemon's plans, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def aim_in_words(tuner: Mapping[str, Any]) -> str:
    """Words that follow the strategy's name; empty for throughput, unless the objective follows the load.

    Without a tuner nothing follows the load, and until a plan has been measured the load is not known.
    """
    serves = tuner["serves"]
    if tuner["objective"] != "auto" or tuner["state"] == "off":
        return f" for {serves}" if serves == "latency" else ""
    used = tuner["utilisation"]
    return f" for {serves}, later as the load asks" if used is None else f" for {serves}, at a load of {used:.0%}"
