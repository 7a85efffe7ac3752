"""A client that keeps a daemon busy and believes nothing: every answer is checked for what R1 promises.

It speaks the wire itself, so that what it sees is what came over it: in which order, and how often.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import numpy as np

from shisha_rt.errors import Code
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.header import (
    InferParameters,
    TensorHeader,
    decode_head,
    decode_infer_answer,
    encode_infer,
    encode_operation,
)
from tests.serving.identity_model import NAME, SHAPE, frame_of
from tests.serving.sharing.lent_region import ClientRegion
from tests.serving.ways import ByLine, ByZeroMq, Way
from tests.waiting import PATIENCE_S

PAUSE_S: Final = 0.002
_LAST: Final = "last"


@dataclass
class _Stream:
    name: str
    sequence: itertools.count[int] = field(default_factory=itertools.count)
    expected: deque[str] = field(default_factory=deque)


class Rooms:
    """A region's rooms for frames, each for an input and an output."""

    def __init__(self, path: str, count: int, tensor: Tensor) -> None:
        self._region = ClientRegion(path, 2 * count * tensor.size_bytes)
        self._tensor = tensor
        self._free = list(range(count))
        self._taken: dict[str, int] = {}
        self._mark = bytes([0xA5]) * tensor.size_bytes
        for room in self._free:
            self._region.memory[self._output(room)] = self._mark

    def parts(self, request_id: str, kind: int, header: bytes, frame: bytes) -> list[bytes]:
        """Of a request by this header whose input, output or both are in a room, by `kind`."""
        room = self._taken[request_id] = self._free.pop(0)
        assert self._region.memory[self._output(room)] == self._mark, f"a room was written to late, by {frame[:4]!r}"
        fields = json.loads(header)
        if kind != 1:
            span = self._input(room)
            self._region.memory[span] = frame
            fields["inputs"][0]["parameters"] = self._region.piece(span.start, len(frame))
        if kind != 0:
            piece = self._region.piece(self._output(room).start, self._tensor.size_bytes)
            fields["outputs"] = [{"name": "y", "parameters": piece}]
        return [json.dumps(fields).encode(), *([frame] if kind == 1 else [])]

    def back(self, request_id: str) -> bytes:
        """What is in the room of a request that has been answered. The room is marked, and free."""
        room = self._taken.pop(request_id)
        content = self._region.memory[self._output(room)]
        self._region.memory[self._output(room)] = self._mark
        self._region.memory[self._input(room)] = self._mark
        self._free.append(room)
        return content

    def _input(self, room: int) -> slice:
        return slice(2 * room * self._tensor.size_bytes, (2 * room + 1) * self._tensor.size_bytes)

    def _output(self, room: int) -> slice:
        return slice((2 * room + 1) * self._tensor.size_bytes, (2 * room + 2) * self._tensor.size_bytes)

    def close(self) -> None:
        self._region.close()


