"""Messages between the daemon and its profiler's process, which measures a model once and then has no more to do."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from shisha_rt.core.tuning.tuner_messages import StoredCosts
from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.costs.links import HostLink
from shisha_rt.costs.profiles import Setting
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.process.codec import Codec


class ProfileModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measure a model on `machine`, whose spare places are not up.

    `folders`: of the model and of the engine, for each shape in which the model is served. `teams`: measure teams of
    places, too. `remote` and `far`: for places on other hosts, the settings that their times depend on, and their
    links. `replicate`: plans may have copies and teams. `renew`: measure again what was measured while others used the
    cores. `engines`: run the whole network on each installed engine first, with `precision` "any" also on those that
    change results. `most_batch`: the largest batch, which may take `run_s` at most; layers are measured in batches if
    the whole network was faster so. `latency_s`: the longest unloaded latency of a plan for energy.
    """

    name: str
    folders: tuple[tuple[str, str], ...]
    teams: bool
    replicate: bool
    machine: Machine
    remote: dict[str, Setting] = {}
    far: dict[str, HostLink] = {}
    renew: bool = False
    engines: bool = False
    precision: str = "exact"
    most_batch: int = 1
    run_s: float = math.inf
    latency_s: float = math.inf


class EnginesCompared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Results of running the whole network on each engine. Layers are measured once the daemon says so."""

    tried: EnginesTried


class MeasureLayers(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measure layers now: the daemon has used the results of `EnginesCompared`."""


class ModelProfiled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Measured costs of layers, in seconds of measurements, and the best plans by them; `took_s`: how long it took.

    `left_out`: how many teams could not be measured, as frames had their cores. `others_ratio`: the largest share of
    the cores that others used during any of the measurements.
    """

    costs: StoredCosts
    by_costs: tuple[tuple[Objective, Plan], ...]
    took_s: float
    left_out: int = 0
    others_ratio: float = 0.0


class NotProfiled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The model cannot be profiled; `reason` is one line."""

    reason: str


class AnotherMeasures(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Another process measures on this host, and one does at a time. `seconds`: of the wait; None: it has begun."""

    seconds: float | None


ToProfiler: TypeAlias = ProfileModel | MeasureLayers
FromProfiler: TypeAlias = EnginesCompared | ModelProfiled | NotProfiled

TO_PROFILER: Final[Codec[ToProfiler]] = Codec(ToProfiler)
FROM_PROFILER: Final[Codec[FromProfiler | AnotherMeasures]] = Codec(FromProfiler | AnotherMeasures)
