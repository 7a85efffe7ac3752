"""Every message between the daemon and a worker: short, typed, and the only ones there are.

An exception of a worker becomes one line of text before it crosses.
"""

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
    """Build and warm the runs of layers `work` as this worker's part of a `stage` of `epoch`, beside what runs now: in
    each of the shapes that the model is served in.

    `modelled_cpu_s`: CPU seconds by which an emulated place paces each frame; 0: by what the run really took.
    `placement` names the device of each of the stage's operators; empty on a place without devices. `cores` and
    `threads` are those of a whole team of several places, this worker's first; none: the place's own. `split`: of a
    shard, or of the join behind shards. `engine`: what computes it on a place without devices. `batch`: for runs of up
    to so many frames.
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
    """What `Run` says of its first frame, of another one."""

    reads: tuple[LentPiece, ...]
    writes: tuple[LentPiece, ...]


class Run(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute a part, in a slot of this layout; or several frames' at once.

    `ready_ns`: since when the input has been there for this worker, on CLOCK_MONOTONIC; 0: since it got the message.
    `reads`: inputs to copy into the slot first; `writes`: outputs to copy out of it at the end. `beside`: the same of
    the part's further frames; empty if there is nothing of any.
    """

    part: Descriptor
    layout: int
    ready_ns: int = 0
    reads: tuple[LentPiece, ...] = ()
    writes: tuple[LentPiece, ...] = ()
    beside: tuple[Copies, ...] = ()


class Lend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The region of this number is the descriptor beside this message; parts may name it until `TakeBack`."""

    region: int


class TakeBack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    region: int


class Retire(msgspec.Struct, frozen=True, array_like=True, tag=True):
    epoch: int


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget stages that no epoch has and that compute on one of `cores`; `Forgotten` says that it is done."""

    cores: tuple[int, ...]


class Repace(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The speed of this worker's place has changed: a wait that has begun goes by the new one.

    `at_once`: from now on it waits for nothing, as its place was taken down.
    """

    at_once: bool


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tell a relay that its far end listens at `endpoint`, and proves itself by this key (CURVE, Z85)."""

    endpoint: str
    public_key: str


ToWorker: TypeAlias = Prepare | Run | Retire | Forget | Repace | Lend | TakeBack | Connect

# --- worker -> daemon -----------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    incarnation: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`frame_bytes`: weights, inputs and outputs that one frame moves. `private_bytes`: what the build added.

    `difference`: by how much rounding on its devices changes the stage's outputs, relative to their largest value.
    `alone`: why its runs have one frame, where more were asked for.
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
    """`bad_machine`: the machine file promises what this host cannot keep; the reason says what to mend."""

    epoch: int
    stage: int
    incarnation: int
    reason: str
    bad_machine: bool = False


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`service_s`: from start to end of the run; `cpu_s`: of the engine's threads; `waited_s`: idle before it.

    All as they passed here. On an emulated place a part starts when its input is there and the last part is done, and
    ends when it is due. `dropped_s`: lateness that the place has given up making up for. `segments_s`: what each
    segment of a placed stage took, transfers included, as its device is emulated; empty for any other stage.
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
    """A relay's first message: by this key (CURVE, Z85) its far end will know it. It then waits for `Connect`."""

    incarnation: int
    public_key: str


class LinkSeen(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a relay has measured of the way to its far end and back: before it is ready, and again every so often."""

    incarnation: int
    speed: LinkSpeed


FromWorker: TypeAlias = Ready | Prepared | PrepareFailed | Forgotten | Done | Failed | Hail | LinkSeen


class WorkerConfig(msgspec.Struct, frozen=True):
    """What a worker process is started with (JSON, its only argument).

    `time_scale` and the two after it are of its place's machine and memory (see `process.budgets`); the speeds of the
    place and of its devices are on the board. `model_folders`, one for each layout, have the cleaned model, which a
    place with `devices` cuts, and other engines run whole; `scales` is the file there with its scales in int8.
    `engine_folders`: one for each layout; `output_bytes` as in `process.layout.Layout`. `max_worker_bytes`: what frames
    may make it take beyond its stages; None: half of its host's memory.
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
"""The exit status of a relay whose far end is gone, by no fault of what ran there."""


LARGEST_PING_BYTES: Final = 1 << 24


class FarConfig(msgspec.Struct, frozen=True):
    """What a far end is started with (JSON, its only argument): a worker's host for a place that the daemon has not.

    `worker`: as the relay's, with the folders of the far host; its descriptors and `parent_pid` mean nothing. `listen`:
    the address to listen at, on any free port. `near_key`: the only relay that it serves (CURVE, Z85). `parent_pid`: it
    dies with that process. `speed`: of the place, as the board has it.
    """

    worker: WorkerConfig
    listen: str
    near_key: str
    parent_pid: int
    speed: float = 1.0


class FarUp(msgspec.Struct, frozen=True):
    """The one line that a far end writes to its standard output (JSON) once it listens."""

    endpoint: str
    public_key: str


TO_WORKER: Final[Codec[ToWorker]] = Codec(ToWorker)
FROM_WORKER: Final[Codec[FromWorker]] = Codec(FromWorker)
