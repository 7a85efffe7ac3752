"""The steps of a frame, and the messages between the daemon and its tracer, which exports them. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from shisha_rt.process.codec import Codec


class What(StrEnum):
    """Kinds of steps. QUEUE: waits for a slot. WAIT: waits to be computed by a stage; RUN: computed there. LOST: with a
    worker that died. LEFT: still with a worker when the frame ended in an error. ORDER: waits for earlier frames of its
    stream.
    """

    QUEUE = "queue"
    COPY_IN = "copy_in"
    WAIT = "wait"
    RUN = "run"
    LOST = "lost"
    LEFT = "left"
    COPY_OUT = "copy_out"
    ORDER = "order"


class TracedStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`begin_s`: since the frame's arrival. Outside stages, `stage` is -1 and the fields behind it are unset.

    `attempt` counts the frame's starts; `frames`: of the batch. Steps of stages that run side by side overlap.
    """

    what: What
    begin_s: float
    seconds: float
    stage: int = -1
    place: str = ""
    epoch: int = -1
    attempt: int = 0
    frames: int = 1


class FrameTraced(msgspec.Struct, frozen=True, array_like=True):
    """A frame that was traced, from its arrival (`arrived_ns` since 1970) to its answer.

    `parent_id`: the caller's span, of the same trace; "": none. `code`: OK, or the code of an error.
    """

    trace_id: str
    parent_id: str
    frame: int
    code: str
    arrived_ns: int
    latency_s: float
    steps: tuple[TracedStep, ...]


class ServeTraces(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Begin. `url`: of an OTLP receiver (HTTP, protobuf). All other fields go with the spans."""

    url: str
    model: str
    model_version: str
    version: str
    instance: str


class FramesTraced(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Several frames, each encoded by `FRAME_TRACED`: a message for each would cost the loop twice as much."""

    frames: tuple[msgspec.Raw, ...]


class EndTraces(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Send what is queued, and end."""


class TracesCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Frames `sent` and `lost` since the last of these messages, and `why` they were lost."""

    sent: int
    lost: int
    why: str = ""


ToTracer: TypeAlias = ServeTraces | FramesTraced | EndTraces
FromTracer: TypeAlias = TracesCounted

FRAME_TRACED: Final[Codec[FrameTraced]] = Codec(FrameTraced)
TO_TRACER: Final[Codec[ToTracer]] = Codec(ToTracer)
FROM_TRACER: Final[Codec[FromTracer]] = Codec(FromTracer)
