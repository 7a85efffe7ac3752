"""Trials of engines on a whole network: the job (JSON lines, as in `calibration`; it answers with `EnginesTried`), and
its messages to the process that it starts for each engine.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.messages.calibration import BesideJob
from shisha_rt.plan.engine import EngineName
from shisha_rt.process.codec import Codec


class EnginesJob(BesideJob, frozen=True, kw_only=True):
    """Run the whole network on each of `engines` (name: version), ONNX Runtime first.

    `folders`: those of the cleaned model and of ONNX Runtime's form of it, for each shape that is served. `batch`:
    batches of so many frames are timed as well; 1: none.
    """

    folders: tuple[tuple[str, str], ...]
    batch: int = 1
    engines: dict[EngineName, str]


class BuildEngine(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first message: build the job's network on one of its engines."""

    engine: EngineName
    job: EnginesJob


class EngineBuilt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Seconds that the build took, for all shapes."""

    build_s: float


class ComputeFrame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute a frame. `shape`: the index of its shape; `inputs`: the bytes of each input, by name."""

    shape: int
    inputs: dict[str, bytes]


class FrameComputed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The bytes of each output that the network makes, by name, except those whose shape depends on the data."""

    outputs: dict[str, bytes]


class TimeFrames(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run a shape's last frame for `least_s` seconds, at least once. `together`: in full batches of this frame."""

    shape: int
    least_s: float
    together: bool = False


class FramesTimed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """For each run, seconds by the clock and CPU seconds of all threads. `waited_s`: how long threads waited for a
    core.

    `private_bytes`: by how much the process's private memory has grown since before it built anything.
    """

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    waited_s: float
    private_bytes: int


class EngineRefuses(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The engine raised an exception; `reason` is one line. The process can be asked again."""

    reason: str


ToEngine: TypeAlias = BuildEngine | ComputeFrame | TimeFrames
FromEngine: TypeAlias = EngineBuilt | FrameComputed | FramesTimed | EngineRefuses

TO_ENGINE: Final[Codec[ToEngine]] = Codec(ToEngine)
FROM_ENGINE: Final[Codec[FromEngine]] = Codec(FromEngine)
