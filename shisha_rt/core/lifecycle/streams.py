"""Streams and deadlines: which frames are admitted, in which order answers are sent, and by when."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from typing import Final

from shisha_rt.core.fair_share import is_granted
from shisha_rt.core.lifecycle.events import FrameArrived
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.records import ClientState, Frame, StreamKey, StreamState
from shisha_rt.core.lifecycle.turns import Turns
from shisha_rt.errors import Error

LAST_SEQUENCE: Final = 2**63 - 1


class Streams:
    """`turns`: the frames that wait for a slot. `undelivered`: accepted frames without an answer, of all clients.
    `met`: how many were accepted while others were undelivered. Clients and streams are kept while answers are owed to
    them; of idle streams only the last sequence number is kept, for `Policy.sequences_kept` of them.

    `fair_share` divides the limits on undelivered frames and on waiting bytes among clients.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.clients: dict[Hashable, ClientState] = {}
        self.last_sequences: dict[StreamKey, int] = {}  # of idle streams, the longest idle one first
        self.turns = Turns()
        self.waiting_bytes = 0
        self.undelivered = self.met = 0

    def of(self, event: FrameArrived) -> StreamState:
        """The frame's stream; a new record, which `accept` is to add, if the stream is new or was idle."""
        client = self.clients.get(event.client) or ClientState(event.client)
        key = event.client, event.stream, event.priority if event.stream is None else 0
        stream = client.streams.get(key)
        if stream is not None:
            return stream
        return StreamState(key, client, last_sequence=self.last_sequences.get(key), ordered=event.stream is not None)

    @property
    def is_full(self) -> bool:
        """Whether one more frame is refused now, whosever it is: even that of a client that has none."""
        policy, held_by_all = self._policy, self.undelivered
        has_room = is_granted(1, held=0, held_by_all=held_by_all, room=2 * policy.max_in_flight)
        return not has_room or self.waiting_bytes > 2 * policy.waiting_bytes

    def refusal(self, event: FrameArrived, stream: StreamState) -> tuple[Error, str] | None:
        """Why the frame is refused, with the others of its request; None if they are admitted."""
        if not event.frames:
            return None
        if stream.ordered and event.sequence is not None and stream.last_sequence is not None:
            expected = stream.last_sequence + 1
            if expected > LAST_SEQUENCE:
                none = f"expected none in this stream, as it has had {LAST_SEQUENCE}, the last; expected another stream"
                return Error.OUT_OF_SEQUENCE, f"sequence is {event.sequence}, {none}"
            if event.sequence != expected:
                return Error.OUT_OF_SEQUENCE, f"sequence is {event.sequence}, expected {expected} in this stream"
        client, policy = stream.client, self._policy
        frames_room, bytes_room = 2 * policy.max_in_flight, 2 * policy.waiting_bytes
        if not is_granted(event.frames, held=client.undelivered, held_by_all=self.undelivered, room=frames_room):
            had = f"{client.undelivered} frames of this client are in flight, {self.undelivered} of all clients"
            return Error.TOO_MANY_FRAMES, f"{had}: as many as are admitted"
        is_first = not client.waiting_bytes and self.waiting_bytes < bytes_room  # accepted however large it is
        wanted_bytes, held_bytes = event.frames * event.size_bytes, client.waiting_bytes
        held_by_all = self.waiting_bytes
        if not (is_first or is_granted(wanted_bytes, held=held_bytes, held_by_all=held_by_all, room=bytes_room)):
            had = f"{client.waiting_bytes} bytes of this client's requests wait, {self.waiting_bytes} of all"
            return Error.TOO_MANY_BYTES, f"{had}: as many as are held"
        return None

    def accept(self, frame: Frame, sequence: int | None) -> None:
        """Note a frame that was accepted, in its stream's order and its client's count."""
        stream = frame.stream
        client = stream.client
        self.clients[client.key] = client
        client.streams[stream.key] = stream
        if sequence is not None:
            stream.last_sequence = sequence
        if stream.ordered:
            stream.order.append(frame.number)
        client.undelivered += 1
        self.met += self.undelivered > 0
        self.undelivered += 1

    def wait(self, frame: Frame) -> None:
        """Queue a frame for which there is no slot yet."""
        self.turns.add(frame)
        self._hold(frame, frame.size_bytes)

    def next_waiting(self) -> Frame:
        """Remove and return the frame that gets the next slot."""
        frame = self.turns.take()
        self._hold(frame, -frame.size_bytes)
        return frame

    def give_up(self, frame: Frame) -> None:
        """Remove a frame that waits for no slot any more."""
        self.turns.remove(frame)
        self._hold(frame, -frame.size_bytes)

    def _hold(self, frame: Frame, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes
        frame.stream.client.waiting_bytes += size_bytes

    def delivered(self, frame: Frame) -> None:
        """Note that the answer of a frame was delivered; forget its client and its stream if it was their last."""
        stream = frame.stream
        client = stream.client
        self.undelivered -= 1
        client.undelivered -= 1
        if not client.undelivered:
            self.clients.pop(client.key, None)
        if stream.ordered and not stream.order:
            client.streams.pop(stream.key, None)
            self._remember(stream)

    def _remember(self, stream: StreamState) -> None:
        """Keep an idle stream's last sequence number; beyond the limit, drop that of the longest idle stream."""
        if stream.last_sequence is None:
            return
        self.last_sequences.pop(stream.key, None)
        self.last_sequences[stream.key] = stream.last_sequence
        if len(self.last_sequences) > self._policy.sequences_kept:
            del self.last_sequences[next(iter(self.last_sequences))]


class Deadlines:
    """Deadlines by frame number. `most`: beyond twice as many entries, those of decided frames are swept out.

    `first_s`: the earliest deadline, even if its frame is decided; inf: there is none.
    """

    def __init__(self, most: int, is_decided: Callable[[int], bool]) -> None:
        self._most = most
        self._is_decided = is_decided
        self._heap: list[tuple[float, int]] = []
        self.first_s = math.inf

    def note(self, deadline_s: float, number: int) -> None:
        heapq.heappush(self._heap, (deadline_s, number))
        if len(self._heap) > 2 * self._most:
            self._heap = [entry for entry in self._heap if not self._is_decided(entry[1])]
            heapq.heapify(self._heap)
        self._set_first()

    def passed(self, now: float) -> list[int]:
        """The undecided frames whose deadline has passed; each is returned once."""
        passed_numbers: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            _, number = heapq.heappop(self._heap)
            if not self._is_decided(number):
                passed_numbers.append(number)
        self._set_first()
        return passed_numbers

    def next_s(self) -> float | None:
        """Return the next deadline of an undecided frame; None if there is none."""
        while self._heap and self._is_decided(self._heap[0][1]):
            heapq.heappop(self._heap)
        self._set_first()
        return self.first_s if self._heap else None

    def _set_first(self) -> None:
        self.first_s = self._heap[0][0] if self._heap else math.inf
