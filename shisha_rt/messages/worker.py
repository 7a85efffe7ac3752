"""All messages between the daemon and a worker; a worker's exception becomes one line before it is sent."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.costs.link_speed import LinkSpeed
from shisha_rt.machine.device import Device
from shisha_rt.messages.scales import scales_file
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine
from shisha_rt.process.codec import Codec
from shisha_rt.process.lent import LentPiece
from shisha_rt.process.output_room import OUTPUT_BYTES

# --- daemon -> worker -----------------------------------------------------------------------------------------


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build and warm up layers `work` as this worker's part of a `stage` of `epoch`, beside what runs now, in each of
    the shapes in which the model is served.

    `modelled_cpu_s`: CPU seconds by which an emulated place paces each frame; 0: by what the run really took.
    `placement`: the device of each of the stage's operators; empty on a place without devices. `cores` and `threads`:
    for a team of several places, those of the whole team, this worker's first; empty: the place's own. `split`: for a
    shard, or for the join behind shards. `engine`: what computes the stage on a place without devices. `batch`: the
    most frames in a batch.
    """

    epoch: int
    stage: int
    work: tuple[Span, ...]
    modelled_cpu_s: float = 0.0
    placement: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    threads: int = 0
    split: Split | None = None
    engine: StageEngine = DEFAULT_ENGINE
    batch: int = 1


class Copies(msgspec.Struct, frozen=True, array_like=True):
    """`reads` and `writes` as in `Run`, for one of the further frames of a batch."""

    reads: tuple[LentPiece, ...]
    writes: tuple[LentPiece, ...]


class Run(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute a part, or a batch of them, in slots of this layout.

    `ready_ns`: since when the input has been there for this worker, on CLOCK_MONOTONIC; 0: since it got the message.
    `reads`: inputs to copy into the slot first; `writes`: outputs to copy out of it at the end. `beside`: the same for
    the further frames of the batch; empty if none of them has any.
    """

    part: Descriptor
    layout: int
    ready_ns: int = 0
    reads: tuple[LentPiece, ...] = ()
    writes: tuple[LentPiece, ...] = ()
    beside: tuple[Copies, ...] = ()


class Lend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The descriptor beside this message is that of region `region`; parts may refer to the region until `TakeBack`."""

    region: int


class TakeBack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    region: int


class Retire(msgspec.Struct, frozen=True, array_like=True, tag=True):
    epoch: int


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop stages that no epoch has and that compute on one of `cores`; answered by `Forgotten`."""

    cores: tuple[int, ...]


class Repace(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The speed of this worker's place has changed: a wait for emulation that has begun goes by the new speed.

    `at_once`: from now on the worker waits for nothing, as its place was taken down.
    """

    at_once: bool


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tell a relay that its far end listens at `endpoint`, and authenticates itself by this key (CURVE, Z85)."""

    endpoint: str
    public_key: str


ToWorker: TypeAlias = Prepare | Run | Retire | Forget | Repace | Lend | TakeBack | Connect

# --- worker -> daemon -----------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    incarnation: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`frame_bytes`: weights, inputs and outputs that one frame moves. `private_bytes`: memory that the build added.

    `difference`: by how much rounding on the place's devices changes the stage's outputs, relative to their largest
    value. `alone`: why the stage computes one frame at a time, if a larger batch was requested.
    """

    epoch: int
    stage: int
    incarnation: int
    build_s: float
    warm_s: float
    private_bytes: int
    frame_bytes: int
    difference: float = 0.0
    alone: str = ""


class PrepareFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`bad_machine`: the machine file promises what this host does not have; `reason` says what to correct."""

    epoch: int
    stage: int
    incarnation: int
    reason: str
    bad_machine: bool = False


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`service_s`: from start to end of the run; `cpu_s`: of the engine's threads; `waited_s`: idle before it.

    All in real seconds of this host. On an emulated place a part starts when its input is there and the previous part
    is done, and ends when it is due. `dropped_s`: lateness that the place will not make up for. `segments_s`: times of
    each segment of a placed stage on its emulated device, transfers included; empty for any other stage.
    """

    part: Descriptor
    service_s: float
    cpu_s: float
    waited_s: float
    dropped_s: float = 0.0
    segments_s: tuple[float, ...] = ()


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    incarnation: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    part: Descriptor
    reason: str


class Hail(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay's first message: its far end will know it by this key (CURVE, Z85). It then waits for `Connect`."""

    incarnation: int
    public_key: str


class LinkSeen(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay's measurement of the link to its far end and back: before the relay is ready, and periodically."""

    incarnation: int
    speed: LinkSpeed


FromWorker: TypeAlias = Ready | Prepared | PrepareFailed | Forgotten | Done | Failed | Hail | LinkSeen


class WorkerConfig(msgspec.Struct, frozen=True):
    """What a worker process is started with (JSON, its only argument).

    `time_scale`, `bandwidth_bytes_per_s` and `budget_fd` describe its place's machine and memory (see
    `process.budgets`); the speeds of the place and of its devices are on the board. `model_folders`: for each layout,
    the folder of the cleaned model, which a place with `devices` cuts, and which other engines run whole; `scales`: the
    file there with the int8 scales. `engine_folders`: one for each layout; `output_bytes` as in
    `process.layout.Layout`. `max_worker_bytes`: the most memory that frames may make the worker use beyond its stages;
    None: half of its host's memory.
    """

    place: str
    place_index: int
    place_count: int
    cores: tuple[int, ...]
    threads: int
    incarnation: int
    channel_fd: int
    engine_folders: tuple[str, ...]
    arena_fd: int
    slot_count: int
    parent_pid: int
    time_scale: float = 1.0
    bandwidth_bytes_per_s: float | None = None
    budget_fd: int | None = None
    model_folders: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    scales: str = scales_file()
    output_bytes: int = OUTPUT_BYTES
    max_worker_bytes: int | None = None


FAR_END_GONE: Final = 75
"""The exit status of a relay whose far end is gone, through no fault of what ran there."""


LARGEST_PING_BYTES: Final = 1 << 24


class FarConfig(msgspec.Struct, frozen=True):
    """What a far end is started with (JSON, its only argument): it runs the worker of a place on another host.

    `worker`: as the relay's, with the folders of the far host; its descriptors and `parent_pid` mean nothing. `listen`:
    the address to listen at, on any free port. `near_key`: the only relay that it serves (CURVE, Z85). `parent_pid`:
    the process with which the far end ends.
    """

    worker: WorkerConfig
    listen: str
    near_key: str
    parent_pid: int


class FarUp(msgspec.Struct, frozen=True):
    """The one line that a far end writes to its standard output (JSON) once it listens."""

    endpoint: str
    public_key: str


TO_WORKER: Final[Codec[ToWorker]] = Codec(ToWorker)
FROM_WORKER: Final[Codec[FromWorker]] = Codec(FromWorker)
