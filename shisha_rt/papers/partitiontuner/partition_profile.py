"""What partitions take on the devices of a place: from the profile store, or measured first (PartitionTuner, 3.1).

A partition is an operator by itself, or a group of a pattern that the user names. The store keeps a row for each
partition's id on each measured device, so that networks share them, and whatever groups are asked for next, only what
is new is measured. Beside `measure.device_profile`, which parts computing from moving, these are the paper's costs:
each partition is a session of its own, whose time includes taking plain tensors in and handing plain tensors out.
That a device cannot run a partition, which only trying shows, is kept as infinite seconds.

A partition that is missing for one device is measured on all of them: their times are to be compared. Shell.
"""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.cache import cache_folder
from shisha_rt.costs.fingerprint import fingerprint_within
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, described_costs
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.profile import PlaceClass, Tell, class_of, measure, profile_of, turn
from shisha_rt.measure.profile_store import FILE_NAME, ProfileStore
from shisha_rt.messages.calibration import SpanTime
from shisha_rt.messages.partition_profiling import PartitionProfilingJob, PartitionsTimed
from shisha_rt.model.reader.onnx_reader import read_saved
from shisha_rt.papers.partitiontuner.partition_ids import operator_ids, partition_id
from shisha_rt.placement.operator_groups import DEFAULT_PATTERNS, Pattern, operator_groups

_BUDGET_S: Final = 8.0
_MIN_ROUNDS: Final = 5
_MAX_ROUNDS: Final = 60
_MOST_AT_ONCE: Final = 256
"""Partitions that are measured before they are kept: what interrupts thousands of them does not lose all."""

_CANNOT: Final = Profile(math.inf, math.inf, spread_s=0.0, runs=0, moved_bytes=0)

_Partition = tuple[int, ...]
"""Operators, ascending."""


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """`costs`: raw, before the place's speed; of measured devices transfers included, of described ones their formulas.

    `partitions` of the model have `distinct` ids, of which `measured` were not known yet; that took `seconds`.
    """

    costs: OperatorCosts
    partitions: int
    distinct: int
    measured: int
    seconds: float

    @property
    def in_words(self) -> str:
        """One line."""
        new = f"{self.measured} measured in {self.seconds:.3g} s" if self.measured else "all measured before"
        return f"{self.partitions} partitions, {self.distinct} of them distinct, {new}"


def profile_partitions(
    compiled: Compiled,
    machine: Machine,
    place: Place,
    devices: tuple[Device, ...],
    patterns: Sequence[Pattern] = DEFAULT_PATTERNS,
    on_progress: Tell | None = None,
    *,
    store: ProfileStore | None = None,
) -> PartitionProfile:
    """The costs of a model's operators and of its groups of `patterns` on the devices of a place.

    `place` and `store` as in `profile_devices`. Described devices have the groups of their descriptions.
    Raises BadInput where this host has too few cores for the place's threads; Failure where measuring fails.
    """
    graph = compiled.model.graph
    costs = described_costs(graph, devices)
    measured = tuple(device for device in devices if not device.described)
    if not measured:
        return PartitionProfile(costs, 0, 0, 0, 0.0)
    singles: list[_Partition] = [(operator,) for operator in range(len(graph.operators))]
    partitions = [*singles, *operator_groups(graph, patterns)]
    ids = operator_ids(graph, read_saved(compiled.model.name, compiled.model_folder).proto)
    id_of = {partition: partition_id(ids, partition) for partition in partitions}
    first_of = {partition_key: partition for partition, partition_key in reversed(id_of.items())}
    sitting = _Sitting(compiled, place, class_of(place, machine, compiled), measured, on_progress or (lambda _: None))
    new, seconds = 0, 0.0
    with nullcontext(store) if store is not None else ProfileStore(cache_folder() / FILE_NAME) as store:
        known = sitting.known(store, first_of)
        if not all(partition_key in known for partition_key in first_of):
            with turn():
                known = sitting.known(store, first_of)
                missing = {
                    partition_key: first for partition_key, first in first_of.items() if partition_key not in known
                }
                if missing:
                    start_s = time.monotonic()
                    sitting.measure(store, missing)
                    new, seconds = len(missing), time.monotonic() - start_s
                known = sitting.known(store, first_of)
    groups = list(costs.groups)
    for partition, partition_key in id_of.items():
        for device, time_s in zip(measured, known[partition_key], strict=True):
            column = devices.index(device)
            if len(partition) == 1:
                costs.time_s[partition[0], column] = time_s
            elif math.isfinite(time_s):
                groups.append(GroupCost(partition, column, time_s))
    return PartitionProfile(replace(costs, groups=tuple(groups)), len(partitions), len(first_of), new, seconds)


