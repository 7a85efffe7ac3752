"""A stage that computes batches as well as single frames.

Frames in neighbouring slots form one tensor in place. Frames in other slots, and tensors with gaps between slots, are
gathered in the stage's own memory, and outputs are copied from there into the slots.

The operators guarantee that a frame has the same answer in a batch as alone (`model.batches`); a stage is also tried on
its largest batch before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.machine.device import Precision
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF, Tensor
from stages.built.differences import relative_difference
from stages.built.stage import BuiltStage
from stages.engines.session import Array, Bound, CpuClock, EngineSession, one_line, untimed
from stages.noise import run_on_frame

_TRIED_FRAMES: Final = 3
_MOST_OF_LARGEST: Final = 1e-3
"""Largest difference, relative to the largest value, that rounding explains; mixed frames differ by far more."""
_MOST_OF_INTEGERS: Final = 0.05
_FLOAT16_FACTOR: Final = 16
"""By which float16 may differ more."""
_BFLOAT16_FACTOR: Final = 128
"""By which networks in bfloat16 may differ more: it has three bits less than float16."""


class FramesDiffer(ValueError):
    """Frames of a batch have different answers from the same frames alone."""


def batched_stage(sessions: Sequence[EngineSession], together: Callable[[], Iterable[Together]]) -> BuiltStage:
    """A stage of `sessions` that computes batches, too, as far as `together` can be built and its answers are right."""
    try:
        stage = BatchedStage([*together()])
        stage.try_out()
    except FramesDiffer as differ:
        return BuiltStage(sessions, alone=str(differ))
    except Exception as error:  # engines raise exceptions of any type
        return BuiltStage(sessions, alone=f"the engine computes one frame at a time: {one_line(error)}")
    return stage


@dataclass(frozen=True, slots=True)
class _Binding:
    """`compute` works on slots, except for tensors `gathered` from slots before it or `scattered` to slots after it."""

    compute: Bound
    gathered: tuple[str, ...]
    scattered: tuple[str, ...]


class Together:
    """A stage in one shape of the model: `single` computes one frame, and `sizes` batches, by their number of frames.

    `axes`: each tensor's axis of frames, by name. `precision`: in which they compute.
    """

    def __init__(
        self,
        single: EngineSession,
        axes: Mapping[str, int],
        sizes: Mapping[int, EngineSession],
        precision: Precision = "fp32",
    ) -> None:
        self.single = single
        self._axes = axes
        self._sizes = sizes
        self._precision = precision
        self._ends = single.ends
        self._descending = sorted(sizes, reverse=True)
        self._bindings: dict[tuple[int, int], _Binding] = {}
        self._aside: dict[str, Array] = {}  # the stage's own memory, by tensor: see `_room`

    @property
    def end_bytes(self) -> int:
        return self._ends.size_bytes

    @property
    def networks(self) -> set[EngineSession]:
        """The sessions that compute batches; one session may be for several sizes."""
        return set(self._sizes.values())

    def largest(self, frames: int) -> int:
        """The largest size of at most `frames`; 1 if there is none."""
        return next((size for size in self._descending if size <= frames), 1)

    def run(self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int) -> tuple[float, ...]:
        count = len(slots)
        first = slots[0] if slots[-1] - slots[0] == count - 1 else -1
        binding = self._bindings.get((first, count))
        if binding is None:
            binding = self._bindings[first, count] = self._bind(arena, first, count, layout)
        regions = arena.layouts[layout].regions
        for name in binding.gathered:
            for position, slot in enumerate(slots):
                self._aside[name][position] = arena.raw(slot, regions[name])
        segments_s = binding.compute(cpu_clock)
        for name in binding.scattered:
            for position, slot in enumerate(slots):
                arena.raw(slot, regions[name])[...] = self._aside[name][position]
        return segments_s

    def _bind(self, arena: Arena, first: int, count: int, layout: int) -> _Binding:
        """`first`: the first of neighbouring slots; -1 if the slots are not neighbours."""
        regions, axes = arena.layouts[layout].regions, self._axes
        arrays, aside = {}, set()
        for spec in self._ends.both:
            name = spec.name
            if first >= 0 and regions[name].is_gapless:
                arrays[name] = arena.view_of_many(first, count, regions[name], axes[name])
            else:
                aside.add(name)
                arrays[name] = self._many(self._room(spec)[:count].reshape(-1), spec, count)
        return _Binding(
            self._sizes[count].bind(arrays),
            tuple(spec.name for spec in self._ends.inputs if spec.name in aside),
            tuple(spec.name for spec in self._ends.outputs if spec.name in aside),
        )

    def _room(self, spec: Tensor) -> Array:
        """(most frames, bytes): the stage's own memory for this tensor."""
        if spec.name not in self._aside:
            self._aside[spec.name] = np.zeros((self._descending[0], spec.size_bytes), np.uint8)
        return self._aside[spec.name]

    def _many(self, raw: Array, spec: Tensor, count: int) -> Array:
        shape = list(spec.shape)
        shape[self._axes[spec.name]] *= count
        return raw.view(NUMPY_OF[spec.datatype]).reshape(shape)

    def try_out(self) -> None:
        """Try each network's largest batch; raise FramesDiffer unless each frame has the same answer in it as alone.

        The largest, as an engine may compute more frames by another kernel than few.
        """
        single = self.single
        tried = [
            run_on_frame(lambda inputs: (inputs, single.answers(inputs)), self._ends.inputs, seed)
            for seed in range(1, _TRIED_FRAMES + 1)  # frame 0 has only zeros as integers
        ]
        for network in self.networks:
            self._try_run(max(size for size, computes in self._sizes.items() if computes is network), tried)

    def _try_run(self, count: int, tried: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]) -> None:
        """Run one batch of `count` of the frames. `tried`: frames, and the stage's outputs for each of them alone."""
        frames = [tried[number % len(tried)] for number in range(count)]
        arrays = {
            spec.name: self._many(np.zeros(count * spec.size_bytes, np.uint8), spec, count) for spec in self._ends.both
        }
        for spec in self._ends.inputs:
            by_frame = arrays[spec.name].reshape(count, -1)
            for position, (given, _) in enumerate(frames):
                by_frame[position] = given[spec.name].reshape(-1)
        self._sizes[count].bind(arrays)(untimed)
        for spec in self._ends.outputs:
            by_frame = arrays[spec.name].reshape(count, *spec.shape)
            for position, (_, expected) in enumerate(frames):
                _check_alike(spec, by_frame[position], expected[spec.name], self._precision)


