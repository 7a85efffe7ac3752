"""Whether frames can be computed at all: if workers die for so long that none can be, frames do not wait for ever.

An outage begins when a worker dies and the live plan has a stage without any, and lasts until each has one again.
"""

from __future__ import annotations

import math

from shisha_rt.core.lifecycle.epochs import Epochs
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.errors import Error


class Outage:
    """`refusal`: what frames are answered with; None unless the outage has become too long."""

    def __init__(self, places: Places, epochs: Epochs, policy: Policy) -> None:
        self.refusal: tuple[Error, str] | None = None
        self._places = places
        self._epochs = epochs
        self._policy = policy
        self._began_s = math.inf
        self._deaths_before = 0

    @property
    def lasts(self) -> bool:
        return self._began_s < math.inf

    @property
    def wake_s(self) -> float:
        """When the outage becomes too long; inf if more workers must die first, as each death is looked at."""
        many = self._places.deaths >= self._deaths_before + self._policy.outage_deaths
        return self._began_s + self._policy.outage_s if many and self.refusal is None else math.inf

    def look(self, now: float) -> bool:
        """Whether the outage becomes too long now."""
        if not self.lasts and self._places.deaths == self._deaths_before:
            return False  # nearly always
        if self._epochs.can_run or self._epochs.newest is None:
            self.refusal, self._began_s, self._deaths_before = None, math.inf, self._places.deaths
            return False
        self._began_s = min(self._began_s, now)
        if now < self.wake_s:
            return False
        lasts_s, last = now - self._began_s, self._places.last_error
        self.refusal = Error.NO_WORKER, f"no worker has come up for {lasts_s:.0f} s; the last one, on {last}"
        return True
