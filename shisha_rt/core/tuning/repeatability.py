"""How well measurements of the same stage repeat on this machine.

A host drifts over seconds, as other work comes and goes in its caches and on its cores. A window shorter than that
cannot see the drift, so its own spread would promise more precision than there is. But a move leaves most stages as
they were, and a stage of the same layers on the same place should take the same time as before: bands allow for the
differences seen between measurements of the same stage.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import replace
from statistics import NormalDist
from typing import Final

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage

ASSUMED: Final = 0.02
"""Assumed relative difference of two measurements of one stage, until enough have been seen."""

_ASSUMED_COUNT: Final = 8
_KEPT: Final = 96  # differences of two measurements
_COMPARED: Final = 6  # earlier measurements of a stage to compare with: with one, slower drift would go unseen
_MATTERS: Final = 0.5  # of the bottleneck: how badly shorter stages repeat does not matter

# So the largest fifth of the differences, measured while something else ran, does not count.
_QUANTILE: Final = 0.8
_TO_95_IN_100: Final = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf((1 + _QUANTILE) / 2)


class Repeatability:
    """Repeatability of measurements on one machine, whatever the plans."""

    def __init__(self) -> None:
        self._differences = deque([ASSUMED] * _ASSUMED_COUNT, _KEPT)
        self._seen_s: defaultdict[Stage, deque[float]] = defaultdict(lambda: deque(maxlen=_COMPARED))

    @property
    def band(self) -> float:
        """Relative difference that 95 in 100 pairs of measurements of one stage do not exceed."""
        ascending = sorted(self._differences)
        return _TO_95_IN_100 * ascending[math.ceil(_QUANTILE * len(ascending)) - 1]

    def widen(self, measurement: Measurement) -> Measurement:
        """The same measurement with a band that allows for drift as well."""
        return replace(measurement, band=max(measurement.band, self.band))

    def observe(self, plan: Plan, measurement: Measurement) -> None:
        """Learn from the stages of `plan` that have been measured before."""
        if not measurement.can_run:
            return
        for stage, service_s in zip(plan.stages, measurement.service_s, strict=True):
            if service_s < _MATTERS * measurement.bottleneck_s or service_s == 0:
                continue
            self._differences.extend(abs(math.log(service_s / before_s)) for before_s in self._seen_s[stage])
            self._seen_s[stage].append(service_s)

    def machine_changed(self) -> None:
        """Forget what stages took; how well measurements repeat may still hold."""
        self._seen_s.clear()
