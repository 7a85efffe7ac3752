"""Costs of a model's operators on the devices of a place: from the profile store, or from profile runs made first.

For each measured device the store has a row for each operator of the whole model, whichever other devices the place
has, and two rows for a tensor that arrives from a different device: one of no bytes, and one of many. A row belongs to
the place's class (see `measure.profile`) and to the device's own number of threads. If any row is missing all runs are
made, because costs that are differences of times, such as that of an arriving tensor, must come from one measurement
session. Described devices have formulas and no rows. An operator that an engine turns out not to run is stored with
infinite seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.costs.fingerprint import fingerprint, fingerprint_within
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compile import Tell, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.place_class import MIN_ROUNDS, PlaceClass, class_of
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.measure.sitting import Sitting, known_or_measured, measure
from shisha_rt.messages.device_profiling import DeviceProfilingJob, Profiled
from shisha_rt.model.graph import Graph
from shisha_rt.placement.build import build_problem
from shisha_rt.placement.check import cost
from shisha_rt.placement.device_profile import DeviceTimes, device_times, runs_to_profile, transfer_of, with_measured
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.profiling import ProfileRuns

log = logging.getLogger(__name__)

_MANY_BYTES: Final = 1 << 20
_CHECK_BUDGET_S: Final = 3.0
_MOST_CHECKS: Final = 4
_CLOSE: Final = 0.05

_Assignments = Sequence[tuple[int, ...]]
"""Assignments of (operators,) to indices of devices."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """`node_runs`, `edge_runs`: numbers of runs that show every cost. `seconds`: their duration; 0 if none was made."""

    costs: OperatorCosts
    node_runs: int = 0
    edge_runs: int = 0
    seconds: float = 0.0


def profile_devices(
    compiled: Compiled,
    machine: Machine,
    place: Place,
    devices: tuple[Device, ...],
    on_progress: Tell = silent,
    *,
    store: ProfileStore | None = None,
) -> DeviceProfile:
    """The raw costs of a model's operators on the devices of a place, without the place's speed.

    `place`: one of the machine's, or a team as `Machine.together` makes it, which has its lead's devices. `store`: open
    already, for callers with several places; by default the cache's is opened.
    Raises BadInput for an operator that no measured device can run, and if this host has fewer cores than the place has
    threads; Failure if a run fails.
    """
    graph = compiled.model.graph
    measured = tuple(device for device in devices if not device.described)
    if not measured:
        return DeviceProfile(with_measured(graph, devices, {}))
    runs = runs_to_profile(graph, measured)
    place_class = class_of(place, machine, compiled)
    rows = _rows(compiled, place_class, measured, runs)
    took_s: list[float] = []

    def profiled(_: bool) -> None:
        start_s = time.monotonic()
        all_runs = _Runs(compiled, place_class, measured, on_progress)
        for row, taken in zip(rows, all_runs.device_times(), strict=True):
            row.write(kept, taken)
        took_s.append(time.monotonic() - start_s)

    with nullcontext(store) if store is not None else ProfileStore() as kept:
        times = known_or_measured(
            lambda: _read(kept, rows), lambda times: times is None, profiled, Sitting(on_progress)
        )
    assert times is not None, "what has been written is there"
    by_name = {device.name: taken for device, taken in zip(measured, times, strict=True)}
    return DeviceProfile(with_measured(graph, devices, by_name), len(runs.node_runs), len(runs.edge_runs), sum(took_s))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Profile runs of a model on a place."""

    compiled: Compiled
    place_class: PlaceClass
    devices: tuple[Device, ...]
    tell: Tell

    def device_times(self) -> tuple[DeviceTimes, ...]:
        """(devices,): times from all runs, and from runs of the best placement, until one is as fast as predicted.

        Of many placements, the one predicted to be best is the one whose cost is most underestimated. Running it
        corrects that: moving tensors then costs more, and a different placement may be best.
        """
        graph = self.compiled.model.graph
        node_runs, profiled = self._all_runs()
        edge_runs = profiled.edge_runs
        known = {*node_runs}
        while True:
            times_of = device_times(graph, self.devices, profiled.node_runs, edge_runs)
            by_name = {device.name: times for device, times in zip(self.devices, times_of, strict=True)}
            problem = build_problem(graph, with_measured(graph, self.devices, by_name))
            best = exact_placement(problem).assignment
            assert best is not None  # every operator can run somewhere
            if best in known or len(known) >= len(node_runs) + _MOST_CHECKS:
                return times_of
            known.add(best)
            (check,) = self._profiled([], [best], budget_s=_CHECK_BUDGET_S).edge_runs
            edge_runs = (*edge_runs, check)
            if sum(part.time_s for part in check) <= (1 + _CLOSE) * cost(problem, best).total_s:
                return times_of

    def _all_runs(self) -> tuple[_Assignments, Profiled]:
        """The node runs, and the times of all runs; made again without the operators that an engine could not run."""
        incapable: list[tuple[int, ...]] = [() for _ in self.devices]
        while True:
            runs = runs_to_profile(self.compiled.model.graph, self.devices, incapable)
            node_runs = [run.assignment for run in runs.node_runs]
            profiled = self._profiled(node_runs, [run.assignment for run in runs.edge_runs])
            if not profiled.incapable:
                return node_runs, profiled
            incapable = [before + more for before, more in zip(incapable, profiled.incapable, strict=True)]
            for reason in filter(None, profiled.reasons):
                log.warning("%s: %s", self.compiled.model.name, reason)

    def _profiled(self, node_runs: _Assignments, edge_runs: _Assignments, **budget: float) -> Profiled:
        job = self.place_class.job(
            DeviceProfilingJob,
            model_folder=str(self.compiled.model_folder),
            devices=self.devices,
            node_runs=tuple(node_runs),
            edge_runs=tuple(edge_runs),
            **budget,
        )
        names = ", ".join(device.name for device in self.devices)
        subject = f"the operators of {self.compiled.model.name} under {names}"
        return measure(subject, "stages.jobs.profile_devices", job, Profiled, self.tell)


