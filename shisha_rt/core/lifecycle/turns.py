"""Whose frame gets the next free slot: at the most urgent priority clients take turns, and so do a client's streams.

A stream has the priority of its first waiting frame, so the frames of one stream never overtake each other. A priority
that was passed over `PATIENCE` times goes next: however many urgent frames come, others wait for a bounded number of
turns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.core.lifecycle.records import Frame, StreamState

PATIENCE: Final = 8


@dataclass(slots=True)
class _ClientTurn:
    """A client's streams with frames that wait at one priority, the next one first, and the number of those frames."""

    streams: deque[StreamState] = field(default_factory=deque)
    waiting: int = 0


@dataclass(slots=True)
class _Level:
    """Clients with waiting frames of one priority, the next first. `passed`: how often others went first in a row."""

    clients: dict[Hashable, _ClientTurn] = field(default_factory=dict)
    passed: int = 0


class Turns:
    """Streams with frames that wait for a slot. `levels`: by priority; empty while nobody waits."""

    def __init__(self) -> None:
        self.levels: dict[int, _Level] = {}

    @property
    def waiting(self) -> int:
        """Frames without a slot."""
        return sum(turn.waiting for level in self.levels.values() for turn in level.clients.values())

    def ahead(self, client: Hashable, priority: int) -> int:
        """How many waiting frames would get a slot before a new one of this client, if no other came."""
        level = self.levels.get(priority)
        own = 1 + (level.clients[client].waiting if level is not None and client in level.clients else 0)
        urgent = (other for at, other in self.levels.items() if at < priority)
        more_urgent = sum(turn.waiting for other in urgent for turn in other.clients.values())
        if level is None:
            return more_urgent
        return more_urgent + sum(
            min(turn.waiting, own) if key != client else own - 1 for key, turn in level.clients.items()
        )

    def add(self, frame: Frame) -> None:
        """Queue a frame behind the others of its stream."""
        stream = frame.stream
        stream.waiting.append(frame)
        if len(stream.waiting) == 1:
            self._enter(stream)
        else:
            self.levels[stream.waiting[0].priority].clients[stream.client.key].waiting += 1

    def take(self) -> Frame:
        """Remove and return the next frame; its client goes behind the others, and its stream behind the client's."""
        priority = self._next_priority()
        level = self.levels[priority]
        client = next(iter(level.clients))
        turn = level.clients.pop(client)
        stream = turn.streams.popleft()
        turn.waiting -= len(stream.waiting)
        frame = stream.waiting.pop(0)
        if turn.streams:
            level.clients[client] = turn
        elif not level.clients:
            del self.levels[priority]
        if stream.waiting:
            self._enter(stream)
        return frame

    def remove(self, frame: Frame) -> None:
        """Remove a frame that waits no more. Its stream keeps its turn if its next frame has the same priority."""
        stream = frame.stream
        priority = stream.waiting[0].priority
        turn = self.levels[priority].clients[stream.client.key]
        stream.waiting.remove(frame)
        turn.waiting -= 1
        if stream.waiting and stream.waiting[0].priority == priority:
            return
        turn.waiting -= len(stream.waiting)
        turn.streams.remove(stream)
        if not turn.streams:
            del self.levels[priority].clients[stream.client.key]
        if not self.levels[priority].clients:
            del self.levels[priority]
        if stream.waiting:
            self._enter(stream)

    def _enter(self, stream: StreamState) -> None:
        priority, client = stream.waiting[0].priority, stream.client.key
        level = self.levels.get(priority)
        if level is None:
            level = self.levels[priority] = _Level()
        turn = level.clients.get(client)
        if turn is None:
            turn = level.clients[client] = _ClientTurn()
        turn.streams.append(stream)
        turn.waiting += len(stream.waiting)

    def _next_priority(self) -> int:
        levels = self.levels
        if len(levels) == 1:
            return next(iter(levels))
        chosen = min(levels, key=lambda at: (-math.inf if levels[at].passed >= PATIENCE else 0, at))
        for priority, level in levels.items():
            level.passed = 0 if priority == chosen else level.passed + 1
        return chosen
