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
from shisha_rt.model.noise import noise
from shisha_rt.model.rounding import depends_on_engine
from shisha_rt.model.spans import ends_of
from shisha_rt.placement.device_profile import Run, SegmentTime
from shisha_rt.placement.segments import Segment, segment
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layout_of
from stages.built.clean_model import CleanModel
from stages.built.placed import PlacedModel, PlacedStage, most_apart
from stages.engines.device_session import build_session
from stages.engines.operator_times import operator_times
from stages.engines.session import Threads
from stages.jobs.calibrate import run_rounds, say, stand
from stages.jobs.neighbour import neighbours
from stages.jobs.noise import fill

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_SLOT: Final = 0
_WATCHED_TIMES: Final = 3

_Faults: TypeAlias = dict[int, str]
"""Operators that a device must not have, and why, in words."""


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=DeviceProfilingJob)
    stand(job.cores, job.lead, job.devices)
    with neighbours(job.model_folder, job.neighbours, clean=True):
        profiled = profile(job, tell=say)
    say(profiled)
    return 0


def profile(job: DeviceProfilingJob, tell: Callable[[Progress], None]) -> Profiled:
    """Time the job's runs in this process, on the cores that it already runs on.

    Raises whatever an engine raises, unless it concerns certain operators only.
    """
    model = CleanModel(Path(job.model_folder))
    layers = group_layers(model.graph)
    index = plain_index(model.graph, layers)
    placed = PlacedModel(model, index, job.devices, job.threads, device_speed=lambda _: 1.0)
    arena = Arena.create(layout_of(index), slot_count=1, place_count=1)
    whole = ((0, index.layer_count - 1),)
    team = Threads(job.threads, job.cores if job.lead else ())

    def built(runs: Iterable[Sequence[int]]) -> list[_Timer]:
        placements = ([job.devices[device].name for device in run] for run in runs)
        return [_Timer(placed.stage(whole, placement, team), arena) for placement in placements]

    try:
        fill(arena, index)
        has_others = any(device.engine != "onnxruntime" for device in job.devices)
        if has_others and any(map(depends_on_engine, model.graph.operators)):
            unfit = _unfit(model, placed, layers, job)
            if any(unfit):
                return _without(unfit, job.devices)
        node_timers, edge_timers = built(job.node_runs), built(job.edge_runs)
        run_rounds([timer.run for timer in (*node_timers, *edge_timers)], job, tell)
    except Exception:
        unfit = _unfit(model, placed, layers, job)
        if not any(unfit):
            raise
        return _without(unfit, job.devices)
    finally:
        arena.close()
    return Profiled(
        node_runs=tuple(
            _watched(model, timer.result(), device, job)
            for timer, device in zip(node_timers, job.devices, strict=bool(node_timers))
        ),
        edge_runs=tuple(timer.result() for timer in edge_timers),
        rounds=len((*node_timers, *edge_timers)[0].times_s),
    )


def _without(unfit: Sequence[_Faults], devices: Sequence[Device]) -> Profiled:
    """The answer if there are operators that a device must not have."""

    def reason(faults: _Faults, device: Device) -> str:
        if not faults:
            return ""
        more = f", and so on for {len(faults) - 1} more" if len(faults) > 1 else ""
        return f"some operators are not for device {device.name}: {next(iter(faults.values()))}{more}"

    return Profiled(incapable=tuple(map(tuple, unfit)), reasons=tuple(map(reason, unfit, devices)))


def _unfit(model: CleanModel, placed: PlacedModel, layers: Sequence[Layer], job: DeviceProfilingJob) -> list[_Faults]:
    """(devices,): the operators of its own run that a device cannot run, or computes wrong.

    Each layer is tried by itself. If it fails, these are the operators that also fail alone. If none does, or if the
    layer's results differ from ONNX Runtime's, it is the heavy operator: the engine computes it wrong together with its
    neighbours. Results are compared only if operators compute in integers.
    """
    profiled = []
    for index, run in enumerate(job.node_runs):
        unfit: _Faults = {}
        for layer in layers:
            operators = range(layer.first_operator, layer.last_operator + 1)
            own = [i for i in operators if run[i] == index]
            heavy = [i for i in own if model.graph.operators[i].op_type in HEAVY]
            if own:
                unfit |= _faulty(model, placed, layer, [job.devices[run[i]] for i in operators], own, heavy or own)
        profiled.append(unfit)
    return profiled


