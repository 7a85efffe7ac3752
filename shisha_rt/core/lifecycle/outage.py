"""The outage of a live plan whose workers keep dying: after a while, frames are refused instead of waiting for ever.

An outage begins when a worker's death leaves a stage of the live plan without any worker. It lasts until each stage has
a worker again.
"""

from __future__ import annotations

import math

from shisha_rt.core.lifecycle.epochs import Epochs
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.errors import Error


class Outage:
    """`refusal`: the error with which frames are answered; None unless the outage has become too long."""

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
        """When to look again, as the outage becomes too long; inf if more workers must die first, or it already is."""
        many = self._places.deaths >= self._deaths_before + self._policy.outage_deaths
        return self._began_s + self._policy.outage_s if many and self.refusal is None else math.inf

    def look(self, now_s: float) -> bool:
        """Let the outage begin, go on or end; return whether it becomes too long now. To be called after each death."""
        if not self.lasts and self._places.deaths == self._deaths_before:  # the common case, first for speed
            return False
        if self._epochs.can_run or self._epochs.newest is None:
            self.refusal, self._began_s, self._deaths_before = None, math.inf, self._places.deaths
            return False
        self._began_s = min(self._began_s, now_s)
        if now_s < self.wake_s:
            return False
        lasts_s, last = now_s - self._began_s, self._places.last_error
        self.refusal = Error.NO_WORKER, f"no worker has come up for {lasts_s:.0f} s; the last one, on {last}"
        return True
