"""Keeps garbage collection and threads from delaying the loop.

Garbage collection visits all objects again and again: with the model's graph and all imports that takes tens of
milliseconds. And a busy thread (the metrics page of very many places takes long to write) keeps the interpreter for a
switch interval, 5 ms by default, each time that the loop returns from a wait.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Final

_SWITCH_S: Final = 0.0005


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Until the end, exempt all objects that exist now from garbage collection, and shorten the switch interval."""
    gc.collect()
    gc.freeze()
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
        gc.unfreeze()
