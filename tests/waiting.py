"""Waiting for an outside fact that nobody announces."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 100.0
"""How long anything may take on a slow, busy machine before it counts as never happening."""


def until(
    true: Callable[[], object],
    what: str = "",
    every_s: float = 0.01,
    within_s: float = PATIENCE_S,
    meanwhile: Callable[[], object] = lambda: None,
    otherwise: Callable[[], str] = lambda: "",
) -> None:
    """Wait, with a bound that no healthy run comes near; `meanwhile` moves things on, `otherwise` tells why not."""
    end_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end_s, f"not within {within_s:g} s: {what}; {otherwise()}"
        meanwhile()
        time.sleep(every_s)
