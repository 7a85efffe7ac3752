"""What a relay knows of its link: how fast it is each way, and whether the far end is there. Times are passed in.

Small round trips tell the latency, half of it each way. What a large message takes beyond that, one way, tells how many
bytes pass in a second. Only what passes while no part is out counts: a part's own way would tell, besides, what it had
to wait for, at either end and behind what other places of that host send. A link counts as another once the middle one
of the last few differs by half.
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
_FIRST_BULKS: Final = 3  # each way, unless one takes long
_LONG_S: Final = 0.1
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
    """`bytes_per_s`: of the last few large messages this way. `known`: there were enough of them."""

    bytes_per_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    known: bool = False

    def note(self, took_s: float) -> None:
        self.bytes_per_s.append(_BULK_BYTES / max(took_s, _LEAST_S))
        self.known = self.known or took_s > _LONG_S or len(self.bytes_per_s) >= _FIRST_BULKS

    def longest_s(self, size_bytes: int) -> float:
        """That so many bytes may take."""
        return size_bytes / min(self.bytes_per_s) if self.bytes_per_s else 0.0


@dataclass(slots=True)
class _Asked:
    """A ping that has not been answered. `bulk`: the way of the large message that belongs to it.

    `alone`: nothing else has been under way since.
    """

    number: int
    bulk: _Direction | None
    alone: bool
    sent_ns: int = 0


class LinkWatch:
    def __init__(self) -> None:
        self._number = 0
        self._asked: _Asked | None = None
        self._round_trips_s: deque[float] = deque(maxlen=_SAMPLES)
        self._there, self._back = _Direction(), _Direction()
        self._underway: dict[Descriptor, tuple[int, int]] = {}
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
        there = self._there.longest_s(sum(its for its, _ in self._underway.values()))
        back = self._back.longest_s(sum(its for _, its in self._underway.values()))
        return self._alive and now_s - self._heard_s < _SILENCE_S + 2 * (there + back)

    def sends(self, part: Descriptor, there_bytes: int, back_bytes: int) -> None:
        """A part is on its way; with its end so many bytes may come back."""
        self._underway[part] = there_bytes, back_bytes
        if self._asked is not None:
            self._asked.alone = False

    def part_ended(self, part: Descriptor) -> None:
        self._underway.pop(part, None)

    # --- measuring --------------------------------------------------------------------------------------------

    @property
    def is_measured(self) -> bool:
        return self._told is not None

    def next_ping(self, now_s: float) -> PingOut | None:
        """One at a time, and large ones only while no part is out."""
        if self._asked is not None or now_s < self._ping_at_s:
            return None
        if self._told is not None:
            self._ping_at_s = now_s + _PING_EVERY_S
        bulk = None if self._underway or len(self._round_trips_s) < _ROUND_TRIPS else self._next_bulk(now_s)
        self._number += 1
        self._asked = _Asked(self._number, bulk, not self._underway)
        bytes_back = _BULK_BYTES if bulk is self._back else 0
        return PingOut(far.Ping(self._number, bytes_back), [memoryview(_NOTHING)] if bulk is self._there else [])

    def _next_bulk(self, now_s: float) -> _Direction | None:
        for way in (self._there, self._back):
            if not way.known:
                return way
        if now_s < self._bulk_at_s:
            return None
        self._bulk_at_s = now_s + _BULK_EVERY_S
        return self._there if self._number % 2 else self._back

    def sent_ping(self, now_ns: int) -> None:
        """The last one is handed on."""
        assert self._asked is not None
        self._asked.sent_ns = now_ns

    def pong(self, pong: far.Pong, now_ns: int) -> LinkSpeed | None:
        """An answer came; the link, if it is to be told of."""
        asked, self._asked = self._asked, None
        if asked is None or asked.number != pong.number or not asked.alone:
            return None
        took_s = (now_ns - asked.sent_ns) / 1e9
        if asked.bulk is None:
            self._round_trips_s.append(took_s)
        else:
            asked.bulk.note(took_s - min(self._round_trips_s))
        return self._another()

    def _another(self) -> LinkSpeed | None:
        if not (self._there.known and self._back.known):
            return None
        latency_s = median(self._round_trips_s) / 2
        now = LinkSpeed(latency_s, median(self._there.bytes_per_s), latency_s, median(self._back.bytes_per_s))
        if self._told is not None and not now.is_unlike(self._told):
            return None
        self._told = now
        return now
