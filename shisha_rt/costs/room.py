"""The memory that a place needs: all weights of its stages, and the most bytes that are live at one of their layers.

The rule's one home, in three forms. `plan/verify.py` repeats it on purpose, as it is independent of all planners.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shisha_rt.arrays import Floats


def held_bytes(weight_bytes: Iterable[int], live_bytes: Iterable[int]) -> int:
    """Bytes held for layers with these weights and these live bytes, of which only one layer's are live at a time."""
    return sum(weight_bytes) + max(live_bytes, default=0)


def held_up_to(weights_up_to_bytes: Floats, live_bytes: Floats) -> Floats:
    """(items,): bytes held for each run of items that begins with the first one."""
    return weights_up_to_bytes + np.maximum.accumulate(live_bytes)


def held_within(members: Floats, weight_bytes: Floats, live_bytes: Floats) -> Floats:
    """(sets,): bytes held for each set of items; `members` (sets, items) is 1 for the items of a set, else 0."""
    held: Floats = members @ weight_bytes + (members * live_bytes).max(axis=1, initial=0.0)
    return held
