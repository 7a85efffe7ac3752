"""When the live plan no longer takes what it was measured to take: the machine has changed, or what else runs on it."""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.plan.measurement import Measurement

LEAVING_FACTOR: Final = 1.0
LEAVING_FLOOR: Final = 0.05
WINDOWS_TO_LEAVE: Final = 3
"""A stage has left its band when it was outside it, by these measures, for this many windows on end."""


def leaving_stage(baseline: Measurement, found: Measurement) -> int | None:
    """The stage whose time is furthest outside its band, if any is: beyond the noise of both, and 5%.

    Each band is for a difference of two, so their root sum of squares is 1.4 times what 95 in 100 stay within.
    Demanding more would miss a busy process on a core: it makes a stage half as slow again, and its noise, too.
    """
    noise_s = math.hypot(baseline.band * baseline.bottleneck_s, found.band * found.bottleneck_s)
    excess = [
        abs(now_s - before_s) - max(LEAVING_FACTOR * noise_s, LEAVING_FLOOR * before_s)
        for before_s, now_s in zip(baseline.service_s, found.service_s, strict=True)
    ]
    worst = max(range(len(excess)), key=excess.__getitem__)
    return worst if excess[worst] > 0 else None