class Load(threading.Thread):
    """One connection with several ordered streams, `depth` frames of each in flight, until `finish` or a refusal.

    `pause_s` after each answer leaves the cores to others: where the frames are to flow while the test waits.
    `sharing`: tensors travel by descriptor, in one way, the other or both, through a region that is to be had at that
    socket; a room that is the client's again is marked, so that whatever is written there late is seen.
    `line`: the same socket; everything goes over a direct line from there, in place of ZeroMQ.
    `faults` are broken promises. `codes` counts error answers; what of them is allowed is for the test to say.
    """

    def __init__(
        self,
        endpoint: str,
        index: int = 0,
        *,
        streams: int = 3,
        depth: int = 3,
        model_name: str = NAME,
        shape: tuple[int, ...] = SHAPE,
        pause_s: float = 0.0,
        sharing: str | None = None,
        line: str | None = None,
    ) -> None:
        super().__init__(name=f"load-{index}", daemon=True)
        self.sent = 0
        self.answered = 0
        self.results = 0
        self.codes: Counter[str] = Counter()
        self.messages: list[str] = []
        self.epochs: set[int] = set()
        self.frames: list[int] = []
        self.outcomes: dict[str, str] = {}  # id -> OK or a code, in the order of sending ("" until answered)
        self.faults: list[str] = []
        self.longest_gap_s = 0.0
        self._endpoint = endpoint
        self.line = line
        self._index = index
        self._depth = depth
        self._pause_s = pause_s
        self._shape = shape
        self._header = TensorHeader.of(Tensor("x", shape, "FP32"))
        self._model_name = model_name
        self._streams = [_Stream(f"stream{i}") for i in range(streams)]
        self._waiting: dict[str, tuple[_Stream, int, int]] = {}
        self._rooms = None if sharing is None else Rooms(sharing, streams * depth, Tensor("x", shape, "FP32"))
        self._ending = threading.Event()
        self._abandoned = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(wait=kind is None)

    def finish(self, *, wait: bool = True) -> None:
        """Send nothing more, `wait` for what is in flight (or give it up), and end the thread."""
        self._ending.set()
        if not wait:
            self._abandoned.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()

    def wait_for_answers(self, count: int) -> None:
        """Until `count` more frames have been answered than by now."""
        self.wait_until_answered(self.answered + count)

    def wait_until_answered(self, total: int) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while self.answered < total:
            assert not self.faults, self.faults[:3]
            assert self.is_alive(), "the load has ended"
            assert time.monotonic() < end_s, f"{self.answered} of {self.sent} answered after {PATIENCE_S:g} s"
            time.sleep(0.002)

    # --- the thread -------------------------------------------------------------------------------------------

    def run(self) -> None:
        way: Way = ByZeroMq(self._endpoint) if self.line is None else ByLine(self.line)
        try:
            self._keep_busy(way)
            if not self._abandoned.is_set() and not self.codes[Code.UNAVAILABLE.value]:
                self._read_to_the_end(way)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")
        finally:
            way.close()
            if self._rooms is not None:
                self._rooms.close()

    def _keep_busy(self, way: Way) -> None:
        progress_s = time.monotonic()
        while not self._abandoned.is_set() and (self._waiting or not self._ending.is_set()):
            if not self._ending.is_set():
                for stream in self._streams:
                    while len(stream.expected) < self._depth:
                        self._send(way, stream)
            parts = way.receive(0.05)
            if parts is not None:
                self._receive(parts)
                self._abandoned.wait(self._pause_s)
                now_s = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now_s - progress_s)
                progress_s = now_s
            elif time.monotonic() - progress_s > PATIENCE_S:
                self.faults.append(f"{len(self._waiting)} frames unanswered for {PATIENCE_S:g} s")
                return

    def _read_to_the_end(self, way: Way) -> None:
        """Whatever the daemon has sent to us, it has sent before the answer to this."""
        way.send([encode_operation("server_live", _LAST)])
        while (parts := way.receive(PATIENCE_S)) is not None:
            if decode_head(parts[0]).id == _LAST:
                return
            self._receive(parts)
        self.faults.append("no answer to the last request")

    def _send(self, way: Way, stream: _Stream) -> None:
        number = 2 * self.sent + self._index % 2
        request_id = str(self.sent)
        sequence = next(stream.sequence)
        frame = frame_of(number, self._shape).tobytes()
        parts = [
            encode_infer(request_id, self._model_name, [self._header], InferParameters(stream.name, sequence)),
            frame,
        ]
        if self._rooms is not None:
            parts = self._rooms.parts(request_id, number % 3, parts[0], frame)
        self._waiting[request_id] = stream, sequence, number
        self.outcomes[request_id] = ""
        stream.expected.append(request_id)
        self.sent += 1
        way.send(parts)

    def _receive(self, parts: list[bytes]) -> None:
        head = decode_head(parts[0])
        if head.id not in self._waiting:
            self.faults.append(f"an answer to nothing that waits: {parts[0]!r}")
            return
        stream, sequence, number = self._waiting.pop(head.id)
        refused = head.error is not None and head.error.code == Code.UNAVAILABLE.value
        if refused:  # at once, out of order; and there is no point in going on
            self._ending.set()
        elif stream.expected[0] != head.id:
            self.faults.append(f"{stream.name}: {head.id} was answered before {stream.expected[0]}")
        stream.expected.remove(head.id)
        if head.error is not None:
            self.outcomes[head.id] = head.error.code
            self.codes[head.error.code] += 1
            self.messages.append(head.error.message)
            if self._rooms is not None:
                self._rooms.back(head.id)
        else:
            self.outcomes[head.id] = "OK"
            self._check_result(head.id, parts, sequence, number)
        self.answered += 1

    def _check_result(self, request_id: str, parts: list[bytes], sequence: int, number: int) -> None:
        parameters = decode_infer_answer(parts[0]).parameters
        self.results += 1
        self.epochs.add(parameters.epoch)
        self.frames.append(parameters.frame)
        if parameters.sequence != sequence:
            self.faults.append(f"{request_id}: sequence {parameters.sequence}, expected {sequence}")
        data = parts[1] if len(parts) > 1 else b""
        if self._rooms is not None:
            written = self._rooms.back(request_id)
            data = data or written
        if data != frame_of(number, self._shape).tobytes():
            first = np.frombuffer(data, np.float32)[0]
            self.faults.append(f"{request_id}: a wrong answer, it starts with {first}, expected {number}")


def assert_kept(*loads: Load, but: Collection[Code] = ()) -> None:
    """R1, over all connections: nothing lost, doubled, mixed, out of order; every answer a result, or one of `but`."""
    for load in loads:
        assert load.faults == []
        assert set(load.codes) <= set(but), (load.codes, load.messages)
        assert load.results + load.codes.total() == load.answered == load.sent
    frames = [frame for load in loads for frame in load.frames]
    assert len(set(frames)) == len(frames)