class BatchedStage(BuiltStage):
    """A stage that computes batches, too; `shapes` has one entry for each layout."""

    def __init__(self, shapes: Sequence[Together]) -> None:
        super().__init__([shape.single for shape in shapes])
        self._shapes = shapes

    def try_out(self) -> None:
        """Run the largest batches. Raises FramesDiffer, and whatever an engine raises."""
        for shape in self._shapes:
            shape.try_out()

    def run_bytes(self, frames: int) -> int:
        """Bytes that a batch of `frames` moves: weights once, inputs and outputs of each frame."""
        return self.frame_bytes + (frames - 1) * max(shape.end_bytes for shape in self._shapes)

    def give_back(self) -> None:
        super().give_back()
        for shape in self._shapes:
            for many in shape.networks:
                many.give_back()

    def run_together(
        self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int = 0
    ) -> tuple[float, ...]:
        """Compute these slots' tensors in ascending order, in runs as large as `sizes` allows; returns as `run`."""
        shape, at = self._shapes[layout], 0
        runs_s: list[tuple[float, ...]] = []
        while at < len(slots):
            size = shape.largest(len(slots) - at)
            if size == 1:
                runs_s.append(self.run(arena, slots[at], cpu_clock, layout))
            else:
                runs_s.append(shape.run(arena, slots[at : at + size], cpu_clock, layout))
            at += size
        return tuple(map(math.fsum, zip(*runs_s, strict=True)))


def _check_alike(spec: Tensor, together: Array, alone: Array, precision: Precision = "fp32") -> None:
    if together.dtype.kind in "iub":
        most = _MOST_OF_INTEGERS
    elif precision == "bf16":
        most = _BFLOAT16_FACTOR * _MOST_OF_LARGEST
    else:
        most = _MOST_OF_LARGEST * (_FLOAT16_FACTOR if together.dtype == np.float16 else 1)
    finite = np.isfinite(alone) if alone.dtype.kind == "f" else np.ones(alone.shape, bool)
    difference = relative_difference(together[finite], alone[finite])
    if not difference <= most:  # NaN is no agreement
        raise FramesDiffer(
            f"frames have other answers in a batch than alone: {spec.name!r} by {difference:.1e} of its largest value"
        )
