"""What a relay knows of its link: its speed in each direction, and whether the far end is alive. Times are passed in.

A round of measuring sends a small message, which is answered: half of its time is the latency of each direction. Then
it sends a large message, and asks for a large answer: their time beyond the small message's gives the bytes per second.
No part may be out meanwhile, as it would delay the messages; so parts are held back, and the place loses that time.
Hence the link is measured rarely, but at once if parts spend more, or less, time on it than its speed predicts. Other
traffic makes a link look slower, never faster: so the least times of several rounds count, and a link that looks
different is measured once more a second later, before the new speed is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.costs.link_speed import LinkSpeed, OneWay, differ
from stages.far import messages as far

_ROUNDS: Final = 5
_MESSAGES: Final = 3
_PATIENT_S: Final = 2.0  # for all rounds: parts that are held back for longer look like a hang
_EVERY_S: Final = 10.0
_AGAIN_AFTER_S: Final = 1.0
_DRIFTED_AFTER_S: Final = 1.0  # doubled by each measurement that finds no change
_BULK_TAKES_S: Final = 10e-3  # at the speed of the last measurement
_LEAST_BULK_BYTES: Final = 64 << 10
_MOST_BULK_BYTES: Final = 1 << 20
_PARTS: Final = 5
_SIGN_EVERY_S: Final = 2.0
_SILENCE_S: Final = 1.0
_MEASURING_S: Final = 2.0  # a large message may delay the messages behind it
_LEAST_PART: Final = 0.01  # of a large message's round trip: a shorter transfer cannot be told from noise
_NOTHING: Final = bytes(_MOST_BULK_BYTES)


_Round: TypeAlias = tuple[float, ...]
"""Seconds to the answer of each of its messages: a small one, a large one, and one whose answer is large."""


def _speed(rounds: Sequence[_Round], size_bytes: int) -> LinkSpeed:
    """`size_bytes`: of the rounds' large messages."""
    trip_s, there_s, back_s = (min(times) for times in zip(*rounds, strict=True))
    there, back = (size_bytes / max(took_s - trip_s, took_s * _LEAST_PART) for took_s in (there_s, back_s))
    return LinkSpeed(OneWay(trip_s / 2, there), OneWay(trip_s / 2, back))


@dataclass(frozen=True, slots=True)
class _Underway:
    there_bytes: int
    back_bytes: int
    sent_s: float


