"""Times of partitions on the devices of a place: from the profile store, or measured first (PartitionTuner, 3.1).

A partition is a single operator, or a group of a pattern that the user names. The store has a row for each partition's
id on each measured device: networks share rows, and only new partitions are measured. Unlike the times of
`measure.device_profile`, which separates computing from moving, these are the paper's costs: each partition is a
session of its own, whose time includes its inputs and outputs as plain tensors. A device that turns out to be unable to
run a partition is stored with infinite seconds.

A partition without a row for some device is measured on all devices, as their times are compared.

`processor_costs` has the costs of a whole model on the places of a machine, the input of schemes. Shell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.costs.fingerprint import fingerprint_within
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts, described_costs
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compile import Tell, proto_of, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.costs_of_model import layer_costs, told_costs
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.place_class import PlaceClass, class_of
from shisha_rt.measure.profile import profile_of
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.measure.sitting import Sitting, known_or_measured, measure
from shisha_rt.messages.device_profiling import PartitionProfilingJob, PartitionsTimed
from shisha_rt.papers.partitiontuner.partition_ids import operator_ids, partition_id
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_devices, costs_of_layers
from shisha_rt.placement.operator_groups import DEFAULT_PATTERNS, Pattern, operator_groups, parse_patterns

MOST_AT_ONCE: Final = 256
"""Most partitions measured before they are stored, so that an interruption does not lose thousands of them."""

_CANNOT: Final = Profile(math.inf, math.inf, spread_s=0.0, runs=0, moved_bytes=0)

_Partition = tuple[int, ...]
"""Operators, ascending."""


CostsT = TypeVar("CostsT", OperatorCosts, ProcessorCosts)


@dataclass(frozen=True, slots=True)
class PartitionProfile(Generic[CostsT]):
    """`costs`: of operators on a place of speed 1, or of a model, as schemes take them. Those of measured devices
    include transfers; those of described devices follow formulas.

    The model's `partitions` have `distinct` ids, of which `measured` were missing in the store and took `seconds`.
    """

    costs: CostsT
    partitions: int
    distinct: int
    measured: int = 0
    seconds: float = 0.0

    @property
    def in_words(self) -> str:
        new = f"{self.measured} measured in {self.seconds:.3g} s" if self.measured else "all measured before"
        return f"{self.partitions} partitions, {self.distinct} of them distinct, {new}"


def profile_partitions(
    compiled: Compiled,
    machine: Machine,
    place: Place,
    devices: tuple[Device, ...],
    patterns: Sequence[Pattern] = DEFAULT_PATTERNS,
    on_progress: Tell = silent,
    *,
    store: ProfileStore | None = None,
) -> PartitionProfile[OperatorCosts]:
    """The costs of a model's operators and of its groups of `patterns` on the devices of a place.

    `place` and `store` as in `profile_devices`. Described devices have the groups of their descriptions.
    Raises BadInput if this host has too few cores for the place's threads; Failure if measuring fails.
    """
    graph = compiled.model.graph
    costs = described_costs(graph, devices)
    measured = tuple(device for device in devices if not device.described)
    if not measured:
        return PartitionProfile(costs, 0, 0)
    partitions: list[_Partition] = [(operator,) for operator in range(len(graph.operators))]
    partitions += operator_groups(graph, patterns)
    ids = operator_ids(graph, proto_of(compiled))
    id_of = {partition: partition_id(ids, partition) for partition in partitions}
    first_of = {partition_key: partition for partition, partition_key in reversed(id_of.items())}
    place_class = class_of(place, machine, compiled)
    new, seconds = 0, 0.0
    with nullcontext(store) if store is not None else ProfileStore() as store:
        stored = _StoredTimes(compiled, place_class, measured, store, on_progress)

        def measure_all(missing: Mapping[str, _Partition]) -> None:
            nonlocal new, seconds
            start_s = time.monotonic()
            stored.measure(missing)
            new, seconds = len(missing), time.monotonic() - start_s

        def missing_of(known: Mapping[str, object]) -> dict[str, _Partition]:
            return {key: first for key, first in first_of.items() if key not in known}

        known = known_or_measured(lambda: stored.known(first_of), missing_of, measure_all, Sitting(on_progress))
    columns = [devices.index(device) for device in measured]
    times_s = {partition: known[partition_key] for partition, partition_key in id_of.items()}
    return PartitionProfile(_with_times(costs, columns, times_s), len(partitions), len(first_of), new, seconds)


def _with_times(
    costs: OperatorCosts, columns: Sequence[int], times_s: Mapping[_Partition, Sequence[float]]
) -> OperatorCosts:
    """The costs with measured times of single operators and groups, on the devices of these columns."""
    time_s, groups = costs.time_s.copy(), list(costs.groups)
    for partition, seconds in times_s.items():
        for column, taken_s in zip(columns, seconds, strict=True):
            if len(partition) == 1:
                time_s[partition[0], column] = taken_s
            elif math.isfinite(taken_s):
                groups.append(GroupCost(partition, column, taken_s))
    return replace(costs, time_s=time_s, groups=tuple(groups))


@dataclass(frozen=True, slots=True)
class _StoredTimes:
    """Measures partitions of a model on a place, and reads and writes their times in the store."""

    compiled: Compiled
    place_class: PlaceClass
    devices: tuple[Device, ...]
    store: ProfileStore
    tell: Tell

    def known(self, ids: Mapping[str, _Partition]) -> dict[str, tuple[float, ...]]:
        """Id -> (devices,) seconds, for partitions that the store has on all devices."""
        rows = []
        for device, setting in self._settings():
            signed = {partition_key: _signed(partition_key, device) for partition_key in ids}
            profiles = self.store.find(setting, signed.values())
            times_s = {
                partition_key: _time_s(profiles[key], setting)
                for partition_key, key in signed.items()
                if key in profiles
            }
            rows.append(times_s)
        return {
            partition_key: tuple(times_s[partition_key] for times_s in rows)
            for partition_key in ids
            if all(partition_key in times_s for times_s in rows)
        }

    def measure(self, missing: Mapping[str, _Partition]) -> None:
        """Measure the missing partitions, and store their times."""
        listed = [*missing.items()]
        for start in range(0, len(listed), MOST_AT_ONCE):
            some = listed[start : start + MOST_AT_ONCE]
            times = self._timed([partition for _, partition in some], len(missing)).times
            for column, (device, setting) in enumerate(self._settings()):
                profiles = {
                    _signed(partition_key, device): _CANNOT if (time := row[column]) is None else profile_of(time)
                    for (partition_key, _), row in zip(some, times, strict=True)
                }
                self.store.add(setting, profiles)

    def _settings(self) -> Iterator[tuple[Device, Setting]]:
        return ((device, self.place_class.setting_on(device)) for device in self.devices)

    def _timed(self, partitions: Sequence[_Partition], in_all: int) -> PartitionsTimed:
        job = self.place_class.job(
            PartitionProfilingJob,
            model_folder=str(self.compiled.model_folder),
            devices=self.devices,
            partitions=tuple(partitions),
        )
        count = f"{len(partitions)} of {in_all} partitions" if len(partitions) < in_all else f"{in_all} partitions"
        names = ", ".join(device.name for device in self.devices)
        subject = f"{count} of {self.compiled.model.name} under {names}"
        return measure(subject, "stages.jobs.profile_partitions", job, PartitionsTimed, self.tell)


def _signed(partition_key: str, device: Device) -> str:
    return fingerprint_within(partition_key, "partition", device.engine, device.precision)


def _time_s(profile: Profile, setting: Setting) -> float:
    """CPU time for one thread, as it excludes other processes; wall time for several, as the last one's end counts."""
    return profile.cpu_s if setting.threads == 1 else profile.wall_s


