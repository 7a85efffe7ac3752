"""The daemon's event log: a record for each kind of event, as the operation `events` returns them.

`kind` in JSON is the record's tag. Every event in the log also has a `cause`: what the daemon was handling (a message
of a client or a worker, a signal, ...) when the event was written. A record about a plan names its `proposal` (the
owner, and the owner's number for it), and in `proposed_on` the cause of that proposal. So a trial can be traced back to
the plan that was live before it, and so on.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec


def _kind(name: str) -> str:
    """`PlanLive` -> `plan_live`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def if_finite(value: float) -> float | None:
    """JSON, the form in which clients read records, has neither nan nor infinity."""
    return value if math.isfinite(value) else None


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_kind):
    pass


class Readied(Record, frozen=True, tag="ready"):
    endpoint: str
    metrics: str


class Draining(Record, frozen=True):
    in_flight: int


class WorkerStarted(Record, frozen=True):
    place: str
    incarnation: int


class WorkerEnded(Record, frozen=True, tag="worker_gone"):
    """`dismissed`: nothing has failed, as its place was taken out of planning."""

    place: str
    incarnation: int
    reason: str
    dismissed: bool = False


class WorkerKilled(Record, frozen=True):
    """`dismissed`: as in `WorkerEnded`."""

    place: str
    incarnation: int
    reason: str
    dismissed: bool = False


class PartRaised(Record, frozen=True, tag="part_failed"):
    """A worker failed to compute a part. `place`: that worker's; one of several if the stage has copies."""

    frame: int
    stage: int
    epoch: int
    reason: str
    place: str = ""


class PlanPreparing(Record, frozen=True):
    epoch: int
    plan: str
    proposal: str = ""
    proposed_on: str = ""


class _PlanSettled(Record, frozen=True):
    epoch: int | None
    plan: str | None
    reason: str
    proposal: str = ""
    proposed_on: str = ""


class PlanLive(_PlanSettled, frozen=True):
    pass


class PlanRefused(_PlanSettled, frozen=True):
    pass


class PlanDropped(_PlanSettled, frozen=True):
    pass


class Replanned(Record, frozen=True, tag="replan"):
    reason: str
    plan: str


class PlaceTakenDown(Record, frozen=True, tag="place_down"):
    place: str


class PlaceLeft(Record, frozen=True, tag="place_released"):
    """A place that was taken down is free for others: no thread of the daemon has its cores in its affinity mask."""

    place: str


class PlaceBroughtUp(Record, frozen=True, tag="place_up"):
    place: str


class PlaceGivenUp(Record, frozen=True):
    place: str
    reason: str


class PlacesAllotted(Record, frozen=True):
    """What this daemon may use of its host has changed. `taken`: places now in use; `released`: places given up."""

    taken: tuple[str, ...]
    released: tuple[str, ...]
    why: str


class PlaceMissed(Record, frozen=True):
    """The worker of `place` is overdue: plans are made without the place until the worker is back."""

    place: str


class PlaceIsBack(Record, frozen=True):
    place: str


class PlaceSpeed(Record, frozen=True):
    place: str
    speed: float
    before: float


class DeviceSpeed(Record, frozen=True):
    place: str
    device: str
    speed: float


class DeviceRatio(Record, frozen=True):
    place: str
    device: str
    ratio: float


class StageSegments(msgspec.Struct, frozen=True):
    place: str
    cost_s: float
    segments: str


class PlacementSolved(Record, frozen=True):
    plan: str
    reason: str
    solver: str
    seconds: float
    stages: tuple[StageSegments, ...]


class PlacedAtOnce(Record, frozen=True):
    plan: str


class PlacementRefused(Record, frozen=True):
    reason: str


class PlacerEnded(Record, frozen=True, tag="placer_died"):
    reason: str


class TunerEnded(Record, frozen=True, tag="tuner_died"):
    reason: str


class ProfilingBegan(Record, frozen=True):
    pass


class MeasuringLayers(Record, frozen=True):
    """Engines have been tried on the whole network, and plans compared: from now on layers are measured."""


class ProfilingEnded(Record, frozen=True):
    """`left_out`: how many teams could not be measured, as frames had their cores."""

    seconds: float
    left_out: int = 0


class ProfilingFailed(Record, frozen=True):
    reason: str


class ProfilerWaits(Record, frozen=True):
    """Another process measures on this host. `seconds`: of the wait that is over; None: it begins."""

    seconds: float | None


class ProfilerEnded(Record, frozen=True, tag="profiler_died"):
    reason: str


class HttpEnded(Record, frozen=True, tag="http_died"):
    reason: str


class TracerEnded(Record, frozen=True, tag="tracer_died"):
    reason: str


class ClusterEnded(Record, frozen=True, tag="cluster_died"):
    """The process that connects the daemon to a Ray cluster has ended; a new one joins the cluster again."""

    reason: str


class HostCame(Record, frozen=True):
    """The place can be started on `host`, and is."""

    place: str
    host: str


class HostLost(Record, frozen=True):
    place: str
    reason: str


