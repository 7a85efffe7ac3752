"""A stage on the devices of its place: segments that run one after the other, each in an engine session of its own.

Tensors between the segments lie in the stage's own arrays, which are reused for every frame. All tensors are in the
plain format, as an engine must be able to read another's outputs: that is the cost of changing devices.

A described device is emulated: its segments' values are really computed, while their seconds, transfers included, come
from its description. On an engine of this host, the run's seconds count: CPU time on one thread, wall time on several,
including the time to read another engine's tensors. Both are divided by the device's speed at the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.rounding import depends_on_engine
from shisha_rt.model.scales import STEPS, never_negative
from shisha_rt.model.spans import Span, ends_of
from shisha_rt.model.split import Split
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import Segment, segment, segments
from stages.built.clean_model import CleanModel
from stages.built.differences import relative_difference
from stages.built.shard_stage import ShardStage
from stages.built.split_model import SplitStageModel
from stages.engines.device_session import build_session
from stages.engines.session import Array, Bound, CpuClock, Ends, EngineSession, Threads
from stages.noise import noise_for

EXACT: Final = Device("(exact)", "", "onnxruntime", memory="(exact)", precision="fp32")
_MOST_STEPS: Final = 4
_MOST_OF_LARGEST: Final = 0.05
_SCALED_NOISE: Final = STEPS / 8  # noise's largest value is about four times that, and a scale up to twice too wide


class PlacedModel:
    """The cleaned model, cut into stages by the `devices` of a place of `threads` threads.

    `index`: the model's plain index, which has the layers. `device_speed`: returns the present speed of the device at
    an index of `devices`, relative to its usual speed.
    """

    def __init__(
        self,
        model: CleanModel,
        index: ModelIndex,
        devices: tuple[Device, ...],
        threads: int,
        device_speed: Callable[[int], float],
    ) -> None:
        self._model = model
        self._index = index
        self._devices = devices
        self._threads = threads
        self._device_speed = device_speed
        self._formulas = described_costs(model.graph, devices)
        self._made_up = {spec.name: spec.made_up for spec in index.inputs}

    def of_frames(self, count: int) -> PlacedModel:
        """The same for batches of `count` frames (see `CleanModel.of_frames`)."""
        return PlacedModel(self._model.of_frames(count), self._index, self._devices, self._threads, self._device_speed)

    def stage(self, work: Sequence[Span], placement: Sequence[str], team: Threads | None = None) -> PlacedStage:
        """Build one or more runs of layers; `placement` names the device of each of their operators.

        `team`: the threads of a team; None: the place's own. No segment spans two runs. Raises ValueError for a
        placement that does not fit, and whatever an engine raises.
        """
        graph = self._model.graph
        runs = [self._index.operators_of(*run) for run in work]
        counts = [last - first + 1 for first, last in runs]
        if len(placement) != sum(counts):
            raise ValueError(f"{len(placement)} devices for operators {', '.join(f'{a} to {b}' for a, b in runs)}")
        devices = iter(placement)
        fastest = [
            part
            for (first, _), count in zip(runs, counts, strict=True)
            for part in segments(graph, first, list(islice(devices, count)))
        ]
        times_s = segment_times_s(graph, fastest, self._formulas)
        parts = [
            self._part(self._model, segment_found, time_s, team)
            for segment_found, time_s in zip(fastest, times_s, strict=True)
        ]
        stage = self._placed(graph, parts)
        if not all(part.device.exact and not _may_differ(graph, part) for part in parts):
            exact = self._placed(graph, [_exact(self._model, segment(graph, *run, EXACT.name)) for run in runs])
            stage.difference = _difference(self._model, stage, exact)
        return stage

    def split_stage(self, work: Sequence[Span], split: Split, device: str, team: Threads | None = None) -> ShardStage:
        """A shard, or a join with the layers behind it, on one device; otherwise as `stage`."""
        split_model = SplitStageModel(self._model, self._index, split, work, block=0)
        model, whole = split_model.model, split_model.segment(device)
        (time_s,) = segment_times_s(model.graph, (whole,), described_costs(model.graph, self._devices))
        part = self._part(model, whole, time_s, team)
        stage = self._placed(model.graph, [part])
        if not part.device.exact:
            stage.difference = _difference(model, stage, self._placed(model.graph, [_exact(model, whole)]))
        return ShardStage(stage, split_model.reads, split_model.makes, block=0)

    def _placed(self, graph: Graph, parts: Sequence[_Part]) -> PlacedStage:
        ends = ends_of(graph, [(part.segment.first, part.segment.last) for part in parts])
        inputs, outputs = (tuple(graph.tensors[name] for name in names) for names in ends)
        inputs = tuple(msgspec.structs.replace(spec, made_up=self._made_up.get(spec.name, 0)) for spec in inputs)
        return PlacedStage(parts, Ends(inputs, outputs), self._device_speed)

    def _part(self, model: CleanModel, segment: Segment, formula_s: float, team: Threads | None) -> _Part:
        index = next(index for index, device in enumerate(self._devices) if device.name == segment.device)
        device = self._devices[index]
        if device.described and math.isinf(formula_s):
            raise ValueError(f"device {device.name} cannot run operators {segment.first} to {segment.last}")
        threads = team or Threads(self._threads)
        threads = replace(threads, count=device.threads_on(threads.count))
        session = build_session(model, segment, device, threads)
        return _Part(segment, session, device, index, threads.count, formula_s)


@dataclass(frozen=True, slots=True)
class _Part:
    """A built segment. `formula_s`: its seconds on a described device; not used on other devices."""

    segment: Segment
    session: EngineSession
    device: Device
    device_index: int
    threads: int
    formula_s: float

    def took_s(self, cpu_s: float, wall_s: float, speed: float) -> float:
        """Seconds of a run: CPU time of one thread, without other processes' share of its core; else wall time."""
        measured_s = cpu_s if self.threads == 1 else wall_s
        return (self.formula_s if self.device.described else measured_s) / speed


