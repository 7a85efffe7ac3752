"""Where a daemon listens, and clients look for it, unless they are told otherwise. Shell."""

from __future__ import annotations

import os
from typing import Final

ENDPOINT: Final = "tcp://127.0.0.1:5555"
_VARIABLE: Final = "SHISHA_ENDPOINT"


def default_endpoint() -> str:
    """Endpoint of the environment's SHISHA_ENDPOINT; where that is not set, or empty, `ENDPOINT`."""
    return os.environ.get(_VARIABLE) or ENDPOINT


def submit_command(endpoint: str, model: str | None = None) -> str:
    """What sends a thousand frames to a daemon that listens there; `model`: one of several."""
    at = "" if endpoint == default_endpoint() else f" --endpoint {endpoint}"
    return f"shisha-rt submit{at}{f' --model {model}' if model else ''} --frames 1000"
