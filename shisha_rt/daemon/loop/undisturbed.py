"""What the interpreter does beside the loop is kept from making it wait.

Garbage collection looks through everything there is, time and again: the model's graph and all that was imported take
it tens of milliseconds. And a thread that is at work (the metrics page of very many places takes long to write) keeps
the interpreter for a switch interval each time that the loop has waited for anything: 5 ms, if nobody says otherwise.
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
    """What is there at the beginning is no garbage until the end, and threads hand the interpreter over soon."""
    gc.collect()
    gc.freeze()
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
        gc.unfreeze()
