"""What a plan that is watched is known to take, and for how many windows on end it has not."""

from __future__ import annotations

from dataclasses import dataclass

from shisha_rt.core.tuning.drift import WINDOWS_TO_LEAVE, leaving_stage
from shisha_rt.plan.measurement import Measurement


@dataclass(slots=True)
class Baseline:
    """`measured` is None until a first window says what the plan takes."""

    measured: Measurement | None = None
    outside: int = 0

    def left_by(self, measurement: Measurement) -> int | None:
        """The stage (index) that has left its band for good, by a window of the plan; None: none has."""
        if self.measured is None or len(self.measured.service_s) != len(measurement.service_s):
            self.measured = measurement
            return None
        if not measurement.is_throttled_like(self.measured):  # what has changed is the quota, or who else uses it up
            return None
        stage = leaving_stage(self.measured, measurement)
        self.outside = self.outside + 1 if stage is not None else 0
        return stage if self.outside >= WINDOWS_TO_LEAVE else None