class LinkChanged(Record, frozen=True):
    """The network link to a place's host (`there`) and back, as measured."""

    place: str
    there_latency_s: float
    there_bytes_per_s: float
    back_latency_s: float
    back_bytes_per_s: float


class AccessRead(Record, frozen=True):
    """The allow-list has been read again. `users`: how many it lists."""

    users: int


class TuningBegan(Record, frozen=True):
    run: int
    reason: str
    plan: str
    alpha: int
    strategy: str = ""
    objective: str = "throughput"


class ObjectiveChanged(Record, frozen=True):
    """The load asks for another objective.

    `plan`: serves now; None: a plan is being searched for. `utilisation`: of the plan for latency.
    """

    objective: str
    reason: str
    plan: str | None
    utilisation: float


class ComparisonBegan(Record, frozen=True):
    """Candidates are compared live with the plan that serves, in alternating windows. `candidates`: their names.

    `reason`: why they are compared again; None for the first time.
    """

    objective: str
    plan: str
    candidates: tuple[str, ...]
    reason: str | None = None


class PlansCompared(Record, frozen=True):
    """A candidate was compared with the plan that served. `name`, `against`: the names of the two.

    `ratio`: above 1 if the candidate is faster, from `pairs` pairs of windows. `seconds` and `against_seconds`: for
    each frame, as frames leave the workers: time between answers while frames are queued (throughput), or unloaded
    latency (latency). `verdict`: better, not_better, no_load (nothing can be said) or cannot_run (`reason` says why).
    """

    objective: str
    plan: str
    name: str
    against: str
    verdict: str
    ratio: float | None
    seconds: float | None
    against_seconds: float | None
    pairs: int
    reason: str | None = None
    stages: tuple[dict[str, Any], ...] = ()


class ComparisonEnded(Record, frozen=True):
    """`plan` is the best of `candidates` plans, the one that served first included, and continues to serve."""

    objective: str
    plan: str
    name: str
    candidates: int


class EnginesFound(Record, frozen=True):
    """Trials of engines on the whole network. `usable`: engines that may serve; `left_out`: others, with reasons."""

    usable: tuple[str, ...]
    left_out: dict[str, str]


class OwnFramesBegan(Record, frozen=True):
    """No client sends frames: the daemon computes frames of its own, to compare plans for this objective."""

    objective: str


class OwnFramesEnded(Record, frozen=True):
    """`seconds`: total time that the daemon has spent on frames of its own so far."""

    frames: int
    seconds: float
    reason: str


class TuningResumed(Record, frozen=True):
    plan: str
    reason: str


class TuningPaused(Record, frozen=True):
    run: int
    reason: str


class TuningEnded(Record, frozen=True):
    run: int
    plan: str
    reason: str
    trials: int
    seconds: float
    throughput_fps: float | None
    latency_s: float | None = None
    energy_j: float | None = None


class TrialJudged(Record, frozen=True, tag="trial"):
    """A plan was measured. `trouble`: why it could not go live; then nothing was measured. `latency_s`: unloaded
    latency. `energy_j`: joules for each frame, by the power that the machine file states.

    `service_s`: (stages,) service times; for a stage with copies, the time that equal copies of the same rate would
    take.
    """

    run: int
    trial: int
    epoch: int | None
    plan: str
    reason: str
    verdict: str
    trouble: str | None
    service_s: tuple[float, ...] | None
    throughput_fps: float | None
    band: float | None
    frames: int
    measured_in_s: float
    latency_s: float | None = None
    energy_j: float | None = None
    proposal: str | None = None
    stages: tuple[dict[str, Any], ...] = ()


class Drifted(Record, frozen=True, tag="drift"):
    stage: int
    place: str
    before_s: float
    service_s: float


class _OfModel(Record, frozen=True):
    model: str
    version: str


class ModelStarting(_OfModel, frozen=True):
    places: tuple[str, ...]


class ModelServes(_OfModel, frozen=True):
    """`taken_over`: the model's daemon was running already; its former host process has died."""

    taken_over: bool = False


class ModelEnded(_OfModel, frozen=True):
    reason: str


class ModelGivenUp(_OfModel, frozen=True):
    reason: str


class ModelReplaced(_OfModel, frozen=True):
    """Requests now go to this version, and no longer to the version `before`."""

    before: str


class ModelShadowed(_OfModel, frozen=True):
    """Frames that the previous version answered were computed by this one, too: see `messages.shadow.ShadowEnds`."""

    compared: int
    different: int
    failed: int
    difference: float
    unlike: float
    reason: str


class ModelUnloaded(_OfModel, frozen=True):
    pass


class PlaceDealt(Record, frozen=True):
    model: str
    place: str


class PlaceTakenBack(Record, frozen=True):
    """A model has given up a place."""

    model: str
    place: str


def _kinds(of: type[Record]) -> list[type[Record]]:
    """The records derived from this one from which none is derived."""
    return [kind for each in of.__subclasses__() for kind in _kinds(each)] or [of]


AnyRecord: Final[Any] = reduce(or_, _kinds(Record))
"""The union of all kinds of records."""
