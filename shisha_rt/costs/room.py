"""What a place must have room for: all weights of its stages, and the most bytes that are live at one of their layers.

The rule's one home, in three forms. `plan/verify.py` says it again on purpose: it is written apart from all planners.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shisha_rt.arrays import Floats


def held_bytes(weight_bytes: Iterable[int], live_bytes: Iterable[int]) -> int:
    """Bytes that are held by what has these weights, and these bytes live at one time or another."""
    return sum(weight_bytes) + max(live_bytes, default=0)


def held_up_to(weights_up_to_bytes: Floats, live_bytes: Floats) -> Floats:
    """(items,): bytes held by each run that begins with the first item, of its weights and what is live."""
    return weights_up_to_bytes + np.maximum.accumulate(live_bytes)


def held_within(members: Floats, weight_bytes: Floats, live_bytes: Floats) -> Floats:
    """(sets,): bytes held by each of the sets of items that `members` (sets, items) has as 1 or 0."""
    held: Floats = members @ weight_bytes + (members * live_bytes).max(axis=1, initial=0.0)
    return held
