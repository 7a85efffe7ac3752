"""`python -m stages.jobs.profile_devices JOB`: make the profile runs of DCG-2022 and DCG-2024 (section 3.2).

Each run is the whole model as one placed stage, exactly as a worker builds one, on a private arena of one slot. Runs
take turns, round after round, each once untimed before it is timed (see `stages.jobs.calibrate` for why), so all are
built first, and their weights are in memory at once. A segment's time is the median over the rounds.

The engine's profiler comes last and on sessions of its own: it slows the operators that it profiles, and only the
proportions in which it divides a segment's time among operators are used. Its clock runs on while the host does other
work, and it reports means, so it profiles three times, and each operator's median counts.

An engine may not know all operators of a network, or compute some wrong: OpenVINO does with some grouped convolutions
that it runs in integers, and on x86 processors without VNNI sums of two products saturate at 16 bits. If a run fails,
and before any run of a network of integers on an engine other than ONNX Runtime, each layer is tried by itself. If that
finds operators that a device must not have, the answer is these operators, and why.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import Progress
from shisha_rt.messages.device_profiling import DeviceProfilingJob, Profiled
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.indexing import plain_index
from shisha_rt.model.layers import Layer, group_layers
from shisha_rt.model.rounding import depends_on_engine
from shisha_rt.placement.device_profile import Run, SegmentTime
from shisha_rt.placement.segments import Segment, segment
from shisha_rt.process.arena import Arena
from stages.built.clean_model import CleanModel
from stages.built.placed import PlacedModel, most_apart
from stages.engines.device_session import build_session
from stages.engines.operator_times import operator_times
from stages.engines.session import Bound, untimed
from stages.jobs.calibrate import run_rounds, say, standing, threads_of
from stages.jobs.neighbour import neighbours
from stages.noise import arena_of_own, noise_for

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_WATCHED_TIMES: Final = 3

_Faults: TypeAlias = dict[int, str]
"""Operators that a device must not have, and why, in words."""


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=DeviceProfilingJob)
    engines = [device.engine for device in job.devices]
    with standing(job, engines), neighbours(job.model_folder, job.neighbours):
        profiled = profile(job, tell=say)
    say(profiled)
    return 0


def profile(job: DeviceProfilingJob, tell: Callable[[Progress], None]) -> Profiled:
    """Time the job's runs in this process, on the cores that it already runs on.

    Raises whatever an engine raises, unless it concerns certain operators only.
    """
    profiling = _Profiling(job)
    with arena_of_own(profiling.index) as arena:
        try:
            if profiling.may_differ and any(unfit := profiling.unfit()):
                return _without(unfit, job.devices)
            node_timers, edge_timers = (profiling.timers(runs, arena) for runs in (job.node_runs, job.edge_runs))
            run_rounds([timer.run for timer in (*node_timers, *edge_timers)], job, tell)
        except Exception:
            unfit = profiling.unfit()
            if not any(unfit):
                raise
            return _without(unfit, job.devices)
    return Profiled(
        node_runs=tuple(
            profiling.watched(timer.result(), device)
            for timer, device in zip(node_timers, job.devices, strict=bool(node_timers))
        ),
        edge_runs=tuple(timer.result() for timer in edge_timers),
    )


def _without(unfit: Sequence[_Faults], devices: Sequence[Device]) -> Profiled:
    """The answer if there are operators that a device must not have."""

    def reason(faults: _Faults, device: Device) -> str:
        if not faults:
            return ""
        more = f", and so on for {len(faults) - 1} more" if len(faults) > 1 else ""
        return f"some operators are not for device {device.name}: {next(iter(faults.values()))}{more}"

    return Profiled(incapable=tuple(map(tuple, unfit)), reasons=tuple(map(reason, unfit, devices)))


class _Profiling:
    """The job's model, and what is built of it."""

    def __init__(self, job: DeviceProfilingJob) -> None:
        self._job = job
        self._model = CleanModel.read(Path(job.model_folder))
        self._layers = group_layers(self._model.graph)
        self.index = plain_index(self._model.graph, self._layers)
        self._placed = PlacedModel(self._model, self.index, job.devices, job.threads, device_speed=lambda _: 1.0)

    def timers(self, runs: Iterable[Sequence[int]], arena: Arena) -> list[_Timer]:
        """A timer of each run. `runs`: each operator's device."""
        whole, team = ((0, self.index.layer_count - 1),), threads_of(self._job)
        placements = ([self._job.devices[device].name for device in run] for run in runs)
        stages = (self._placed.stage(whole, placement, team) for placement in placements)
        return [_Timer(stage.segments, stage.on_slot(arena, 0)) for stage in stages]

    @property
    def may_differ(self) -> bool:
        """Whether an engine other than ONNX Runtime computes in integers."""
        has_others = any(device.engine != "onnxruntime" for device in self._job.devices)
        return has_others and any(map(depends_on_engine, self._model.graph.operators))

    def unfit(self) -> list[_Faults]:
        """(devices,): the operators of its own run that a device cannot run, or computes wrong.

        Each layer is tried by itself. If it fails, these are the operators that also fail alone. If none does, or if
        the layer's results differ from ONNX Runtime's, it is the heavy operator: the engine computes it wrong together
        with its neighbours. Results are compared only if operators compute in integers.
        """
        faults_of_runs: list[_Faults] = []
        for index, run in enumerate(self._job.node_runs):
            faults: _Faults = {}
            for layer in self._layers:
                own = [i for i in range(layer.first_operator, layer.last_operator + 1) if run[i] == index]
                if own:
                    faults |= self._faults(layer, run, own)
            faults_of_runs.append(faults)
        return faults_of_runs

    def _faults(self, layer: Layer, run: Sequence[int], own: Sequence[int]) -> _Faults:
        """The faulty operators of a layer, among those that the run has on its `own` device."""
        operators, devices = self._model.graph.operators, self._job.devices
        device = devices[run[own[0]]]
        suspects = [i for i in own if operators[i].op_type in HEAVY] or own
        placement = [devices[run[i]].name for i in range(layer.first_operator, layer.last_operator + 1)]
        try:
            stage = self._placed.stage(((layer.index, layer.index),), placement)
            stage.apart()(untimed)
        except Failure:  # of the engine itself, whatever it runs
            raise
        except Exception:  # engines raise exceptions of any type
            fails = [i for i in own if not self._runs(i, device)]
            return {i: f"it does not run {self._named(i)}" for i in fails or suspects}
        most = most_apart(spec.datatype for spec in stage.ends.outputs)
        if not device.exact or stage.difference <= most:
            return {}
        apart = f"{stage.difference:.1%} apart from ONNX Runtime's, expected at most {most:.1%}"
        return {i: f"its results of {self._named(i)} are {apart}" for i in suspects}

    def _runs(self, operator: int, device: Device) -> bool:
        alone = segment(self._model.graph, operator, operator, device.name)
        try:
            session = build_session(self._model, alone, device)
            session.answers(noise_for(session.ends.inputs, np.random.default_rng(0)))
        except Failure:  # of the engine itself, whatever it runs
            raise
        except Exception:  # engines raise exceptions of any type
            return False
        return True

    def _named(self, operator: int) -> str:
        node = self._model.graph.operators[operator]
        return f"{node.op_type} {node.name!r}"

    def watched(self, run: Run, device: Device) -> Run:
        """The run, with times of the operators on `device` by the engine's profiler."""

        def operators_s(part: SegmentTime) -> tuple[float, ...]:
            cut, threads = segment(self._model.graph, part.first, part.last, part.device), threads_of(self._job, device)
            rounds = self._job.min_rounds
            means_s = [operator_times(self._model, cut, device, threads, rounds) for _ in range(_WATCHED_TIMES)]
            return tuple(map(statistics.median, zip(*means_s, strict=True)))

        return tuple(
            replace(part, operators_s=operators_s(part)) if part.device == device.name else part for part in run
        )


@dataclass(slots=True)
class _Timer:
    """One run, and its segments' times so far: (rounds,) of (segments,) seconds."""

    segments: tuple[Segment, ...]
    compute: Bound
    times_s: list[tuple[float, ...]] = field(default_factory=list)

    def run(self) -> None:
        # CPU time of the whole process, as nothing runs in it but the engines' threads.
        self.compute(time.process_time)
        self.times_s.append(self.compute(time.process_time))

    def result(self) -> Run:
        medians_s = map(statistics.median, zip(*self.times_s, strict=True))
        return tuple(
            SegmentTime(part.device, part.first, part.last, time_s)
            for part, time_s in zip(self.segments, medians_s, strict=True)
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
