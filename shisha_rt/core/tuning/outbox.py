"""What a planning core has in hand: the time of the event that it handles, and what it has decided so far."""

from __future__ import annotations

from shisha_rt.core.event_log import Record
from shisha_rt.core.tuning.instructions import Decision, Write


class TuningOutbox:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._number = 0
        self._decided: list[Decision] = []

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def decide(self, decision: Decision) -> None:
        self._decided.append(decision)

    def write(self, record: Record) -> None:
        self._decided.append(Write(record))

    def take(self) -> list[Decision]:
        decided, self._decided = self._decided, []
        return decided
