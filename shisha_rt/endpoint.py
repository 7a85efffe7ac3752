"""The default address at which a daemon listens, and at which clients look for it. Shell."""

from __future__ import annotations

import os
from typing import Final

ENDPOINT: Final = "tcp://127.0.0.1:5555"
_VARIABLE: Final = "SHISHA_ENDPOINT"


def default_endpoint() -> str:
    """The environment's SHISHA_ENDPOINT, or `ENDPOINT` if that is not set or empty."""
    return os.environ.get(_VARIABLE) or ENDPOINT


def submit_command(endpoint: str, model: str | None = None) -> str:
    """The command that sends a thousand frames to the daemon at `endpoint`; `model`: to this one of several."""
    at = "" if endpoint == default_endpoint() else f" --endpoint {endpoint}"
    return f"shisha-rt submit{at}{f' --model {model}' if model else ''} --frames 1000"