def _exact(model: CleanModel, whole: Segment) -> _Part:
    return _Part(whole, build_session(model, whole, EXACT), EXACT, 0, 1, 0.0)


class PlacedStage(EngineSession):
    """A built stage. `devices`: one for each of `segments`. `described`: at least one has a formula.

    `difference`: by how much the devices' precision, or on integers an engine other than ONNX Runtime, changes an
    output: relative to its largest value (8-bit integers: to their range; others that are no floats: the share of
    changed values). It is measured on one frame of noise.
    """

    def __init__(self, parts: Sequence[_Part], ends: Ends, device_speed: Callable[[int], float]) -> None:
        super().__init__(ends, sum(part.session.weight_bytes for part in parts))
        self.segments = tuple(part.segment for part in parts)
        self.devices = tuple(part.device for part in parts)
        self.described = any(device.described for device in self.devices)
        handed_on = {spec.name for spec in ends.outputs}
        between = (spec for part in parts for spec in part.session.ends.outputs if spec.name not in handed_on)
        self._between = Ends((), tuple(between)).arrays()
        self._parts = tuple(parts)
        self._device_speed = device_speed

    @property
    def paced(self) -> bool:
        """Whether a segment's time is emulated: it comes from a formula, or its device is slowed at present."""
        return self.described or any(self._device_speed(part.device_index) != 1 for part in self._parts)

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        return partial(self._run, [part.session.bind({**self._between, **arrays}) for part in self._parts])

    def _run(self, bound: Sequence[Bound], cpu_clock: CpuClock) -> tuple[float, ...]:
        """Compute on the bound arrays; return each segment's seconds."""
        times_s = []
        cpu_start_s, start_s = cpu_clock(), time.perf_counter()
        for part, compute in zip(self._parts, bound, strict=True):
            compute(cpu_clock)
            cpu_end_s, end_s = cpu_clock(), time.perf_counter()
            speed = self._device_speed(part.device_index)
            times_s.append(part.took_s(cpu_end_s - cpu_start_s, end_s - start_s, speed))
            cpu_start_s, start_s = cpu_end_s, end_s
        return tuple(times_s)


def _may_differ(graph: Graph, part: _Part) -> bool:
    """Whether the part's integers may differ from ONNX Runtime's."""
    operators = graph.operators[part.segment.first : part.segment.last + 1]
    return part.device.engine != EXACT.engine and any(map(depends_on_engine, operators))


def _difference(model: CleanModel, stage: PlacedStage, exact: PlacedStage) -> float:
    given = noise_for(stage.ends.inputs, np.random.default_rng(0))
    if any(device.precision == "int8" for device in stage.devices):  # values beyond a scale are clipped
        for name in given.keys() & model.scales.keys():
            given[name] *= np.float32(2.0 ** model.scales[name] * _SCALED_NOISE)
        for name in given.keys() & never_negative(model.graph):
            np.maximum(given[name], 0, out=given[name])
    arrays, expected = stage.answers(given), exact.answers(given)
    differences = [relative_difference(arrays[name], array) for name, array in expected.items()]
    return float(np.max(differences, initial=0.0))  # nan if any is, unlike `max`


def most_apart(datatypes: Iterable[str]) -> float:
    """The largest difference that outputs of two engines may have, by their datatypes, if both are right.

    With each rounding, engines may differ by one step of 255; an output's largest float may be only a few steps.
    """
    return _MOST_STEPS / 255 if {"INT8", "UINT8"}.issuperset(datatypes) else _MOST_OF_LARGEST