class LinkWatch:
    """The link of one relay: the relay reports what it sends and receives, and sends what `next_ping` returns."""

    def __init__(self) -> None:
        self._underway: dict[Descriptor, _Underway] = {}
        self._took_s: list[float] = []  # the answered messages of the present round
        self._rounds: list[_Round] = []
        self._number = 0
        self._asked: int | None = None
        self._sent_s = 0.0
        self._told: LinkSpeed | None = None
        self._suspect: LinkSpeed | None = None  # the last measurement, if not confirmed
        self._bulk_bytes = _LEAST_BULK_BYTES
        self._due_s = self._sign_s = 0.0
        self._began_s = self._ended_s = 0.0
        self._patience_s = _DRIFTED_AFTER_S
        self._ways: deque[tuple[float, float]] = deque(maxlen=_PARTS)  # last parts' seconds on the link, and expected
        self._heard_s: float | None = None
        self._alive = True

    # --- signs of life ----------------------------------------------------------------------------------------

    def heard(self, now_s: float) -> None:
        """Note that some message has come from the far end."""
        self._heard_s = now_s

    def beat(self, beat: far.Beat, now_s: float) -> None:
        self._heard_s, self._alive = now_s, beat.alive

    def is_alive(self, now_s: float) -> bool:
        """Whether a message has come lately, or may be delayed by what is on the link."""
        if self._heard_s is None:
            return True
        passing_s = 0.0
        if self._told is not None:
            passing_s = sum(
                self._told.takes_s(underway.there_bytes, underway.back_bytes) for underway in self._underway.values()
            )
        measuring_s = 0.0 if self._asked is None else _MEASURING_S
        return self._alive and now_s - self._heard_s < _SILENCE_S + measuring_s + 2 * passing_s

    # --- parts ------------------------------------------------------------------------------------------------

    def sends(self, part: Descriptor, there_bytes: int, back_bytes: int, now_s: float) -> None:
        """Note that a part is sent; with its end `back_bytes` are expected back."""
        self._underway[part] = _Underway(there_bytes, back_bytes, now_s)

    def part_ended(self, part: Descriptor, there_s: float | None, now_s: float) -> None:
        """`there_s`: how long the part was at the far end, by the far end's clock. None: it failed."""
        underway = self._underway.pop(part, None)
        if underway is not None and there_s is not None and self._told is not None:
            expected_s = self._told.takes_s(underway.there_bytes, underway.back_bytes)
            self._ways.append((now_s - underway.sent_s - there_s, expected_s))

    @property
    def _drifted(self) -> bool:
        """Whether the last parts all spent more time on the link than expected, or all less."""
        if len(self._ways) < _PARTS or not all(differ(*way) for way in self._ways):
            return False
        return len({took_s > expected_s for took_s, expected_s in self._ways}) == 1

    # --- measuring --------------------------------------------------------------------------------------------

    @property
    def is_measured(self) -> bool:
        return self._told is not None

    def wants_quiet(self, now_s: float) -> bool:
        """Whether to hold parts back: for a measurement under way, or for one that waits for parts that are out."""
        if self._rounds or self._took_s or self._asked is not None or now_s >= self._due_s:
            return True
        return self._drifted and now_s >= self._ended_s + self._patience_s

    def next_ping(self, now_s: float) -> tuple[far.Ping, Sequence[memoryview]] | None:
        """The next ping if one is due, with the tensors beside it, to be sent at once.

        It is of a round, or, between rounds, a sign of life. One at a time.
        """
        if self._asked is not None:
            return None
        if not self.wants_quiet(now_s) or self._underway:
            if now_s < self._sign_s:
                return None
            self._sign_s = now_s + _SIGN_EVERY_S
            return far.Ping(0), ()
        self._sign_s = now_s + _SIGN_EVERY_S
        if not self._rounds and not self._took_s:
            self._began_s = now_s
            if self._drifted:  # a large message would be late by the same factor as parts
                times = max(took_s / expected_s for took_s, expected_s in self._ways)
                self._bulk_bytes = max(int(self._bulk_bytes / max(times, 1.0)), _LEAST_BULK_BYTES)
        self._number += 1
        self._asked, self._sent_s = self._number, now_s
        match len(self._took_s):
            case 0:
                return far.Ping(self._number), ()
            case 1:
                return far.Ping(self._number), [memoryview(_NOTHING)[: self._bulk_bytes]]
            case _:
                return far.Ping(self._number, self._bulk_bytes), ()

    def pong(self, pong: far.Pong, now_s: float) -> LinkSpeed | None:
        """Note an answer; return the link's speed if it is to be reported."""
        if self._asked is None or pong.number != self._asked:
            return None
        self._asked = None
        self._took_s.append(now_s - self._sent_s)
        if len(self._took_s) < _MESSAGES:
            return None
        self._rounds.append(tuple(self._took_s))
        self._took_s.clear()
        return self._end_round(now_s)

    def _end_round(self, now_s: float) -> LinkSpeed | None:
        now = _speed(self._rounds, self._bulk_bytes)
        another = self._told is None or now.is_unlike(self._told)
        in_time = now_s < self._began_s + _PATIENT_S
        if another and in_time and len(self._rounds) < _ROUNDS:
            return None
        sent_bytes, self._bulk_bytes = self._bulk_bytes, _bulk_bytes(now)
        if another and in_time and self._bulk_bytes > 2 * sent_bytes:  # the messages were too small to measure with
            self._rounds.clear()
            return None
        sure = another and (self._told is None or (self._suspect is not None and not now.is_unlike(self._suspect)))
        self._rounds.clear()
        self._ended_s, self._due_s = now_s, now_s + (_EVERY_S if sure or not another else _AGAIN_AFTER_S)
        self._patience_s = _DRIFTED_AFTER_S if another or not self._drifted else 2 * self._patience_s
        self._ways.clear()
        self._suspect = now if another and not sure else None
        if not sure:
            return None
        self._told = now
        return now


def _bulk_bytes(speed: LinkSpeed) -> int:
    """Bytes that take `_BULK_TAKES_S` in the slower direction, within limits."""
    slower = min(way.bytes_per_s for way in speed)
    return int(min(max(slower * _BULK_TAKES_S, _LEAST_BULK_BYTES), _MOST_BULK_BYTES))