@dataclass(frozen=True, slots=True)
class _Sitting:
    """What partitions of a model on a place are measured with, and where the store has them."""

    compiled: Compiled
    place: Place
    place_class: PlaceClass
    devices: tuple[Device, ...]
    tell: Tell

    def known(self, store: ProfileStore, ids: Mapping[str, _Partition]) -> dict[str, tuple[float, ...]]:
        """Id -> (devices,) seconds, for those that the store has on all devices."""
        rows = []
        for device, setting in self._settings():
            signed = {partition_key: _signed(partition_key, device) for partition_key in ids}
            profiles = store.find(setting, signed.values())
            times_s = {
                partition_key: _time_s(profiles[key], setting)
                for partition_key, key in signed.items()
                if key in profiles
            }
            rows.append(times_s)
        return {
            partition_key: tuple(times_s[partition_key] for times_s in rows)
            for partition_key in ids
            if all(partition_key in t for t in rows)
        }

    def measure(self, store: ProfileStore, missing: Mapping[str, _Partition]) -> None:
        """Into the store."""
        listed = [*missing.items()]
        for start in range(0, len(listed), _MOST_AT_ONCE):
            some = listed[start : start + _MOST_AT_ONCE]
            times = self._timed([partition for _, partition in some], len(missing)).times
            for column, (device, setting) in enumerate(self._settings()):
                profiles = {
                    _signed(partition_key, device): _profile(row[column])
                    for (partition_key, _), row in zip(some, times, strict=True)
                }
                store.add(setting, profiles)

    def _settings(self) -> Iterator[tuple[Device, Setting]]:
        for device in self.devices:
            version = importlib.metadata.version(device.engine)
            threads = device.threads_on(self.place.threads)
            yield device, replace(self.place_class.setting, engine=device.name, engine_version=version, threads=threads)

    def _timed(self, partitions: Sequence[_Partition], in_all: int) -> PartitionsTimed:
        job = PartitionProfilingJob(
            model_folder=str(self.compiled.model_folder),
            cores=self.place_class.cores,
            threads=self.place.threads,
            devices=self.devices,
            partitions=tuple(partitions),
            neighbours=self.place_class.neighbours,
            lead=self.place_class.lead,
            budget_s=_BUDGET_S,
            min_rounds=_MIN_ROUNDS,
            max_rounds=_MAX_ROUNDS,
        )
        count = f"{len(partitions)} of {in_all} partitions" if len(partitions) < in_all else f"{in_all} partitions"
        names = ", ".join(device.name for device in self.devices)
        subject = f"{count} of {self.compiled.model.name} under {names}"
        return measure(subject, "stages.jobs.profile_partitions", job, PartitionsTimed, self.tell)


def _signed(partition_key: str, device: Device) -> str:
    return fingerprint_within(partition_key, "partition", device.engine, device.precision)


def _profile(time: SpanTime | None) -> Profile:
    return _CANNOT if time is None else profile_of(time)


def _time_s(profile: Profile, setting: Setting) -> float:
    """One thread's CPU time leaves out what others take from its core; of several, the last one's end counts."""
    return profile.cpu_s if setting.threads == 1 else profile.wall_s