# The store


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one device in the store: fingerprints by operator, and by bytes of an arriving tensor (`entry`).

    A device that is alone on its place has no `entry`.
    """

    graph: Graph
    setting: Setting
    operators: Mapping[int, str]
    entry: Mapping[int, str]

    def read(self, store: ProfileStore) -> DeviceTimes | None:
        """Read the times of the device; None if a row is missing."""
        wanted = {*self.operators.values(), *self.entry.values()}
        profiles = store.find(self.setting, wanted)
        if profiles.keys() != wanted:
            return None
        operators_s = np.full(len(self.graph.operators), np.inf)
        for operator, signed in self.operators.items():
            operators_s[operator] = profiles[signed].wall_s
        entry_s = {size_bytes: profiles[signed].wall_s for size_bytes, signed in self.entry.items()}
        latency_s, many_s = entry_s.get(0, 0.0), entry_s.get(_MANY_BYTES, 0.0)
        return DeviceTimes(operators_s, transfer_of(latency_s, (many_s - latency_s) / _MANY_BYTES))

    def write(self, store: ProfileStore, times: DeviceTimes) -> None:
        operators = {
            signed: self._profile(float(times.operators_s[operator]), self._moved_bytes(operator))
            for operator, signed in self.operators.items()
        }
        price = times.entry
        entry = {
            signed: self._profile(price.latency_s + size_bytes / price.bandwidth_bytes_per_s, size_bytes)
            for size_bytes, signed in self.entry.items()
        }
        store.add(self.setting, operators | entry)

    def _profile(self, time_s: float, moved_bytes: int) -> Profile:
        """A profile without spread, which is unknown for a time derived from those of whole runs."""
        return Profile(self.setting.threads * time_s, time_s, spread_s=0.0, runs=MIN_ROUNDS, moved_bytes=moved_bytes)

    def _moved_bytes(self, operator: int) -> int:
        profiled_operator = self.graph.operators[operator]
        return sum(
            self.graph.tensor(name).size_bytes
            for name in (*profiled_operator.inputs, *profiled_operator.outputs)
            if name
        )


def _rows(compiled: Compiled, place_class: PlaceClass, devices: Sequence[Device], runs: ProfileRuns) -> list[_Rows]:
    """(devices,): rows for the operators that each device runs in its own node run."""
    graph, layers = compiled.model.graph, compiled.layers
    whole = fingerprint(graph, layers, 0, len(layers) - 1, engine_nodes=0)
    names = sorted(device.name for device in devices)
    sizes_bytes = (0, _MANY_BYTES) if len(devices) > 1 else ()
    listed = []
    for index, (device, run) in enumerate(zip(devices, runs.node_runs, strict=True)):
        own = fingerprint_within(whole, device.engine, device.precision)
        listed.append(
            _Rows(
                graph,
                place_class.setting_on(device),
                {i: fingerprint_within(own, "operator", i) for i, on in enumerate(run.assignment) if on == index},
                {size: fingerprint_within(own, "entry", size, *names) for size in sizes_bytes},
            )
        )
    return listed


def _read(store: ProfileStore, rows: Sequence[_Rows]) -> list[DeviceTimes] | None:
    """(devices,): times from the store; None if any row is missing."""
    times_read = [times for row in rows if (times := row.read(store)) is not None]
    return times_read if len(times_read) == len(rows) else None
