"""What the daemon's journal tells: a record for each kind of event, as the operation `events` hands them out.

`kind` in JSON is the record's tag. Every event in the journal also has a `cause`: what had come to the daemon (from a
client, a worker, a signal, ...) when it was written. What concerns a plan names its `proposal` (whose it is, and their
own number for it), and what had come when that was made: so a trial leads back to the plan that went live, and on.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


def _kind(name: str) -> str:
    """`PlanLive` -> `plan_live`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


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
    place: str
    incarnation: int
    reason: str


class WorkerKilled(Record, frozen=True):
    place: str
    incarnation: int
    reason: str


class PartRaised(Record, frozen=True, tag="part_failed"):
    """`place`: whose worker it was; of a stage with copies that is one of several."""

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
    """A place that was taken down is free for others: no thread of the daemon has its cores in its mask."""

    place: str


class PlaceBroughtUp(Record, frozen=True, tag="place_up"):
    place: str


class PlaceGivenUp(Record, frozen=True):
    place: str
    reason: str


class PlacesAllotted(Record, frozen=True):
    """What this daemon may use of its host has changed: places that it has taken, and such as it has given up."""

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


class ProfilingEnded(Record, frozen=True):
    """`left_out`: the teams that could not be measured beside the frames."""

    seconds: float
    left_out: int = 0


class ProfilingFailed(Record, frozen=True):
    reason: str


class ProfilerEnded(Record, frozen=True, tag="profiler_died"):
    reason: str


class HttpEnded(Record, frozen=True, tag="http_died"):
    reason: str


class TracerEnded(Record, frozen=True, tag="tracer_died"):
    reason: str


class ClusterEnded(Record, frozen=True, tag="cluster_died"):
    """The process that is the daemon's part in a Ray cluster; another joins it anew."""

    reason: str


class HostCame(Record, frozen=True):
    """A host has the place from now on; it is started there."""

    place: str
    host: str


class HostLost(Record, frozen=True):
    place: str
    reason: str


class LinkChanged(Record, frozen=True):
    """The way to a place's host and back, as measured."""

    place: str
    there_latency_s: float
    there_bytes_per_s: float
    back_latency_s: float
    back_bytes_per_s: float


class AccessRead(Record, frozen=True):
    """The allow-list, again."""

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

    `plan` serves now; None: a plan is searched for. `utilisation`: of the plan for latency.
    """

    objective: str
    reason: str
    plan: str | None
    utilisation: float


class ComparisonBegan(Record, frozen=True):
    """Candidates are tried live against the plan that serves, in turns with it. `candidates`: their names."""

    objective: str
    plan: str
    candidates: tuple[str, ...]


class PlansCompared(Record, frozen=True):
    """A candidate was tried against the plan that served, `against`, whose name it is.

    `ratio`: over 1 where the candidate is faster, from so many `pairs` of windows. `seconds` and `against_seconds`: of
    a frame, under a standing backlog (throughput) or by itself (latency), as it left the workers. `verdict`: better,
    not_better, no_load (nothing can be said) or cannot_run, of which `reason` says why.
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
    """`plan` is the best of so many `candidates`, that which served first included, and serves on."""

    objective: str
    plan: str
    name: str
    candidates: int


class EnginesFound(Record, frozen=True):
    """What each engine makes of the whole network: `usable` ones may serve; of others `left_out` says why."""

    usable: tuple[str, ...]
    left_out: dict[str, str]


class OwnFramesBegan(Record, frozen=True):
    """Nobody sends frames: the daemon computes some of its own, to compare plans for this objective."""

    objective: str


class OwnFramesEnded(Record, frozen=True):
    """`seconds`: for which it has computed frames of its own so far, in all."""

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
    """`trouble`: why the plan could not go live; then nothing was measured. `latency_s`: of a frame by itself.
    `energy_j`: joules of a frame, by the power that the machine file states.

    `service_s`: of a stage with copies, what they would take if they were alike.
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
    """`taken_over`: its daemon was there already, of a host process that has died."""

    taken_over: bool = False


class ModelEnded(_OfModel, frozen=True):
    reason: str


class ModelGivenUp(_OfModel, frozen=True):
    reason: str


class ModelReplaced(_OfModel, frozen=True):
    """Requests go to this version now, and no more to the one `before`."""

    before: str


class ModelShadowed(_OfModel, frozen=True):
    """What frames that the version before answered came to in this one: see `messages.shadow.ShadowEnds`."""

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


AnyRecord: TypeAlias = (
    Readied
    | Draining
    | WorkerStarted
    | WorkerEnded
    | WorkerKilled
    | PartRaised
    | PlanPreparing
    | PlanLive
    | PlanRefused
    | PlanDropped
    | Replanned
    | PlaceTakenDown
    | PlaceLeft
    | PlaceBroughtUp
    | PlaceGivenUp
    | PlacesAllotted
    | PlaceMissed
    | PlaceIsBack
    | PlaceSpeed
    | DeviceSpeed
    | DeviceRatio
    | PlacementSolved
    | PlacedAtOnce
    | PlacementRefused
    | PlacerEnded
    | TunerEnded
    | ProfilingBegan
    | ProfilingEnded
    | ProfilingFailed
    | ProfilerEnded
    | HttpEnded
    | TracerEnded
    | AccessRead
    | TuningBegan
    | ObjectiveChanged
    | ComparisonBegan
    | PlansCompared
    | ComparisonEnded
    | EnginesFound
    | OwnFramesBegan
    | OwnFramesEnded
    | TuningResumed
    | TuningPaused
    | TuningEnded
    | TrialJudged
    | Drifted
    | ModelStarting
    | ModelServes
    | ModelEnded
    | ModelGivenUp
    | ModelReplaced
    | ModelShadowed
    | ModelUnloaded
    | PlaceDealt
    | PlaceTakenBack
)
