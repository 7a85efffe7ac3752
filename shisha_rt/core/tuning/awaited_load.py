"""Whether frames come in a way that plans can be compared by: queued for throughput, one at a time for latency."""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.core.tuning.duel import KEPT_OUT, WAITED
from shisha_rt.core.tuning.events import FrameAlone, FrameAnswered
from shisha_rt.plan.rate import Objective

_SEEN: Final = 8
"""So many answers in a row under an objective's load begin a comparison for that objective."""
_BACKLOG_S: Final = 0.5
"""For throughput they must span so much time: frames that come at random wait for a moment at any load."""
_PATIENCE_ANSWERS: Final = 100
_PATIENCE_S: Final = 5.0
"""An awaited load that has not come after so many answers, and so many seconds, is *missed*."""
_GAP_S: Final = 2.0
"""A longer pause between answers ends the flow of frames (`flows_s`)."""
_REST_S: Final = 10.0
_LONGEST_REST_S: Final = 600.0
"""Pause before a comparison whose load went away is resumed; doubled each time that nothing was judged in between."""


class AwaitedLoad:
    """Counts the answers since the last `restart`, by the load that they were given under.

    The load for throughput is a backlog, by the same rule as in a comparison's windows (`duel`): other frames wait, or
    a target keeps some out.
    """

    def __init__(self) -> None:
        self._kept_out = 0
        self._flows_since_s = self._last_s = -math.inf
        self.restart()

    def restart(self) -> None:
        self._alone = self._answers = 0
        self._since_s = math.inf
        self._end_backlog()

    def _end_backlog(self) -> None:
        self._queued = self._waited = self._lately_kept_out = 0
        self._backlog_since_s = math.inf

    @property
    def is_seen(self) -> bool:
        """Whether the newest answers were given under the load of an objective."""
        return bool(self._queued or self._alone)

    def count(self, event: FrameAnswered | FrameAlone, teams: int, now_s: float) -> None:
        """Count an answer. Frames wait if more are in flight than the plan has `teams`."""
        if now_s - self._last_s > _GAP_S:
            self._flows_since_s = now_s
        self._last_s = now_s
        self._answers += 1
        self._since_s = min(self._since_s, now_s)
        if isinstance(event, FrameAlone):
            self._alone += 1
            self._end_backlog()
            return
        self._backlog_since_s = min(self._backlog_since_s, now_s)
        self._queued += 1
        self._waited += event.in_flight > teams
        self._lately_kept_out += event.kept_out - self._kept_out
        self._kept_out = event.kept_out
        if self._waited >= WAITED * self._queued or self._lately_kept_out >= KEPT_OUT * self._queued:
            self._alone = 0
        else:
            self._end_backlog()

    def has_come(self, objective: Objective) -> bool:
        if objective == "latency":
            return self._alone >= _SEEN
        return self._queued >= _SEEN and self._last_s - self._backlog_since_s >= _BACKLOG_S

    def flows_s(self, now_s: float) -> float:
        """For how long answers have been counted without a pause."""
        return now_s - self._flows_since_s

    def is_missed(self, now_s: float) -> bool:
        return self._answers >= _PATIENCE_ANSWERS and now_s - self._since_s >= _PATIENCE_S


class Pauses:
    """Pauses between comparisons whose load went away, for each objective."""

    def __init__(self) -> None:
        self._last_s: dict[Objective, float] = {}
        self._until_s: dict[Objective, float] = {}

    def is_on(self, objective: Objective, now_s: float) -> bool:
        return now_s < self._until_s.get(objective, -math.inf)

    def begin(self, objective: Objective, now_s: float) -> None:
        """Begin a pause, twice as long as the last one."""
        rest_s = min(2 * self._last_s.get(objective, _REST_S / 2), _LONGEST_REST_S)
        self._last_s[objective], self._until_s[objective] = rest_s, now_s + rest_s

    def shorten(self, objective: Objective) -> None:
        """Make the next pause for `objective` a short one, as a plan has been judged since the last."""
        self._last_s.pop(objective, None)

    def forget(self) -> None:
        """End all pauses; the next one is short again."""
        self._last_s.clear()
        self._until_s.clear()
