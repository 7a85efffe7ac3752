"""Where a daemon listens, and clients look for it, unless they are told otherwise. Shell."""

from __future__ import annotations

import os
from typing import Final

ENDPOINT: Final = "tcp://127.0.0.1:5555"
_VARIABLE: Final = "SHISHA_ENDPOINT"


def default_endpoint() -> str:
    """Endpoint of the environment's SHISHA_ENDPOINT; where that is not set, or empty, `ENDPOINT`."""
    return os.environ.get(_VARIABLE) or ENDPOINT