def processor_costs(
    ready: ModelOnMachine, on_progress: Tell = silent, groups: Sequence[str] = ()
) -> PartitionProfile[ProcessorCosts]:
    """Costs of layers or, on a machine with devices, of partitions; measured if they are not known.

    `groups`: patterns as in `--group`; by default the paper's. Raises BadInput for a place with several devices, for
    groups if nothing is measured, and as measuring does.
    """
    compiled, machine, patterns = ready.compiled, ready.machine, parse_patterns(groups)
    if groups and all(operator_cost.devices[0].described for operator_cost in ready.operator_costs.values()):
        raise BadInput(
            f"group {groups[0]}: {machine.source} has no measured devices, expected no groups to measure",
            Error.DEVICE_UNFIT,
        )
    handover_s = HANDOVER_S / machine.time_scale
    if not ready.operator_costs:
        predicted = told_costs(layer_costs(ready, on_progress), machine.time_scale)
        processors = costs_of_layers(predicted, compiled.needs, handover_s)
        return PartitionProfile(processors, len(processors.spans), len(processors.spans))
    graph = compiled.model.graph
    checked = costs_of_devices(graph, machine, ready.operator_costs, handover_s)
    alone: dict[str, OperatorCosts] = {}
    measured, seconds = 0, 0.0
    together = {group.operators for group in checked.groups}
    for name, operator_cost in ready.operator_costs.items():
        if not operator_cost.devices[0].described:
            profile = profile_partitions(
                compiled, machine, machine.place(name), operator_cost.devices, patterns, on_progress
            )
            alone[name] = profile.costs
            together.update(group.operators for group in profile.costs.groups)
            measured, seconds = measured + profile.measured, seconds + profile.seconds
    costs = costs_of_devices(graph, machine, ready.operator_costs, handover_s, alone)
    partitions = [*((node,) for node in range(len(graph.operators))), *together]
    ids = operator_ids(graph, proto_of(compiled))
    return PartitionProfile(
        costs, len(partitions), len({partition_id(ids, partition) for partition in partitions}), measured, seconds
    )