def _faulty(
    model: CleanModel,
    placed: PlacedModel,
    layer: Layer,
    devices: Sequence[Device],
    own: Sequence[int],
    suspects: Sequence[int],
) -> _Faults:
    """Return the faulty operators among `own` of a layer; `suspects` if none of them fails alone."""
    device = devices[own[0] - layer.first_operator]
    try:
        stage = placed.stage(((layer.index, layer.index),), [placed_device.name for placed_device in devices])
        stage.warm()
    except Failure:  # of the engine itself, whatever it runs
        raise
    except Exception:  # engines raise exceptions of any type
        alone = (segment(model.graph, i, i, device.name) for i in own)
        fails = [span.first for span in alone if not _runs(model, span, device)] or suspects
        return {i: f"it does not run {_named(model, i)}" for i in fails}
    _, outputs = ends_of(model.graph, stage.runs)
    most = most_apart(model.graph.tensors[name].datatype for name in outputs)
    if not device.exact or stage.difference <= most:
        return {}
    apart = f"{stage.difference:.1%} apart from ONNX Runtime's, expected at most {most:.1%}"
    return {i: f"its results of {_named(model, i)} are {apart}" for i in suspects}


def _named(model: CleanModel, operator: int) -> str:
    node = model.graph.operators[operator]
    return f"{node.op_type} {node.name!r}"


def _runs(model: CleanModel, operator: Segment, device: Device) -> bool:
    generator = np.random.default_rng(0)
    inputs, outputs = (
        [noise(tensor.shape, tensor.datatype, generator) for tensor in map(model.graph.tensors.__getitem__, names)]
        for names in (operator.inputs, operator.outputs)
    )
    try:
        build_session(model, operator, device).bind(inputs, outputs)()
    except Failure:  # of the engine itself, whatever it runs
        raise
    except Exception:  # engines raise exceptions of any type
        return False
    return True


@dataclass(slots=True)
class _Timer:
    """One run, and its segments' times so far: (rounds,) of (segments,) seconds."""

    stage: PlacedStage
    arena: Arena
    times_s: list[tuple[float, ...]] = field(default_factory=list)

    def run(self) -> None:
        # CPU time of the whole process, as nothing runs in it but the engines' threads.
        self.stage.run(self.arena, _SLOT, time.process_time)
        self.times_s.append(self.stage.run(self.arena, _SLOT, time.process_time))

    def result(self) -> Run:
        medians_s = map(statistics.median, zip(*self.times_s, strict=True))
        return tuple(
            SegmentTime(part.device, part.first, part.last, time_s)
            for part, time_s in zip(self.stage.segments, medians_s, strict=True)
        )


def _watched(model: CleanModel, run: Run, device: Device, job: DeviceProfilingJob) -> Run:
    """The run, with times of the operators on `device` by the engine's profiler."""
    generator = np.random.default_rng(0)
    threads = Threads(device.threads_on(job.threads), job.cores if job.lead else ())

    def operators_s(part: SegmentTime) -> tuple[float, ...]:
        cut = segment(model.graph, part.first, part.last, part.device)
        tensors = [model.graph.tensors[name] for name in cut.inputs]
        feeds = {tensor.name: noise(tensor.shape, tensor.datatype, generator) for tensor in tensors}
        turns = range(_WATCHED_TIMES)
        means_s = [operator_times(model, cut, device, threads, feeds, job.min_rounds) for _ in turns]
        return tuple(map(statistics.median, zip(*means_s, strict=True)))

    return tuple(replace(part, operators_s=operators_s(part)) if part.device == device.name else part for part in run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
