"""What a relay knows of its link: how fast it is each way, and whether the far end is there. Times are passed in.

Small round trips tell the latency, half of it each way, and by how much the far end's clock is off. What many bytes
take beyond that tells how many pass in a second: a large message each way at first, the parts themselves later, and
large ones again while there are none. A link counts as another once the middle one of the last few differs by half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from shisha_rt.lifecycle.events import Descriptor
from stages.far import messages as far

_ROUND_TRIPS: Final = 5
_BULK_BYTES: Final = 1 << 20
_LEAST_BYTES: Final = 64 << 10  # what is smaller says little
_SAMPLES: Final = 7
_PING_EVERY_S: Final = 1.0
_BULK_EVERY_S: Final = 10.0
_ANOTHER: Final = 1.5
_ANOTHER_LATENCY_S: Final = 0.5e-3
_SILENCE_S: Final = 1.0
_LEAST_S: Final = 1e-6
_NOTHING: Final = bytes(_BULK_BYTES)


class LinkSpeed(NamedTuple):
    """Both ways; a link that has not been measured has none."""

    there_latency_s: float
    there_bytes_per_s: float
    back_latency_s: float
    back_bytes_per_s: float

    def is_unlike(self, other: LinkSpeed) -> bool:
        latency_s = abs(self.there_latency_s - other.there_latency_s)
        slower = self.there_latency_s + other.there_latency_s
        ratios = (self.there_bytes_per_s / other.there_bytes_per_s, self.back_bytes_per_s / other.back_bytes_per_s)
        return latency_s > max(_ANOTHER_LATENCY_S, slower / 4) or any(max(its, 1 / its) > _ANOTHER for its in ratios)


class PingOut(NamedTuple):
    """A ping to be sent, with what goes beside it."""

    message: far.Ping
    tensors: Sequence[memoryview]


@dataclass(slots=True)
class _Direction:
    """`free_ns`: until when, on this clock, the last transfer this way lasted."""

    bytes_per_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    free_ns: int = 0

    def note(self, size_bytes: int, began_ns: int, ended_ns: int, latency_s: float) -> None:
        began_ns, self.free_ns = max(began_ns, self.free_ns), ended_ns
        if size_bytes >= _LEAST_BYTES:
            took_s = (ended_ns - began_ns) / 1e9 - latency_s
            self.bytes_per_s.append(size_bytes / max(took_s, _LEAST_S))


@dataclass(frozen=True, slots=True)
class _Asked:
    sent_ns: int
    there_bytes: int
    back_bytes: int


class LinkWatch:
    def __init__(self) -> None:
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._round_trips_s: deque[float] = deque(maxlen=_SAMPLES)
        self._offset_ns = 0
        self._there, self._back = _Direction(), _Direction()
        self._sent: dict[Descriptor, tuple[int, int]] = {}
        self._told: LinkSpeed | None = None
        self._heard_s: float | None = None
        self._alive = True
        self._ping_at_s = self._bulk_at_s = 0.0

    # --- signs of life ----------------------------------------------------------------------------------------

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s

    def beat(self, now_s: float, *, alive: bool) -> None:
        """What the far end says of its worker."""
        self._heard_s, self._alive = now_s, alive

    def is_alive(self, now_s: float) -> bool:
        """Something has come lately, or may be held up by what is under way."""
        if self._heard_s is None:
            return True
        underway_bytes = sum(size for _, size in self._sent.values())
        slowest = min((min(way.bytes_per_s) for way in (self._there, self._back) if way.bytes_per_s), default=0.0)
        held_up_s = 2 * underway_bytes / slowest if slowest else 0.0
        return self._alive and now_s - self._heard_s < _SILENCE_S + held_up_s

    # --- measuring --------------------------------------------------------------------------------------------

    def next_ping(self, now_s: float, *, idle: bool) -> PingOut | None:
        """One at a time; large ones only while no part is out."""
        if self._asked or now_s < self._ping_at_s:
            return None
        there, back = 0, 0
        unknown = not (self._there.bytes_per_s and self._back.bytes_per_s)
        if idle and len(self._round_trips_s) >= _ROUND_TRIPS and (unknown or now_s >= self._bulk_at_s):
            there = 0 if self._number % 2 else _BULK_BYTES
            back = _BULK_BYTES - there
            self._bulk_at_s = now_s + _BULK_EVERY_S * (back > 0)
        if self._told is not None:
            self._ping_at_s = now_s + _PING_EVERY_S
        self._number += 1
        self._asked[self._number] = _Asked(0, there, back)
        return PingOut(far.Ping(self._number, back), [memoryview(_NOTHING)] if there else [])

    def sent_ping(self, now_ns: int) -> None:
        """The last one has been handed on."""
        asked = self._asked[self._number]
        self._asked[self._number] = _Asked(now_ns, asked.there_bytes, asked.back_bytes)

    def pong(self, pong: far.Pong, now_ns: int) -> LinkSpeed | None:
        """An answer came; the link, if it is to be told of."""
        asked = self._asked.pop(pong.number, None)
        if asked is None:
            return None
        took_s = (now_ns - asked.sent_ns) / 1e9
        if not asked.there_bytes and not asked.back_bytes:
            if not self._round_trips_s or took_s <= min(self._round_trips_s):
                self._offset_ns = pong.at_ns - (now_ns + asked.sent_ns) // 2
            self._round_trips_s.append(took_s)
        else:
            way = self._there if asked.there_bytes else self._back
            way.note(asked.there_bytes + asked.back_bytes, asked.sent_ns, now_ns, min(self._round_trips_s))
        return self._another()

    def sends(self, part: Descriptor, size_bytes: int, now_ns: int) -> None:
        self._sent[part] = now_ns, size_bytes

    def part_done(self, done: far.DoneFar, back_bytes: int, now_ns: int) -> None:
        """What it took there and back, by both clocks."""
        sent = self._sent.pop(done.done.part, None)
        if sent is None or not self._round_trips_s:
            return
        latency_s = min(self._round_trips_s) / 2
        self._there.note(sent[1], sent[0], done.arrived_ns - self._offset_ns, latency_s)
        self._back.note(back_bytes, done.left_ns - self._offset_ns, now_ns, latency_s)

    def forget(self, part: Descriptor) -> None:
        """It came to nothing."""
        self._sent.pop(part, None)

    def _another(self) -> LinkSpeed | None:
        if not (self._there.bytes_per_s and self._back.bytes_per_s):
            return None
        latency_s = median(self._round_trips_s) / 2
        now = LinkSpeed(latency_s, median(self._there.bytes_per_s), latency_s, median(self._back.bytes_per_s))
        if self._told is not None and not now.is_unlike(self._told):
            return None
        self._told = now
        return now
